"""aw.circuits.calibrate_attention: sinks of chosen heads get less attention, the rest of each row more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.intervene.head_selection import (
    HeadIntervention,
    chosen_heads,
    describe_heads,
    positions,
    sites_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from attnwidgets.tracing.interventions import Intervention, Seen

_PARTS = 3
_LEAST = 1e-6  # share of a row outside its sinks below which nothing is scaled


def calibrate_attention(
    model: Any, sinks: Iterable[Any], scale: float = 0.4, *, stack: str | None = None
) -> Intervention:
    """Take attention from sinks and give it to what else the same rows read, while a `with` block runs.

        a'_ij = scale a_ij                                  for sinks j of the head
        a'_ij = a_ij (1 - scale s_i) / (1 - s_i)            for others, s_i the row's sum over its sinks

    Rows keep their sums. A row that reads nothing but sinks is not changed. It works in `generate()`: sinks
    are positions, and later tokens are calibrated too. Which heads gain from it the authors choose on texts
    with known answers, and they leave the first token's sink as it is. Compare with an equal number of other
    positions of the same heads before you believe an effect.

    Args:
        model: A transformers model, or a trace of one.
        sinks: Result of `aw.statistics.attention_sinks(trace)`, or a part of it; or places (layer, head,
            position).
        scale: What sinks keep of their attention, from 0 to 1 (the authors' beta, 0.4).
        stack: Which attention, in models with several stacks ("encoder", "decoder").

    Returns:
        A context manager; the model is restored on exit, even after an exception.

    Raises:
        ValueError: If `scale` is out of range, a position is, or sinks are empty.
        IndexError: If the layer or head is out of range.
        TypeError: If a sink has another form.

    Source: Yu et al. 2024, Unveiling and Harnessing Hidden Attention Sinks (ACT), section 4. The authors
    calibrate what a row holds when it is computed; here sinks are named before.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> changed = trace.rerun(aw.circuits.calibrate_attention(trace, [(0, 1, 0)], 0.5))
        >>> before, after = (float(of.attention_layer(0)[1, 3, 0]) for of in (trace, changed))
        >>> round(after / before, 3)
        0.5
    """
    if not 0 <= scale <= 1:  # NaN is refused, too
        raise ValueError(f"scale must be from 0 to 1, not {scale!r}.")
    stack, modules = sites_of(model, stack)
    by_head: dict[tuple[int, int], set[int]] = {}
    for sink in sinks:
        layer, head, position = _place(sink)
        chosen = chosen_heads((layer, head), modules)
        place = next((number, heads[0]) for number, heads in chosen.items())
        by_head.setdefault(place, set()).update(positions(position, "sinks", model, stack, 1))
    if not by_head:
        raise ValueError(
            "sinks is empty: pass those of aw.statistics.attention_sinks(trace), or (layer, head, position)."
        )
    heads: dict[int, tuple[int, ...]] = {}
    for layer, head in sorted(by_head):
        heads[layer] = (*heads.get(layer, ()), head)
    columns = {place: frozenset(found) for place, found in by_head.items()}
    said = f"sinks of {describe_heads(heads)} scaled by {scale:g}"
    return HeadIntervention(
        model, "circuits.calibrate_attention", said, stack, heads, weigh=_Calibration(columns, float(scale))
    )


def _place(sink: Any) -> tuple[Any, Any, Any]:
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
        scale: What they keep.
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
