r"""
Error bars
==========

How sure is a pixel? With its masks held fixed, the answer is a linear least-squares solution, and such a solution has a
covariance: :math:`\mathrm{noise}^2 \, A^{-1}` with :math:`A = H^T H + \lambda W^T M(x)^2 W`.
"""

import matplotlib.pyplot as plt
import torch
from skimage import data

import torchdeal as td

clean = torch.from_numpy(data.camera()[72:200, 176:304] / 255).float()[None, None]
noisy = clean + 25 / 255 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
rec = td.reconstruct(noisy, sigma=25 / 255, noise=25 / 255, model="gray-light")

deviation = td.uncertainty(rec)
error = (rec.x - clean).abs()

figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
axes[0].imshow(rec.x[0, 0], cmap="gray", vmin=0, vmax=1)
axes[0].set_title("result")
for axis, name, image in ((axes[1], "error bar", deviation), (axes[2], "true error", error)):
    figure.colorbar(axis.imshow(image[0, 0], vmin=0, vmax=0.1), ax=axis)
    axis.set_title(name)
for axis in axes:
    axis.axis("off")
plt.show()

# %%
# Is it true? Here we know the clean picture. If errors were normal, 90 % of the pixels would lie within 1.645
# deviations:

print(f"{float((error < 1.645 * deviation).float().mean()):.1%} of the pixels do")

# %%
# They are estimates. The model may be wrong about what it sees, and an error bar does not know that. Where the
# operator hides detail, as a blur does, the bars are too small. :doc:`/trust` has the measurements, and says when not
# to believe a result.
