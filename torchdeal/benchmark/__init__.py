"""How fast and how accurate: the measurements behind `deal benchmark`.

Each benchmark is a module with a `BENCHMARK` (see `frame.py`), and a command: `deal benchmark NAME`, or on a machine
that has no more than torch, numpy, Pillow and safetensors `python -m torchdeal.benchmark.NAME`.
"""

BENCHMARKS = {
    "speed": "Time to a given distance from the fixed point, ours beside the method as the paper writes it.",
    "denoising": "Mean PSNR over a folder of images, noise added by the protocol of the paper, and how the runs went.",
    "inverse": "DEAL beside a plain inversion and total variation: deblurring, super-resolution, MRI, CT.",
}
