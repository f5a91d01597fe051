"""Activations replaced by those of a trace, numbers or a function; and attention with weaker sinks.

`set_activations` turns its argument `to` into a function for every layer (`_sources`), which returns the new
activations of the positions that a call computes, and whether it has any for each. `Replacement` applies
them to the chosen tokens and heads within an `ActivationIntervention`. `calibrate_attention` acts on weights
instead.
"""

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
from attnwidgets.intervene.block_heads import sites_of
from attnwidgets.intervene.heads import (
    HeadIntervention,
    chosen_heads,
    describe_heads,
    positions,
    some_layers,
    spoken,
)
from attnwidgets.intervene.preview import pass_options
from attnwidgets.tracing.layers import is_trace
from attnwidgets.tracing.recording.borrow import borrowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from attnwidgets.tracing.interventions import Intervention, Seen
    from attnwidgets.tracing.trace import Trace

_NAMES = {"state": "input of", "attention": "attention output of", "mlp": "MLP output of"}
_TABLE = 2  # axes of activations by token: [token, width]

_PARTS = 3
_LEAST = 1e-6  # share of a row outside its sinks below which nothing is scaled


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
        site: "state", the input of the block (the residual stream); "attention" or "mlp", the output that
            attention or MLP add to the residual stream; "head", the outputs of heads before the output
            projection.
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
        UnsupportedModelError: If the site cannot be located in this family of models.

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
    changed = None if tokens is None else _in_order(tokens, model, stack)
    new = _sources(model, site, layers, to, stack, changed)
    changes = {(site, number): Replacement(new[number], changed, chosen.get(number)) for number in layers}
    where = "" if changed is None else f" at token{'s' * (len(changed) != 1)} {spoken(changed)}"
    replaced = (
        f"outputs of {describe_heads(chosen)}"
        if site == "head"
        else f"{_NAMES[site]} layer{'s' * (len(layers) != 1)} {spoken(layers)}"
    )
    description = f"{replaced}{where} set to {_spelled(to)}"
    return ActivationIntervention(model, "circuits.set_activations", description, stack, changes)


def _in_order(tokens: Any, model: Any, stack: str) -> tuple[int, ...]:
    """Return positions in the order in which they were named, which is that of the rows of `to`."""
    if isinstance(tokens, (list, tuple, range)):
        named = [position for token in tokens for position in positions(token, "tokens", model, stack, 0)]
        return tuple(dict.fromkeys(named))
    return tuple(sorted(positions(tokens, "tokens", model, stack, 0)))


