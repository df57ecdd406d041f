r"""
Bring your own operator
=======================

``H`` may be anything linear. A pair of functions is enough: :math:`H` and its adjoint :math:`H^T`, for which
:math:`\langle H x, y \rangle = \langle x, H^T y \rangle` holds for all images and measurements.
"""

import matplotlib.pyplot as plt
import torch
from skimage import data

import torchdeal as td
from torchdeal.metrics import psnr

clean = torch.from_numpy(data.camera()[72:200, 176:304] / 255).float()[None, None]

# %%
# A camera behind frosted glass: half of the light is displaced by 5 pixels to the right, a quarter by 3 pixels down.


def forward(x):
    """Measurements of images `(B, C, H, W)`."""
    return x / 4 + x.roll(5, -1) / 2 + x.roll(3, -2) / 4


def adjoint(y):
    """Each shift undone, with the same weight."""
    return y / 4 + y.roll(-5, -1) / 2 + y.roll(-3, -2) / 4


noise = 0.02
seen = forward(clean) + noise * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
rec = td.reconstruct(seen, (forward, adjoint), noise=noise, model="gray-light")
print(rec)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axis, name, image in zip(axes, ("clean", "measured", "reconstructed"), (clean, seen, rec.x), strict=True):
    axis.imshow(image[0, 0], cmap="gray", vmin=0, vmax=1)
    axis.set_title(name if image is clean else f"{name}, {psnr(image, clean):.2f} dB")
    axis.axis("off")
plt.show()

# %%
# Is the adjoint right?
# ---------------------
# ``adjoint_gap`` compares both inner products for random images, relative to their size. For a right one it is a
# rounding error.

print(td.operators.adjoint_gap((forward, adjoint), clean))

# %%
# With a wrong one there is no answer, but an error that shows both numbers. Here somebody forgot to turn the shifts
# around:

try:
    td.reconstruct(seen, (forward, forward), noise=noise, model="gray-light")
except ValueError as error:
    print(error)

# %%
# A class with names and shapes, operators that are composed, and what is taken from other libraries:
# :doc:`/operators`.
