r"""
Deblurring
==========

A camera moved while it took a picture: :math:`y = k * x + n`, with a kernel :math:`k` that is known.
"""

import matplotlib.pyplot as plt
import torch
from skimage import data

import torchdeal as td
from torchdeal.metrics import psnr
from torchdeal.operators import Blur
from torchdeal.simulate import measure

clean = torch.from_numpy(data.camera()[72:200, 176:304] / 255).float()[None, None]  # (B, C, H, W)
kernel = torch.eye(9).flip(0) / 9  # along a diagonal
H = Blur(kernel, boundary="circular")
blurred = measure(clean, H, noise=0.01)

# %%
# ``noise`` is the standard deviation of the noise in the measurements. From it and from the measurements follow the
# noise level that the model assumes, ``sigma``, and the strength ``lam``. Both can be given instead.

rec = td.reconstruct(blurred, H, noise=0.01, model="gray-light")
print(rec)
print(f"sigma {255 * float(rec.sigma):.1f} of 255, lam {float(rec.lam):.2f}")

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axis, name, image in zip(axes, ("clean", "blurred", "deblurred"), (clean, blurred, rec.x), strict=True):
    axis.imshow(image[0, 0], cmap="gray", vmin=0, vmax=1)
    axis.set_title(name if image is clean else f"{name}, {psnr(image, clean):.2f} dB")
    axis.axis("off")

# %%
# The border
# ----------
# Real cameras see what is beyond the border of the picture. With ``boundary="valid"`` only those pixels are measured
# that the whole kernel sees. The result is larger than the measurement by the size of the kernel, and nothing is
# assumed about the outside.

valid = Blur(kernel, boundary="valid")
rec = td.reconstruct(measure(clean, valid, noise=0.01), valid, noise=0.01, model="gray-light")
print(rec)
print(tuple(valid.forward(clean).shape), "->", tuple(rec.x.shape), f"{psnr(rec.x, clean):.2f} dB")
plt.show()