def _spelled(to: Any) -> str:
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
        new, has_new = self.new(activations, positions)
        mask = (chosen & has_new)[..., None]
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
        has_row = positions < len(rows)
        index = rows[positions.clamp_max(len(rows) - 1)]
        has_row &= index >= 0
        table = self.numbers.to(activations.device)
        new = table[..., index.clamp_min(0), :]  # [batch, token, width] or [head, batch, token, dim]
        if self.numbers.dim() > _TABLE:
            new = new.transpose(0, 1)
        elif activations.dim() > new.dim():
            new = new[:, None]
        _require_fit(new, activations)
        return new.expand_as(activations), has_row


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
    """Return the function of the new activations of every layer."""
    if is_trace(to):
        inner = unwrap(model.model if is_trace(model) else model)
        if to.model is None or unwrap(to.model) is not inner:
            raise ValueError("to is not a trace by this model; make it with aw.trace(model, ...).")
        recorded = activations_of(to, site, layers, stack)
        return {layer: _Numbers(recorded[layer], None) for layer in layers}
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

    The model runs once, with its present weights and interventions.
    """
    model = unwrap(trace.model)
    recorded: dict[int, Tensor] = {}

    def record(_: Site, layer: int, activations: Tensor) -> None:
        recorded[layer] = activations[0].detach().clone()

    sites: list[tuple[Site, int]] = [(site, layer) for layer in layers]
    points = points_of(trace, sites, stack)
    heads = layers if site == "head" else ()
    with borrowed(model) as twin, reading_activations(twin, trace, stack, points, heads, record):
        trace.call(twin, trace.inputs, pass_options(model, logits=False), {})
    return recorded


def calibrate_attention(
    model: Any, sinks: Iterable[Any], scale: float = 0.4, *, stack: str | None = None
) -> Intervention:
    """Move attention from sinks to the other keys of the same rows, while a `with` block runs.

        a'_ij = scale a_ij                                  for sinks j of the head
        a'_ij = a_ij (1 - scale s_i) / (1 - s_i)            for others, s_i the row's sum over its sinks

    Rows keep their sums. A row that reads nothing but sinks is not changed. It works in `generate()`: sinks
    are positions, and later tokens are calibrated too. Which heads gain from it the authors choose on texts
    with reference answers, and they leave the first token's sink as it is. Compare with an equal number of
    other positions of the same heads before you believe an effect.

    Args:
        model: A transformers model, or a trace of one.
        sinks: Result of `aw.statistics.attention_sinks(trace)`, or a part of it; or triples (layer,
            head, position).
        scale: Share of their attention that sinks retain, from 0 to 1 (the authors' beta, 0.4).
        stack: Which attention, in models with several stacks ("encoder", "decoder").

    Returns:
        A context manager; the model is restored on exit, even after an exception.

    Raises:
        ValueError: If `scale` or a position is out of range, or sinks are empty.
        IndexError: If the layer or head is out of range.
        TypeError: If a sink has another form.

    Source: Yu et al. 2024, Unveiling and Harnessing Hidden Attention Sinks (ACT), section 4. The authors
    calibrate the sinks of a row when it is computed; here sinks are named before.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> changed = trace.rerun(aw.circuits.calibrate_attention(trace, [(0, 1, 0)], 0.5))
        >>> before, after = (float(run.attention_layer(0)[1, 3, 0]) for run in (trace, changed))
        >>> round(after / before, 3)
        0.5
    """
    if not 0 <= scale <= 1:  # NaN is refused, too
        raise ValueError(f"scale must be from 0 to 1, not {scale!r}.")
    stack, modules = sites_of(model, stack)
    by_head: dict[tuple[int, int], set[int]] = {}
    for sink in sinks:
        layer, head, position = _parts_of(sink)
        chosen = chosen_heads((layer, head), modules)
        key = next((number, heads[0]) for number, heads in chosen.items())
        by_head.setdefault(key, set()).update(positions(position, "sinks", model, stack, 1))
    if not by_head:
        raise ValueError(
            "sinks is empty: pass those of aw.statistics.attention_sinks(trace), or (layer, head, position)."
        )
    heads: dict[int, tuple[int, ...]] = {}
    for layer, head in sorted(by_head):
        heads[layer] = (*heads.get(layer, ()), head)
    columns = {key: frozenset(result) for key, result in by_head.items()}
    description = f"sinks of {describe_heads(heads)} scaled by {scale:g}"
    return HeadIntervention(
        model,
        "circuits.calibrate_attention",
        description,
        stack,
        heads,
        weigh=_Calibration(columns, float(scale)),
    )


def _parts_of(sink: Any) -> tuple[Any, Any, Any]:
    """Return layer, head and position of a `Sink` or of three numbers."""
    if all(hasattr(sink, name) for name in ("layer", "head", "position")):
        if sink.head is None:
            raise TypeError("sinks are those of heads; this map has none: use a trace.")
        return sink.layer, sink.head, sink.position
    if not isinstance(sink, (tuple, list)) or len(sink) != _PARTS:
        raise TypeError(f"a sink is (layer, head, position), not {sink!r}.")
    return sink[0], sink[1], sink[2]


@dataclass(frozen=True)
class _Calibration:
    """Scales the sinks of rows; see `calibrate_attention`.

    Args:
        sinks: Positions by (layer, head).
        scale: Share of their attention that they retain.
    """

    sinks: Mapping[tuple[int, int], frozenset[int]]
    scale: float

    def __call__(self, seen: Seen, weights: Tensor, heads: list[int]) -> Tensor:
        """Return weights [batch, head, query, key] with some heads calibrated."""
        new = weights
        for head in heads:
            columns = seen.keys(self.sinks[seen.layer, head])
            if not columns:
                continue
            row = weights[:, head]
            mass = row[..., columns].sum(-1, keepdim=True)
            # Summed by itself: where sinks are strong, a difference of sums would be rounding.
            others = torch.ones(row.shape[-1], dtype=torch.bool, device=row.device)
            others[columns] = False
            rest = row[..., others].sum(-1, keepdim=True)
            total = mass + rest
            free = rest > _LEAST * total
            factor = torch.where(free, (total - self.scale * mass) / torch.where(free, rest, 1.0), 1.0)
            changed = row * factor
            changed[..., columns] = torch.where(free, self.scale * row[..., columns], row[..., columns])
            if new is weights:
                new = weights.clone()
            new[:, head] = changed
        return new
