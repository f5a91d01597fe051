"""The states that a head reads as sums of an SAE's features, and the share of a score in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets.circuits.scores.cell import NAME
from attnwidgets.sae.check import hook_point_of
from attnwidgets.sae.corpus_statistics.stats import FeatureStats
from attnwidgets.sae.features import states_at
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.tracing.algebra.blocks import tolerance
from attnwidgets.tracing.algebra.query_key import exact
from attnwidgets.tracing.algebra.residual_parts import StateParts, Written
from attnwidgets.tracing.hooks.hook_point import HookPoint, hook_name
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.borrow import unwrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.circuits.scores.result import Why
    from attnwidgets.explanations.mixing.attention import Float

FEATURE = "feature"
ERROR = "error"
BIAS = "decoder bias"
APART = ("constant", ERROR)
"""Kinds of parts that no component, token or feature writes: they are not drawn at random."""
_HELD_BYTES = 2**31  # of the shares of pairs
_NOTABLE = 0.01  # of a foil: special tokens with less of it are not mentioned


class Described(NamedTuple):
    """A score by whether features describe it.

    Attributes:
        features: The pairs of two features.
        constant: The pairs with the decoder's bias or with "constant", and without the error.
        error: The pairs with the SAE's reconstruction error.
    """

    features: float
    constant: float
    error: float


@dataclass(frozen=True)
class FeatureParts(StateParts):
    """The states that a head reads, by the features of an SAE of these states.

    Args:
        sae: The SAE.
        stats: Statistics of it, by which features are called; or None.
        states: The states [token, width].
        activations: Its raw activations on them [token, d_sae].
        features: The features that are parts, in ascending order; `of` chooses them.
    """

    sae: SAE
    stats: FeatureStats | None
    states: Tensor
    activations: Tensor
    features: tuple[int, ...] = ()

    def of(self, tokens: Sequence[int]) -> FeatureParts:
        """Return the parts of some tokens: the features that are active on any of them.

        Raises:
            ValueError: If there are so many that the shares of all pairs take more than 2 GB.
        """
        active = self.activations[list(tokens)].ne(0).any(0).nonzero().flatten().tolist()
        if len(active) ** 2 * 8 > _HELD_BYTES:
            raise ValueError(
                f"{NAME} by feature holds a share for every pair of {len(active):,} active features, more "
                "than 2 GB; take a shorter text, or one token as the foil."
            )
        return replace(self, features=tuple(active))

    @cached_property
    def names(self) -> tuple[Written, ...]:
        """The features, the decoder's bias and the reconstruction error."""
        return (
            *(Written(self._name(feature), FEATURE) for feature in self.features),
            Written(BIAS, "constant"),
            Written(ERROR, ERROR),
        )

    def _name(self, feature: int) -> str:
        called = "" if self.stats is None else self.stats.called(feature)
        return f"feature {feature} ({called})" if called else f"feature {feature}"

    def at(self, tokens: Sequence[int]) -> Tensor:
        """Return the parts of some tokens' states [part, token, width]."""
        rows = list(tokens)
        with no_grad():
            added = self.sae.added(self.states[rows], self.activations[rows], self.features)
        return torch.cat([added, (self.states[rows] - added.sum(0))[None]])

    def explained(self, tokens: Sequence[int]) -> float:
        """Return the share of the variance of some tokens' states that the SAE reconstructs, up to 1."""
        states, rows = self.states[list(tokens)], self.activations[list(tokens)]
        with no_grad():
            error = states - exact(self.sae.decode(rows, states))
        return 1 - float(error.square().sum() / (states - states.mean(0)).square().sum().clamp_min(1e-30))


def feature_parts(cell: Cell, sae: Any, stats: FeatureStats | None = None) -> FeatureParts:
    """Return the states that a cell's head reads by the features of an SAE.

    Args:
        cell: The cell.
        sae: An SAE, or any object that `SAE.from_object` takes.
        stats: Statistics of it, for the names of features.

    Raises:
        TypeError: If `sae` is no SAE, or `stats` something else.
        ValueError: If the SAE reads other states than the head, or `stats` are of another SAE.
    """
    sae = as_sae(sae)
    if stats is not None and not isinstance(stats, FeatureStats):
        raise TypeError(f"stats must be the result of aw.feature_stats, not {type(stats).__name__}.")
    if stats is not None and stats.d_sae != sae.d_sae:
        raise ValueError(f"stats are of an SAE with {stats.d_sae} features; this one has {sae.d_sae}.")
    states = cell.reader.states
    _require_read(cell, sae, states)
    with no_grad():
        activations = sae.encode(states)
    return FeatureParts(sae, stats, states, activations)


def _require_read(cell: Cell, sae: SAE, states: Tensor) -> None:
    """Raise ValueError unless the states at an SAE's hook point are those that the head reads."""
    model, block = unwrap(cell.trace.model), cell.blocks[-1]
    path = next(name for name, module in named_modules(block.model).items() if module is block.module)
    reads = hook_name(model, HookPoint(f"{path}.input", path, "input", residual=True, block=cell.layer))
    if not sae.site:
        raise ValueError(
            f"by: the SAE does not say which states it reads; if they are those that head {cell.layer}."
            f"{cell.head} reads, set sae.site = {reads!r}."
        )
    point = hook_point_of(sae, model)
    read = exact(states_at(cell.trace, point))
    is_same = read.shape == states.shape and float((read - states).norm()) <= tolerance(
        block.call.dtype
    ) * float(states.norm())
    if not is_same:
        other = "" if point.block is None else ", or a head of another layer"
        raise ValueError(
            f"by: this SAE reads {sae.site!r}; head {cell.layer}.{cell.head} reads {reads!r}. Take an SAE of "
            f"these states{other}."
        )


def leaves_special_out(sae: SAE) -> bool:
    """Return whether an SAE is known to be trained without special tokens."""
    return bool(sae.metadata.get("exclude_special_tokens"))


def caveat_of(cell: Cell, sae: SAE | None, weights: Float) -> str:
    """Return in words how much of a foil is special tokens that an SAE was not trained on, or ""."""
    special = np.asarray(cell.trace.axes(cell.stack)[1].units["token"].special, dtype=bool)
    share = float(weights[special].sum())
    if sae is None or not leaves_special_out(sae) or share < _NOTABLE:
        return ""
    return (
        f"Special tokens, on which this SAE was not trained, are {share:.0%} of the foil; foil='words' "
        "leaves them out."
    )


def described_of(why: Why) -> Described | None:
    """Return how much of a score features describe; None for other parts."""
    kinds = np.array([part.kind for part in why.written])
    if FEATURE not in kinds:
        return None
    feature = np.logical_and.outer(kinds == FEATURE, kinds == FEATURE)
    error = np.logical_or.outer(kinds == ERROR, kinds == ERROR)
    return Described(*(float(why.pairs[pairs].sum()) for pairs in (feature, ~(feature | error), error)))
