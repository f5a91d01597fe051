"""Maps measured on a model's blocks: checks of their options, and the lazy map itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._selecting import pick
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)
from attnwidgets.explanations.results.units import Grid, unit_grid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from torch import Tensor

    from attnwidgets.explanations.results.lazy_layers import RowFunction

NO_RESIDUAL = (
    "the residual connection belongs to none of the tokens read here: 'res' equals 'attn', and 'res_ln' "
    "normalises the attention output alone"
)
NO_NORM_AFTER = (
    "this model's blocks norm before they mix and have no norm after the residual connection, so the "
    "numbers are those of the residual sum"
)

_POWERS = {"l1": 1, "l2": 2}
# Added to every component by torch.nn.functional.pairwise_distance, whose default the authors' code keeps.
_AUTHORS_SHIFT = 1e-6


def distance_options(distance: str, compat: str | None, chunk_size: int | None) -> tuple[int, float]:
    """Return the power of a distance ("l1", "l2") and the shift added to differences, the options checked.

    Raises:
        ValueError: For an unknown distance or compat, or a chunk_size below 1.
    """
    require_choice("distance", distance, tuple(_POWERS))
    require_choice("compat", compat, ("authors", None))
    require_chunk_size(chunk_size)
    return _POWERS[distance], _AUTHORS_SHIFT if compat == "authors" else 0.0


def require_chunk_size(chunk_size: int | None) -> None:
    """Raise a ValueError if a chunk size is below 1."""
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}.")


def chosen_layers(
    trace: TraceLike, stack: str, layers: int | Iterable[int] | slice | None, *, measured: bool = False
) -> tuple[int, ...]:
    """Return the numbers of the layers that `layers` selects; all for None.

    Layers are those of attention; with `measured`, all blocks whose mixing was recorded.

    Raises:
        IndexError: If a layer is out of range.
    """
    numbers = tuple(trace.mixing_layers(stack) if measured else trace.layers(stack))
    return numbers if layers is None else pick(layers, numbers, "layer")


def measured_stack(trace: TraceLike, stack: str | None, method: str, *, alone: str = "") -> str:
    """Return the stack to use, whose blocks are described, or whose mixing of tokens was recorded.

    Arguments and errors are those of `described_stack`.
    """
    from attnwidgets.tracing.mixers.runs import is_described

    require_trace(trace, method)
    stack = resolve_stack(trace, stack)
    table: Any = getattr(trace, "stack_table", {}).get(stack)
    if table is not None and table.without_attention:
        return stack
    reads_other = stack in ("decoder", "cross") and "cross" in trace.stacks
    if reads_other or getattr(trace, "model", None) is None or table is None or is_described(trace, stack):
        return described_stack(trace, stack, method, alone=alone)
    if not table.mixing_numbers:
        trace.n_heads(stack)  # raises an error that says why
    return stack


def described_stack(trace: TraceLike, stack: str | None, method: str, *, alone: str = "") -> str:
    """Return the stack to use, which must have blocks that a description fits.

    Args:
        trace: A trace made by `aw.trace`.
        stack: The stack's name; None for the trace's default.
        method: The method's name, for messages.
        alone: The method or option that needs blocks with self-attention only; "" if none does.

    Raises:
        TypeError: If `trace` is not a trace.
        ValueError: If the stack is unknown, its blocks read another sequence despite `alone`, or no
            description fits them.
    """
    from attnwidgets.tracing.algebra.block_runs import require_description

    require_trace(trace, method)
    stack = resolve_stack(trace, stack)
    reading = ("decoder", "cross") if "cross" in trace.stacks else ()
    if alone and stack in reading:
        names = " or ".join(repr(name) for name in trace.stacks if name not in reading)
        raise ValueError(
            f"{alone} needs blocks with self-attention only, and the blocks of stack {stack!r} also read "
            f"another sequence; pass stack={names}."
        )
    require_description(trace, stack, method)
    return stack


def no_norm_note(trace: TraceLike, stack: str, method: str) -> str:
    """Return a note for blocks that have no norm after the residual connection; "" for post-norm blocks."""
    from attnwidgets.tracing.algebra.block_runs import norms_last
    from attnwidgets.tracing.mixers.runs import is_described

    # `mixed_parts` refuses other blocks in which a norm follows.
    return "" if is_described(trace, stack) and norms_last(trace, stack, method) else NO_NORM_AFTER


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
    notes: Iterable[str] = (),
    kind: type[MixingMap] = MixingMap,
    grid: Grid | None = None,
    measured: bool = False,
    signed: bool = False,
    rows: RowFunction | None = None,
    on_demand: bool = True,
    facts: Mapping[str, Any] | None = None,
) -> MixingMap:
    """Return a lazy map whose layers `measure` computes, with the provenance of its trace.

    `kind` is the class of the map, whose `lazy` accepts the results of `measure`. `grid` is the unit of the
    map, tokens by default, and `rows` computes some rows of it without running the model. With `measured`,
    the map has a layer for every block whose mixing was recorded.
    """
    grid = unit_grid(trace, stack, None) if grid is None else grid
    common = provenance_of(
        trace, stack, method, paper=paper, options=options, notes=notes, attention=not measured, facts=facts
    )
    common["provenance"]["title"] = title

    def compute(number: int) -> Any:

        with no_grad():
            return measure(number)

    return kind.lazy(
        compute,
        query=grid.query,
        key=grid.key,
        layers=chosen_layers(trace, stack, layers, measured=measured),
        heads=range(_most_heads(trace, stack, measured=measured)) if per_head else None,
        unit=grid.name,
        causal=grid.causal,
        stochastic=stochastic,
        signed=signed,
        runs_model=rows is None,
        on_demand=on_demand,
        row_fn=rows,
        **common,
    )


def _most_heads(trace: TraceLike, stack: str, *, measured: bool) -> int:
    """Return the largest number of heads of a layer."""
    attending = int(trace.n_heads(stack)) if trace.layers(stack) else 1
    anatomy: Any = getattr(trace, "anatomy", None)
    if not measured or anatomy is None:
        return attending
    mixers = (block.mapped for block in anatomy.stacks[stack])
    return max(1, *(sum(max(mixer.mixing_heads, 1) for mixer in of_block) for of_block in mixers))


def shares(values: Tensor) -> Tensor:
    """Return rows divided by their sum, in float64; a row that sums to zero stays zero."""
    values = values.to("cpu").double()
    totals = values.sum(-1, keepdim=True)
    return values / totals.masked_fill(totals == 0, 1.0)


def in_unit(values: Tensor, grid: Grid) -> np.ndarray[Any, Any]:
    """Return rows of tokens [head?, token, column] averaged over the tokens of a unit."""
    return grid.rows(values.detach().to("cpu").numpy())
