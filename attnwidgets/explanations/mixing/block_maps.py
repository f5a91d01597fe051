"""Maps that are measured on a model's blocks: what they share, whatever is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._selecting import pick
from attnwidgets.explanations.results.joint_units import Grid, unit_grid
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from torch import Tensor


NO_RESIDUAL = (
    "the residual connection is of no token that is read here: 'res' is 'attn', and 'res_ln' norms what "
    "attention gives alone"
)
NO_NORM_AFTER = (
    "this model's blocks norm before they mix and have no norm after the residual connection, so the "
    "numbers are those of the residual sum"
)


def described_stack(trace: TraceLike, stack: str | None, method: str) -> str:
    """Return the stack that is meant, which must lie in blocks that are described.

    Raises:
        TypeError: Where `trace` is no trace.
        ValueError: Where there is no such stack, or no description fits its blocks.
    """
    from attnwidgets.tracing.algebra.block_runs import described

    require_trace(trace, method)
    stack = resolve_stack(trace, stack)
    described(trace, stack, method)
    return stack


def own_stack(trace: TraceLike, stack: str | None, method: str, *, what: str = "") -> str:
    """Return the stack that is meant, of described blocks that attend to themselves and to nothing else.

    `what` names the option that asks for such blocks, where it is not the method itself.

    Raises:
        TypeError: Where `trace` is no trace.
        ValueError: Where there is no such stack, its blocks read another sequence, or no description fits
            them.
    """
    require_trace(trace, method)
    stack = resolve_stack(trace, stack)
    reading = [name for name in ("decoder", "cross") if "cross" in trace.stacks]
    if stack in reading:
        own = [name for name in trace.stacks if name not in reading]
        raise ValueError(
            f"{what or method} is of blocks of one attention and a feed-forward layer, and the blocks of "
            f"stack {stack!r} also read another sequence; pass stack={' or '.join(map(repr, own))}."
        )
    return described_stack(trace, stack, method)


def block_map(
    trace: TraceLike,
    measure: Callable[[int], Any],
    *,
    method: str,
    title: str,
    paper: str,
    options: Mapping[str, Any],
    stack: str,
    layers: int | Iterable[int] | slice | None,
    stochastic: bool | None,
    per_head: bool = False,
    warning: str = "",
    kind: type[MixingMap] = MixingMap,
    grid: Grid | None = None,
) -> MixingMap:
    """Return a lazy map of what `measure` says of a layer, with everything it carries on from its trace.

    `kind` is the class of the map, and takes from its `lazy` what `measure` returns; `grid` is the unit that
    this is in, tokens by default.
    """
    grid = unit_grid(trace, stack, None) if grid is None else grid
    numbers = tuple(range(trace.n_layers(stack)))
    common = provenance_of(trace, stack, method, paper=paper, options=options)
    common["warning"] = "; ".join(note for note in (common["warning"], warning) if note)
    common["provenance"]["title"] = title

    def compute(number: int) -> Any:
        import torch

        with torch.no_grad():
            return measure(number)

    return kind.lazy(
        compute,
        query=grid.query,
        key=grid.key,
        layers=numbers if layers is None else pick(layers, numbers, "layer"),
        heads=range(trace.n_heads(stack)) if per_head else None,
        unit=grid.name,
        causal=grid.causal,
        stochastic=stochastic,
        runs_model=True,
        **common,
    )


def shares(values: Tensor) -> Tensor:
    """Return rows divided by their sum, in float64; a row that sums to zero stays zero."""
    values = values.to("cpu").double()
    totals = values.sum(-1, keepdim=True)
    return values / totals.masked_fill(totals == 0, 1.0)


def in_unit(values: Tensor, grid: Grid) -> np.ndarray[Any, Any]:
    """Return rows of tokens [head?, token, column] averaged over the tokens of a unit."""
    return grid.rows(values.detach().to("cpu").numpy())
