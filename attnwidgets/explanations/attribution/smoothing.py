"""SmoothGrad: gradients averaged over copies of the input with noise.

Smilkov et al. 2017, SmoothGrad: removing noise by adding noise, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

SMOOTHGRAD_PAPER = "Smilkov et al. 2017, SmoothGrad: removing noise by adding noise"


@dataclass(frozen=True)
class Smoothing:
    """Normal noise that is added to an input, draw by draw.

    Attributes:
        noise: Standard deviation, as a share of the input's range (its largest number less its smallest).
        draws: Number of noisy copies.
        seed: Seed of the noise. A draw is the same whenever it is made again.
    """

    noise: float
    draws: int
    seed: int

    def __post_init__(self) -> None:
        if not (self.noise >= 0 and np.isfinite(self.noise)):
            raise ValueError(f"noise must be a share of the input's range, 0 or above, not {self.noise}.")
        if self.draws < 1:
            raise ValueError(f"draws must be at least 1, not {self.draws}.")

    @property
    def options(self) -> dict[str, Any]:
        """The options of a result."""
        return {"noise": self.noise, "draws": self.draws, "seed": self.seed} if self.noise else {}

    @property
    def count(self) -> int:
        """Number of copies: one without noise."""
        return self.draws if self.noise else 1

    def copies(self, values: Tensor, draws: slice) -> Tensor:
        """Return noisy copies [draw, ...] of values [...]."""
        import torch

        if not self.noise:
            return values[None]
        spread = self.noise * float((values.max() - values.min()).detach())
        numbers = range(*draws.indices(self.draws))
        noise = np.stack(
            [
                np.random.default_rng((self.seed, draw)).standard_normal(tuple(values.shape))
                for draw in numbers
            ]
        )
        return values[None] + spread * torch.as_tensor(noise).to(values)


NOT_SMOOTHED = Smoothing(0.0, 1, 0)
