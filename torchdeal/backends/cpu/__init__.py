"""The model on the CPU: filters by FFT, tile by tile, mixing by Winograd's algorithm, in pieces for threads."""
