"""Quality measures of an SAE on states: sparsity (L0), explained variance, dead features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from attnwidgets._gradients import no_grad

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.sae.sae import SAE

_CHUNK = 2**24  # activations in memory at once


class Measures:
    """Running sums over batches of states.

    The explained variance is 1 - sum ||h - h_hat||^2 / sum ||h - mean(h)||^2.
    """

    def __init__(self, d_in: int, d_sae: int) -> None:
        self.tokens = 0
        self._active = 0
        self._missed = 0.0
        self._sum = torch.zeros(d_in, dtype=torch.float64)
        self._squares = 0.0
        self.fired = torch.zeros(d_sae, dtype=torch.bool)

    def add(self, h: Tensor, a: Tensor, reconstruction: Tensor) -> None:
        """Add states [token, d_in], their activations [token, d_sae] and reconstructions [token, d_in]."""
        h = h.cpu().double()  # not every accelerator has doubles
        fires = a != 0
        self.tokens += len(h)
        self._active += int(fires.sum())
        self._missed += float((h - reconstruction.cpu().double()).square().sum())
        self._sum += h.sum(dim=0)
        self._squares += float(h.square().sum())
        self.fired |= fires.any(dim=0).cpu()

    @property
    def l0(self) -> float:
        """Mean number of active features per token."""
        return self._active / max(self.tokens, 1)

    @property
    def explained_variance(self) -> float:
        """Explained share of the states' variance: at most 1; predicting the mean state gives 0."""
        variance = self._squares - float(self._sum.square().sum()) / max(self.tokens, 1)
        return 1 - self._missed / variance if variance > 0 else float("nan")

    @property
    def dead(self) -> int:
        """Number of features that fired on no token."""
        return int((~self.fired).sum())


@no_grad()
def measure(sae: SAE, states: Tensor) -> Measures:
    """Return the measures of an SAE on states [token, d_in], computed in chunks."""
    measures = Measures(sae.d_in, sae.d_sae)
    for h in states.split(max(1, _CHUNK // sae.d_sae)):
        h = h.to(sae.W_enc)  # noqa: PLW2901 - the same states
        a = sae.encode(h)
        measures.add(h, a, sae.decode(a, h))
    return measures
