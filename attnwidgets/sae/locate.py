"""Find the hook point an SAE was trained on: one pass measures its explained variance at each of them."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.sae.corpus import batches, counted_states
from attnwidgets.sae.measures import measure
from attnwidgets.tracing.hooks.hook import hooked
from attnwidgets.tracing.hooks.hook_point import hook_name, hook_points_of_blocks, resolve_hook_point
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from attnwidgets.sae.corpus import Corpus
    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

_TOKENS = 512  # most tokens read, with padding
_BETTER = 0.05  # gain in explained variance that shows the SAE belongs to another hook point


class VarianceAt(NamedTuple):
    """The share of variance an SAE explains at a hook point, and how the states there were read."""

    variance: float
    how: str


def better_neighbour(sae: SAE, model: nn.Module, corpus: Corpus, hook_point: HookPoint) -> str:
    """Return a warning if an SAE explains more of the states one layer before or after, else "".

    Args:
        sae: The SAE.
        model: The model, borrowed.
        corpus: Texts to measure on.
        hook_point: Where the SAE's files say it belongs.
    """
    stack, dot, rest = hook_name(model, hook_point).partition(".")
    number, _, hook = rest.partition(".")
    if not dot or not number.isdecimal():
        return ""
    candidates = [hook_point]
    for step in (-1, 1):
        with suppress(ValueError):  # no such layer
            candidates.append(resolve_hook_point(model, f"{stack}.{int(number) + step}.{hook}"))
    states = _fitting(sae, _states(model, corpus, candidates))
    explained = {name: measure(sae, h).explained_variance for name, h in states.items()}
    best = max(explained, key=lambda name: explained[name], default="")
    if hook_point.name not in explained or explained[best] <= explained[hook_point.name] + _BETTER:
        return ""
    return (
        f"at {hook_point.name} this SAE explains {explained[hook_point.name]:.2f} of the variance, and at "
        f"{best} {explained[best]:.2f}: it may belong to another layer."
    )


def best_hook_point(sae: SAE, model: nn.Module, corpus: Corpus, hook_point: HookPoint) -> VarianceAt | None:
    """Return the hook point, with or without centred states, with the highest explained variance.

    None if no other one is clearly better than `hook_point`. For the arguments see `better_neighbour`.
    """
    others = [other for other in hook_points_of_blocks(model) if other.name != hook_point.name]
    states = _fitting(sae, _states(model, corpus, [hook_point, *others]))
    here = measure(sae, states[hook_point.name]).explained_variance if hook_point.name in states else 0.0
    best, best_score = None, max(here, 0.0) + _BETTER
    for name, h in progress(states.items(), "locating the SAE's hook point", len(states)):
        for centre in (False, True) if not sae.centre else (True,):
            newly_centred = centre and not sae.centre
            explained = measure(sae.replaced(centre=centre), h).explained_variance
            score = explained - _BETTER * newly_centred  # centring has to help clearly
            if score > best_score:
                best_score = score
                best = VarianceAt(explained, f"at {name}" + " with centre=True" * newly_centred)
    return best


def _fitting(sae: SAE, states: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: h for name, h in states.items() if h.shape[-1] == sae.d_in}


def _states(model: nn.Module, corpus: Corpus, hook_points: Iterable[HookPoint]) -> dict[str, Tensor]:
    """Return the states [token, width] of tokens that count, by hook point.

    Empty if a hook point does not see one tensor of states per token.
    """
    windows = next(batches(corpus.windows(), _TOKENS))
    states_by_name: dict[str, Tensor] = {}

    def keep(name: str, states: Tensor) -> None:
        states_by_name[name] = counted_states(states.detach(), windows)

    with ExitStack() as stack:
        for hook_point in hook_points:
            stack.enter_context(hooked(model, hook_point, partial(keep, hook_point.name)))
        try:
            with no_grad():
                model(**corpus.inputs(windows))
        except UnsupportedModelError:
            return {}
    return states_by_name
