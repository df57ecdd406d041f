"""`python -m torchdeal` is the command `deal`."""

from torchdeal.cli import main

if __name__ == "__main__":
    main()
