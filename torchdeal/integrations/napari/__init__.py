"""DEAL in napari: `work` does it, without Qt; `widget` is what one sees; `samples` are pictures to try it with."""
