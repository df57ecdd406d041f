"""`python -m torchdeal.benchmark.peers`."""

from torchdeal.benchmark.peers.check import main

if __name__ == "__main__":
    main()
