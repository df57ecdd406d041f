"""The model on a GPU: packed convolutions in half precision, FFT in full precision, Triton between them, graphs."""
