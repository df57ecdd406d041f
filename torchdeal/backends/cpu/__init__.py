"""The model on the CPU: filters by FFT, tile by tile, and mixing by Winograd's algorithm."""
