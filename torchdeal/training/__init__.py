"""Training: the images, the loss, the loop."""

from torchdeal.training.config import Config, ConfigError, parse_config, read_config
from torchdeal.training.data import ImageSet, Skipped, read_images
from torchdeal.training.report import Event, Example, Report, Validated
from torchdeal.training.run import Options, train
from torchdeal.training.state import CheckpointError
from torchdeal.training.trainer import DivergedError, Trainer

__all__ = [
    "CheckpointError",
    "Config",
    "ConfigError",
    "DivergedError",
    "Event",
    "Example",
    "ImageSet",
    "Options",
    "Report",
    "Skipped",
    "Trainer",
    "Validated",
    "parse_config",
    "read_config",
    "read_images",
    "train",
]
