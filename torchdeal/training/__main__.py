"""`python -m torchdeal.training CONFIG --output FOLDER`: training without the packages of the command line."""

from torchdeal.training.run import main

main()
