r"""
The method in pictures
======================

DEAL looks for an image that explains the measurements and has little left that looks like noise. It begins with no
image at all, and repeats one step:

.. math:: x_{k+1} = \arg\min_x \; \|H x - y\|^2 + \lambda \, \|M(x_k) \, W x\|^2

:math:`W` is a set of small learned filters, which respond to detail. :math:`M(x_k)` is a mask, a number between 0.01
and 1 for each pixel and filter, from a small network that looks at the image found so far. Near 1 it says: this
response is noise, hold it down. Near 0.01 it says: this is structure, keep it. With the mask held fixed, a step is a
linear least-squares problem. Where the image no longer changes, the run ends: that is the fixed point.
"""

import matplotlib.pyplot as plt
import torch
from matplotlib.animation import FuncAnimation
from matplotlib.colors import LogNorm
from skimage import data

import torchdeal as td
from torchdeal.explain import telling_pixels

clean = torch.from_numpy(data.camera()[72:200, 176:304] / 255).float()[None, None]
noisy = clean + 25 / 255 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))

rec = td.reconstruct(noisy, sigma=25 / 255, model="gray-light", keep_path=True)
print(rec)

# %%
# The fixed point, step by step
# -----------------------------
# On the left the iterates, in the middle what the mask says about each of them (its mean over all filters), on the
# right how far each iterate is from the last one. The outlines of head, ear and camera turn dark in the mask: from
# then on they are spared.

why = td.explain(rec)
masks = [why.at(x).mean_mask[0] for x in rec.path]
distances = [float((x - rec.x).norm() / rec.x.norm()) for x in rec.path[:-1]]

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
iterate = left.imshow(rec.path[0][0, 0], cmap="gray", vmin=0, vmax=1)
mask = middle.imshow(masks[0], cmap="gray", vmin=0, vmax=1)
for axis, title in ((left, "image"), (middle, "mean mask")):
    axis.set_title(title)
    axis.axis("off")
right.semilogy(distances, color="0.8")
(line,) = right.semilogy([], [], "o-", markersize=3)
right.set(title="distance to the last image", xlabel="outer iteration")


def show(k):
    """Draw iterate k."""
    iterate.set_data(rec.path[k][0, 0])
    mask.set_data(masks[k])
    line.set_data(range(min(k + 1, len(distances))), distances[: k + 1])
    left.set_title(f"image {k}")


last = len(rec.path) - 1
animation = FuncAnimation(figure, show, [*range(last + 1), *[last] * 4], interval=500)

# %%
# What the mask does
# ------------------
# The responses of the filters, the mask, and what is left of the responses after it. Only what is left is penalised.
# The left and the right picture have the same logarithmic scale: along edges, where responses are largest, hardly
# anything is left.

response, mean_mask, adapted = (values[0] for values in why.means)
scale = LogNorm(float(adapted.quantile(0.01)), float(response.max()))

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
axes[0].imshow(response, norm=scale)
axes[0].set_title("responses, $(W x)^2$")
axes[1].imshow(mean_mask, cmap="gray", vmin=0, vmax=1)
axes[1].set_title("mask, $M(x)$")
axes[2].imshow(adapted, norm=scale)
axes[2].set_title("penalised, $(M(x) \\, W x)^2$")
for axis in axes:
    axis.axis("off")

# %%
# What a pixel is made of
# -----------------------
# At the fixed point each pixel is a weighted mean of noisy pixels, and the weights can be computed. The number says:
# as little noise as in the plain mean of so many pixels. In a flat place there are many. On an edge the mean runs
# along the edge, not across it. Weights are on a square-root scale, so that small ones are seen.

places = telling_pixels(rec.x[0, 0].numpy(), margin=16)

figure, axes = plt.subplots(1, 4, figsize=(9, 2.7), layout="constrained")
axes[0].imshow(rec.x[0, 0], cmap="gray", vmin=0, vmax=1)
axes[0].set_title("result")
for axis, (name, pixel) in zip(axes[1:], places.items(), strict=True):
    mean = why.row(*pixel)
    axes[0].plot(pixel[1], pixel[0], "r+", markersize=12)
    rows, columns = (slice(place - 16, place + 17) for place in pixel)
    axis.imshow(mean.weights[0, 0, rows, columns].clamp(0).sqrt(), cmap="gray")
    axis.set_title(f"{name}: {float(mean.averaged[0]):.0f} pixels")
for axis in axes:
    axis.axis("off")
plt.show()

# sphinx_gallery_thumbnail_number = 2

# %%
# The equations, and what a result means, are in :doc:`/method`.
