"""Activations replaced by others: those of another trace, given numbers, or a function of what they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._errors import require_choice
from attnwidgets.intervene.activation_sites import (
    SITES,
    ActivationIntervention,
    Site,
    points_of,
    reading_activations,
)
from attnwidgets.intervene.head_selection import (
    chosen_heads,
    describe_heads,
    positions,
    sites_of,
    some_layers,
    spoken,
)
from attnwidgets.intervene.preview import pass_options
from attnwidgets.tracing.layers import is_trace
from attnwidgets.tracing.recording.borrow import borrowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

_NAMES = {"state": "input of", "attention": "attention output of", "mlp": "MLP output of"}
_TABLE = 2  # axes of activations by token: [token, width]


def set_activations(
    model: Any,
    site: Site,
    layer: Any,
    to: Any,
    *,
    tokens: Any = None,
    heads: Any = None,
    stack: str | None = None,
) -> Intervention:
    """Replace activations while a `with` block runs; everything after them follows from the new ones.

        with aw.circuits.set_activations(model, "mlp", 3, 0.0, tokens=[5]):
            model.generate(...)
        trace.rerun(aw.circuits.set_activations(trace, "state", 4, other_trace, tokens=[3]))

    It can be entered together with `aw.ablate_heads` and the other interventions, and acts in plain calls,
    recorded calls and `generate()`.

    Args:
        model: A transformers model, or a trace of one.
        site: "state", the input of the block (the residual stream); "attention" or "mlp", what attention or
            MLP add to the residual stream; "head", the outputs of heads before the output projection.
        layer: Number of a block that attends, several, or a slice; negative numbers count from the last.
        to: A trace by the same model: its activations at the same positions (later positions are not
            changed). Or a number; or numbers [width], [token, width], for heads [head, token, dim], the
            tokens as in `tokens`. Or a function that takes activations [batch, token, width] (for heads
            [batch, head, token, dim]) of all tokens and returns new ones.
        tokens: Positions of the tokens that change; all by default. Generated tokens count on.
        heads: Numbers of the heads that change, for site "head"; all by default.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").

    Returns:
        A context manager; the model is restored on exit, even after an exception.

    Raises:
        ValueError: If the site or the stack is unknown, a position is out of range, heads are given for
            another site, the trace is by another model, or numbers have another shape.
        IndexError: If the layer or head is out of range.
        UnsupportedModelError: If the site is not known in this family of models.

    Source: Vig et al. 2020, section 3 (causal mediation); Meng et al. 2022, section 2 (restored states).

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))
        >>> corrupt.predictions(1)[0].label
        'a'
        >>> patched = corrupt.rerun(aw.circuits.set_activations(corrupt, "state", 1, clean, tokens=[6]))
        >>> patched.predictions(1)[0].label
        'c'
    """
    require_choice("site", site, SITES)
    stack, modules = sites_of(model, stack)
    layers = some_layers(layer, modules)
    chosen: dict[int, tuple[int, ...]] = {}
    if site == "head":
        chosen = chosen_heads(dict.fromkeys(layers, "all" if heads is None else heads), modules)
    elif heads is not None:
        raise ValueError(f"heads is for site 'head', and site is {site!r}; leave it out.")
    places = None if tokens is None else _in_order(tokens, model, stack)
    new = _sources(model, site, layers, to, stack, places)
    changes = {(site, number): Replacement(new[number], places, chosen.get(number)) for number in layers}
    where = "" if places is None else f" at token{'s' * (len(places) != 1)} {spoken(places)}"
    what = (
        f"outputs of {describe_heads(chosen)}"
        if site == "head"
        else f"{_NAMES[site]} layer{'s' * (len(layers) != 1)} {spoken(layers)}"
    )
    said = f"{what}{where} set to {_said(to)}"
    return ActivationIntervention(model, "circuits.set_activations", said, stack, changes)


def _in_order(tokens: Any, model: Any, stack: str) -> tuple[int, ...]:
    """Return positions in the order in which they were named, as rows of given numbers are."""
    if isinstance(tokens, (list, tuple, range)):
        named = [position for token in tokens for position in positions(token, "tokens", model, stack, 0)]
        return tuple(dict.fromkeys(named))
    return tuple(sorted(positions(tokens, "tokens", model, stack, 0)))


def _said(to: Any) -> str:
    if is_trace(to):
        return "what they were in another trace"
    if callable(to):
        return f"{getattr(to, '__name__', 'a function')} of what they were"
    return f"{to:g}" if isinstance(to, (int, float)) else "given numbers"


@dataclass(frozen=True)
class Replacement:
    """Replaces activations of some tokens, and of some heads.

    Args:
        new: Takes activations and positions, as a `Change` does, and returns new activations of the
            same shape, and which tokens have some [batch or 1, token].
        tokens: Positions of the tokens, or None for all.
        heads: Numbers of the heads; None at other sites.
    """

    new: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    tokens: tuple[int, ...] | None
    heads: tuple[int, ...] | None

    def __call__(self, activations: Tensor, positions: Tensor) -> Tensor:
        """Return activations [batch, token, width] or [batch, head, token, dim], some replaced."""
        chosen = torch.ones_like(positions, dtype=torch.bool)
        if self.tokens is not None:
            chosen = torch.isin(positions, torch.tensor(self.tokens, device=positions.device))
        if not bool(chosen.any()):
            return activations
        new, known = self.new(activations, positions)
        mask = (chosen & known)[..., None]
        if self.heads is not None:
            of_heads = torch.zeros(activations.shape[1], dtype=torch.bool, device=mask.device)
            of_heads[list(self.heads)] = True
            mask = mask[:, None] & of_heads[:, None, None]
        return torch.where(mask, new.to(activations), activations)


@dataclass(frozen=True)
class _Numbers:
    """Numbers by position: [token, width] or [head, token, dim], or the same for every token."""

    numbers: Tensor
    tokens: tuple[int, ...] | None

    def __call__(self, activations: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        every = torch.ones_like(positions, dtype=torch.bool)
        if self.numbers.dim() < _TABLE:
            _require_fit(self.numbers, activations)
            return self.numbers.to(activations.device).expand_as(activations), every
        count = self.numbers.shape[-2]
        tokens = torch.arange(count) if self.tokens is None else torch.tensor(self.tokens)
        if len(tokens) != count:
            raise ValueError(f"to has numbers of {count} tokens, and tokens names {len(tokens)}.")
        rows = torch.full((int(tokens.max()) + 1,), -1)
        rows[tokens] = torch.arange(count)
        rows = rows.to(positions.device)
        known = positions < len(rows)
        index = rows[positions.clamp_max(len(rows) - 1)]
        known &= index >= 0
        table = self.numbers.to(activations.device)
        new = table[..., index.clamp_min(0), :]  # [batch, token, width] or [head, batch, token, dim]
        if self.numbers.dim() > _TABLE:
            new = new.transpose(0, 1)
        elif activations.dim() > new.dim():
            new = new[:, None]
        _require_fit(new, activations)
        return new.expand_as(activations), known


def _require_fit(new: Tensor, activations: Tensor) -> None:
    try:
        fits = torch.broadcast_shapes(new.shape, activations.shape) == activations.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"to has numbers of shape {list(new.shape)}, and the activations are {list(activations.shape)}: "
            "[batch, token, width], of heads [batch, head, token, dim]."
        )


@dataclass(frozen=True)
class _Function:
    function: Callable[[Tensor], Tensor]

    def __call__(self, activations: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        new = self.function(activations.clone())
        if not isinstance(new, torch.Tensor) or new.shape != activations.shape:
            got = list(new.shape) if isinstance(new, torch.Tensor) else type(new).__name__
            raise ValueError(
                f"to returned {got}; it must return activations of the shape it takes, "
                f"{list(activations.shape)}."
            )
        return new, torch.ones_like(positions, dtype=torch.bool)


def _sources(
    model: Any, site: Site, layers: Sequence[int], to: Any, stack: str, tokens: tuple[int, ...] | None
) -> Mapping[int, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Return what gives the new activations of every layer."""
    if is_trace(to):
        inner = unwrap(model.model if is_trace(model) else model)
        if to.model is None or unwrap(to.model) is not inner:
            raise ValueError("to is not a trace by this model; make it with aw.trace(model, ...).")
        known = activations_of(to, site, layers, stack)
        return {layer: _Numbers(known[layer], None) for layer in layers}
    if callable(to):
        return dict.fromkeys(layers, _Function(to))
    try:
        numbers = torch.as_tensor(to, dtype=None if isinstance(to, torch.Tensor) else torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"to must be a trace, a number, numbers or a function, not {type(to).__name__}."
        ) from error
    return dict.fromkeys(layers, _Numbers(numbers.detach(), tokens))


def activations_of(trace: Trace, site: Site, layers: Sequence[int], stack: str) -> Mapping[int, Tensor]:
    """Return activations of a trace's input, by layer: [token, width], of heads [head, token, dim].

    The model runs once, as it is now.
    """
    model = unwrap(trace.model)
    kept: dict[int, Tensor] = {}

    def keep(_: Site, layer: int, activations: Tensor) -> None:
        kept[layer] = activations[0].detach().clone()

    places: list[tuple[Site, int]] = [(site, layer) for layer in layers]
    points = points_of(trace, places, stack)
    heads = layers if site == "head" else ()
    with borrowed(model) as twin, reading_activations(twin, trace, stack, points, heads, keep):
        trace.call(twin, trace.inputs, pass_options(model), {})
    return kept
