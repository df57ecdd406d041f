r"""
Super-resolution
================

A small picture is every second pixel of a large one after a blur: :math:`y = (k * x)_{0::2,\,0::2} + n`.
"""

import matplotlib.pyplot as plt
import torch
from skimage import data

import torchdeal as td
from torchdeal.metrics import psnr
from torchdeal.operators import Downsample
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.simulate import bicubic, measure

clean = torch.from_numpy(data.astronaut()[8:136, 160:288] / 255).float().permute(2, 0, 1)[None]  # (1, 3, 128, 128)
H = Downsample(2, gaussian_kernel(1.0), boundary="circular")  # or your own kernel
small = measure(clean, H, noise=0.01)

rec = td.reconstruct(small, H, noise=0.01, model="color-light")
print(rec)

# %%
# Bicubic interpolation, as a program for pictures would enlarge it, and the reconstruction:

pictures = {"measured": small, "bicubic": bicubic(small, 2), "reconstructed": rec.x, "clean": clean}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
for axis, (name, image) in zip(axes, pictures.items(), strict=True):
    axis.imshow(image[0].permute(1, 2, 0).clamp(0, 1))
    compared = name in ("bicubic", "reconstructed")
    axis.set_title(f"{name}, {psnr(image, clean):.2f} dB" if compared else name)
    axis.axis("off")
plt.show()
