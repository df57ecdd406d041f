r"""
Magnetic resonance imaging
==========================

A scanner measures the Fourier transform of the image, k-space, and is faster if it leaves out three of four columns:
:math:`y = m \odot F x + n`.
"""

import matplotlib.pyplot as plt
import torch
from skimage import data
from skimage.transform import resize

import torchdeal as td
from torchdeal.metrics import psnr
from torchdeal.operators import Fourier, MultiCoilFourier
from torchdeal.simulate import measure, random_columns

phantom = resize(data.shepp_logan_phantom(), (128, 128), anti_aliasing=True)
clean = torch.from_numpy(phantom).float()[None, None]
columns = random_columns((128, 128), acceleration=4, centre=0.08)  # the zero frequency in the middle

# %%
# One coil
# --------

H = Fourier(columns, centered=True)
kspace = measure(clean, H, noise=0.005) * columns
rec = td.reconstruct(kspace, H, noise=0.005, model="gray-light")
print(rec)


def compare(pictures):
    """Draw pictures beside each other."""
    _, axes = plt.subplots(1, len(pictures), figsize=(9, 3.3), layout="constrained")
    for axis, (name, image) in zip(axes, pictures.items(), strict=True):
        axis.imshow(image[0, 0], cmap="gray", vmin=0, vmax=1)
        axis.set_title(name if image is clean else f"{name}, {psnr(image, clean):.2f} dB")
        axis.axis("off")


compare({"clean": clean, "zero-filled": H.adjoint(kspace), "reconstructed": rec.x})

# %%
# A phantom is easy: it has no texture. Results for images of knees, beside other methods, are in :doc:`/inverse`.
#
# Several coils
# -------------
# Each coil sees the image times its sensitivity, here smooth bumps around the image. Half as many columns are
# measured.

angle = torch.arange(4) * torch.pi / 2
rows, across = torch.meshgrid(torch.linspace(-1, 1, 128), torch.linspace(-1, 1, 128), indexing="ij")
bumps = [torch.exp(-((rows - a.sin()) ** 2) - (across - a.cos()) ** 2) for a in angle]
maps = torch.stack(bumps) / torch.stack(bumps).square().sum(0).sqrt()

columns = random_columns((128, 128), acceleration=8, centre=0.04)
H = MultiCoilFourier(maps.to(torch.complex64), columns, centered=True)
kspace = measure(clean, H, noise=0.005) * columns  # (1, coils, H, W)
rec = td.reconstruct(kspace, H, noise=0.005, model="gray-light")
print(rec)
compare({"clean": clean, "zero-filled": H.adjoint(kspace), "reconstructed": rec.x})
plt.show()

# %%
# For files of scanners, noise and sensitivities that are estimated from them, and other trajectories, see
# :doc:`/mri`.
