r"""
Computed tomography
===================

A sinogram has the sums of the image along rays, in few directions here: :math:`y = R x + n`. Each angle less is dose
and time less.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from skimage import data
from skimage.transform import resize

import torchdeal as td
from torchdeal.metrics import psnr
from torchdeal.operators import Radon
from torchdeal.simulate import filtered_back_projection, measure

phantom = resize(data.shepp_logan_phantom(), (128, 128), anti_aliasing=True)
clean = torch.from_numpy(phantom).float()[None, None]

H = Radon(np.arange(0, 180, 4), 128)  # 45 angles, in degrees
sinogram = measure(clean, H, noise=0.5)

rec = td.reconstruct(sinogram, H, noise=0.5, model="gray-light")
print(rec)

# %%
# Beside filtered back-projection, which is exact only for many angles without noise:

back_projected = filtered_back_projection(sinogram, H)
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
axes[0].imshow(sinogram[0, 0], cmap="gray", aspect="auto")
axes[0].set_title("sinogram")
pictures = {"back-projection": back_projected, "reconstructed": rec.x, "clean": clean}
for axis, (name, image) in zip(axes[1:], pictures.items(), strict=True):
    axis.imshow(image[0, 0], cmap="gray", vmin=0, vmax=1)
    axis.set_title(name if image is clean else f"{name}, {psnr(image, clean):.2f} dB")
for axis in axes:
    axis.axis("off")
plt.show()

# %%
# A phantom is easy: it has no texture. :doc:`/inverse` has results for slices of chests, beside other methods, and
# :doc:`/operators` says how to give the rotation axis, a detector of another size, and fan beams. Counted photons
# have Poisson noise: :doc:`/trust` shows ``td.Poisson``.
