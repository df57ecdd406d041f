r"""
Denoising
=========

The measurements are the image itself with white noise: :math:`y = x + n`, where :math:`n` has the standard deviation
:math:`\sigma`.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import torchdeal as td
from torchdeal.metrics import psnr

clean = data.astronaut()[8:136, 160:288] / 255  # (H, W, 3), in 0..1
noisy = clean + np.random.default_rng(0).normal(0, 25 / 255, clean.shape)

denoised = td.denoise(noisy, sigma=25 / 255, model="color-light")

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axis, name, image in zip(axes, ("clean", "noisy", "denoised"), (clean, noisy, denoised), strict=True):
    axis.imshow(image.clip(0, 1))
    axis.set_title(name if image is clean else f"{name}, {psnr(image, clean):.2f} dB")
    axis.axis("off")

# %%
# Without sigma
# -------------
# If you do not know how much noise there is, leave ``sigma`` out. It is estimated then, and ``noise_levels`` also
# says how sure the estimate is. All is in the units of the data, here 0..1; times 255 it reads as in the literature.

from torchdeal.noise import noise_levels

(level,) = noise_levels(noisy)
print(f"noise {255 * level.sigma:.1f}, between {255 * level.low:.1f} and {255 * level.high:.1f}")

automatic = td.denoise(noisy, model="color-light")
print(f"{psnr(automatic, clean):.2f} dB")

# %%
# How the run went
# ----------------
# ``td.reconstruct`` without an operator denoises, too, and tells how it went: the status, the iterations, and the
# estimated distance to the fixed point. The noise may differ from pixel to pixel; then sigma is a map.

levels = np.linspace(5, 50, clean.shape[1]) / 255 * np.ones((clean.shape[0], 1))  # more noise on the right
uneven = clean + levels[..., None] * np.random.default_rng(1).normal(size=clean.shape)

rec = td.reconstruct(uneven, sigma=levels, model="color-light")
print(rec)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
axes[0].imshow(levels, cmap="gray", vmin=0)
axes[0].set_title("noise level")
for axis, name, image in ((axes[1], "noisy", uneven), (axes[2], "denoised", rec.x)):
    axis.imshow(image.clip(0, 1))
    axis.set_title(f"{name}, {psnr(image, clean):.2f} dB")
for axis in axes:
    axis.axis("off")
plt.show()
