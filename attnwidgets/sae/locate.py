"""Where else in a model an SAE's states may be: one pass shows what it would explain at every place."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from attnwidgets._progress import progress
from attnwidgets.sae.corpus import batches, by_token, counts_mask
from attnwidgets.sae.measures import measure
from attnwidgets.tracing.hooks.hook import hooked
from attnwidgets.tracing.hooks.hook_point import hook_name, hook_points_of_blocks, resolve_hook_point
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from attnwidgets.sae.corpus import Corpus
    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

_TOKENS = 512  # that are read at most, with padding
_BETTER = 0.05  # so much more of the variance is explained elsewhere only where the SAE is of that place


class VarianceAt(NamedTuple):
    """What an SAE explains of the variance at a place, and in which way it was read there."""

    variance: float
    how: str


def beside(sae: SAE, model: nn.Module, corpus: Corpus, site: HookPoint) -> str:
    """Return in words that an SAE explains more of the states one layer before or after, or "".

    Args:
        sae: Whose place is asked.
        model: Borrowed.
        corpus: What it reads.
        site: Where the SAE is said to be.
    """
    stack, dot, rest = hook_name(model, site).partition(".")
    number, _, hook = rest.partition(".")
    if not dot or not number.isdecimal():
        return ""
    near = [_resolved(model, f"{stack}.{int(number) + step}.{hook}") for step in (-1, 1)]
    states = _states(model, corpus, [site, *(place for place in near if place is not None)])
    explained = {name: measure(sae, h).explained_variance for name, h in states.items() if _fits(sae, h)}
    if site.name not in explained:
        return ""
    best = max(explained, key=lambda name: explained[name])
    if explained[best] <= explained[site.name] + _BETTER:
        return ""
    return (
        f"at {site.name} this SAE explains {explained[site.name]:.2f} of the variance, and at {best} "
        f"{explained[best]:.2f}: it may be of another layer."
    )


def elsewhere(sae: SAE, model: nn.Module, corpus: Corpus, site: HookPoint) -> VarianceAt | None:
    """Return the place, and with or without a centred stream, where most is explained; None if it is `site`.

    Args: see `beside`.
    """
    others = [place for place in hook_points_of_blocks(model) if place.name != site.name]
    states = _states(model, corpus, [site, *others])
    here = measure(sae, states[site.name]).explained_variance if site.name in states else 0.0
    least = max(here, 0.0) + _BETTER
    best: tuple[float, VarianceAt] | None = None
    for name, h in progress(states.items(), "looking for the place of the SAE", len(states)):
        if not _fits(sae, h):
            continue
        for centre in (False, True) if not sae.centre else (True,):
            more = centre and not sae.centre
            found = measure(sae.replaced(centre=centre), h).explained_variance
            counted = found - _BETTER * more  # a stack is centred only where that helps
            if counted > (best[0] if best else least):
                best = counted, VarianceAt(found, f"at {name}" + " with centre=True" * more)
    return best[1] if best else None


def _fits(sae: SAE, states: Tensor) -> bool:
    return states.shape[-1] == sae.d_in


def _resolved(model: nn.Module, name: str) -> HookPoint | None:
    try:
        return resolve_hook_point(model, name)
    except ValueError:
        return None


def _states(model: nn.Module, corpus: Corpus, places: Iterable[HookPoint]) -> dict[str, Tensor]:
    """Return the states [token, width] of tokens that count, by place; none where one has no such states."""
    windows = next(batches(corpus.windows(), _TOKENS))
    found: dict[str, Tensor] = {}

    def keep(name: str, states: Tensor) -> None:
        rows = by_token(states.detach(), windows)
        found[name] = rows[counts_mask(windows, rows.shape[1], rows.device)]

    with ExitStack() as stack:
        for place in places:
            stack.enter_context(hooked(model, place, partial(keep, place.name)))
        try:
            with torch.no_grad():
                model(**corpus.inputs(windows))
        except UnsupportedModelError:
            return {}
    return found
