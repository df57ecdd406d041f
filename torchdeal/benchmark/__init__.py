"""The evidence: every table and figure of the documents, measured by `deal benchmark EXPERIMENT`.

On a machine that has no more than torch, numpy, Pillow and safetensors: `python -m torchdeal.benchmark EXPERIMENT`.
"""

EXPERIMENTS = {
    "denoising": "gray and colour images, beside other denoisers",
    "superres": "super-resolution of colour images",
    "deblur": "motion blur of gray images",
    "mri": "few columns of k-space: one coil, and several",
    "ct": "few angles",
    "speed": "seconds to a given distance from the fixed point, beside the method as the paper writes it",
    "time": "seconds and memory of each method on the same problem",
    "load": "one thread and all, beside a busy process, and two pictures at once, on the CPU",
    "serve": "requests over HTTP: pictures a second, waiting times, harmful clients, memory",
    "robustness": "other starts, wrong noise levels, wrong operators, perturbed measurements, more iterations",
    "convergence": "a hundred random problems: does a run end when it should, and is what it says true",
    "reach": "how far information travels: what the halo of a tile must be",
    "large": "pictures in tiles: is the result the same, memory, growth of time",
    "tune": "automatic sigma and lam, beside the best pair for each image",
    "uncertainty": "error bars: how many pixels of the truth lie within the stated intervals",
    "noise": "the noise level of a picture: is it found",
    "fidelity": "noise that is not white and Gaussian, beside plain least squares",
    "finetune": "a short training on pictures of one kind: what it gains there, and loses elsewhere",
    "figures": "the figures of the documents",
    "all": "all of these",
    "report": "only write the report of what is in the folder of --out",
}
