"""More than one picture that fits: many at once, and large ones."""
