"""`python -m torchdeal.benchmark EXPERIMENT`."""

from torchdeal.benchmark.command import main

if __name__ == "__main__":
    main()
