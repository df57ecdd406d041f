r"""
Inpainting
==========

Some pixels are missing: :math:`y = m \odot x + n`, where the mask :math:`m` is 1 on known pixels and 0 on missing ones.
"""

import matplotlib.pyplot as plt
import torch
from skimage import data

import torchdeal as td
from torchdeal.metrics import psnr
from torchdeal.operators import Mask
from torchdeal.simulate import measure

clean = torch.from_numpy(data.astronaut()[24:120, 176:272] / 255).float().permute(2, 0, 1)[None]
known = (torch.rand(1, 1, 96, 96, generator=torch.Generator().manual_seed(0)) < 0.4).float()  # 40 % of the pixels
known[..., 66:69, :] = 0  # and a scratch
H = Mask(known)
damaged = measure(clean, H, noise=0.01) * known

rec = td.reconstruct(damaged, H, noise=0.01, model="color-light")
print(rec)

pictures = {"clean": clean, f"{float(known.mean()):.0%} of the pixels": damaged, "inpainted": rec.x}
figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axis, (name, image) in zip(axes, pictures.items(), strict=True):
    axis.imshow(image[0].permute(1, 2, 0).clamp(0, 1))
    axis.set_title(f"{name}, {psnr(image, clean):.2f} dB" if image is rec.x else name)
    axis.axis("off")

# %%
# What is invented
# ----------------
# Nobody measured what is in the holes. An error bar for each pixel tells how much the result rests on its neighbours:
# it is larger in the holes, and largest where the picture has detail, at the eyes. But where the scratch hides the
# lids, the true error is far above the bar: nothing that was measured tells of them. :doc:`error_bars` says what such
# bars are, and what they do not know.

bars = td.uncertainty(rec, probes=16)[0].mean(0)
error = (rec.x - clean)[0].abs().mean(0)
measured = known[0, 0].bool()
print(
    f"mean deviation of known pixels {float(bars[measured].mean()):.3f}, of others {float(bars[~measured].mean()):.3f}"
)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained")
axes[0].imshow(measured, cmap="gray")
axes[0].set_title("known pixels")
for axis, name, image in ((axes[1], "error bar", bars), (axes[2], "true error", error)):
    figure.colorbar(axis.imshow(image, vmin=0, vmax=float(bars.max())), ax=axis)
    axis.set_title(name)
for axis in axes:
    axis.axis("off")
plt.show()
