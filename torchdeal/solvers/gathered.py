"""The samples of a batch that are computed: all at first, then only those that go on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchdeal.solvers.distance import MEMORY
from torchdeal.solvers.result import Evaluation, per_sample_column

# A batch shrinks when at most this part of what is computed goes on: from then on an iteration saves at least a quarter
# of its time. Each size of a batch costs a GPU new plans and, for small images, captures of some milliseconds, about
# what an iteration takes: so it should not shrink each time that a sample ends. Of 64 samples it makes some ten sizes.
GOING_ON = 0.75


class Gathered:
    """The images of the samples that are computed, and their places in the batch.

    Attributes:
        places: where these samples belong, `(n,)`.
        b: their right-hand sides.
        x: their iterates.
        history: their last evaluations. Of these only the images are of n samples; vectors have all B.

    Args:
        b: right-hand sides of the whole batch.
        x: its first iterates.
    """

    def __init__(self, b: Tensor, x: Tensor):
        self.places = np.arange(len(b))
        self.b, self.x, self.history = b, x, list[Evaluation]()
        self._answers = x  # of all samples; right for those that are not computed any more

    def mostly_ended(self, active: np.ndarray) -> bool:
        """Whether so few of the samples that are computed go on, `(B,)`, that the others should be left out."""
        return int(active.sum()) <= GOING_ON * len(self.places)

    def keep(self, samples: np.ndarray) -> None:
        """Go on with these alone, by their places in the batch; they must be among those that are computed."""
        self._answers = self.whole(self.x)
        kept = torch.from_numpy(np.isin(self.places, samples)).to(self.x.device)
        self.places, self.b, self.x = samples, self.b[kept], self.x[kept]
        self.history = [step.of_samples(kept) for step in self.history]

    def go_on(self, now: Evaluation, factor: np.ndarray) -> None:
        """To `T(x)`, and by this factor, `(B,)`, of the movement from the one before further ahead."""
        self.x = now.image
        if self.history:
            back = per_sample_column(torch.from_numpy(-factor[self.places]).to(now.image.dtype), now.image)
            self.x = now.image.lerp(self.history[-1].image, back)  # now + factor (now - before)
        self.history = [*self.history, now][-MEMORY:]

    def whole(self, images: Tensor) -> Tensor:
        """Images of the samples that are computed, and the answers of the others, in their places."""
        if len(self.places) == len(self._answers):
            return images
        return self._answers.index_copy(0, torch.from_numpy(self.places).to(images.device), images)

    def whole_table(self, rows: np.ndarray) -> np.ndarray:
        """A row of each sample, `(B, ...)`; of those that are not computed it is 0."""
        if len(self.places) == len(self._answers):
            return rows
        table = np.zeros((len(self._answers), *rows.shape[1:]))
        table[self.places] = rows
        return table
