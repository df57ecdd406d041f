"""Training: the images, and what is drawn from them."""

from torchdeal.training.data import ImageSet, Skipped, read_images

__all__ = ["ImageSet", "Skipped", "read_images"]
