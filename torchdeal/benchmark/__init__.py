"""How fast, how accurate, how much memory: the measurements behind `deal benchmark`."""
