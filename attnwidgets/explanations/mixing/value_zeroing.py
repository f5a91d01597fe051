"""Value zeroing: how far each token's output moves when another token's value is taken away.

Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, section 3.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.joint_units import unit_grid
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.algebra.finish_block import Piece, Resumed
    from attnwidgets.tracing.block_replay import RecordedBlocks, Run
    from attnwidgets.tracing.text.units import Unit

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"

DISTANCES = ("cosine", "euclidean", "cosine_5_decimals")
# What runs at once where blocks are called again: more gains nothing on a processor, whose caches it leaves.
_CACHE_BYTES = 24_000_000
_DEVICE_BYTES = 256_000_000
_ROUNDING = 8  # Relative change of an output, in units of its precision, below which nothing is known ...
_UNREAD = 1000  # ... and, for a token that no head reads, below which it is rounding of another batch size.


@method(
    "value_zeroing",
    paper=PAPER,
    needs="the model, with its attention recorded",
    returns="MixingMap [layer, query, key]",
    cost="each layer once per token (or span), in batches",
    takes=measured_on_blocks,
)
def value_zeroing(
    trace: TraceLike,
    *,
    unit: str | Unit | tuple[Unit, Unit] | None = None,
    distance: Literal["cosine", "euclidean", "cosine_5_decimals"] = "cosine",
    reduce: Literal["mean", "max"] = "mean",
    normalize: bool = True,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
    final_norm: bool = False,
    chunk_size: int | None = None,
) -> MixingMap:
    """How far each token's output moves when another token's value is zeroed.

    In every layer and for every token j, the value vectors of j are set to zero in all heads after the
    softmax, the block is computed again from its recorded input, and S[i, j] is the distance of token i's
    output from what it was. The residual connection of j stays, so the
    diagonal is not large. Rows are divided by their sums.

    It needs no knowledge of the architecture: the block is called again, on copies of its input, through
    the model's own code. Where the block's description is known and proves itself, the values are subtracted
    from what attention adds instead and the block is finished from there, which gives the same numbers
    faster. The model is run once more when the map is made, and a layer's block when that layer is first
    asked for; the model comes back as it was. A model changed in between is noticed.

    Cosine distances go down to 1e-10, where 1 - cos is noise in float32 (errors up to 0.33 after
    normalising); they are computed as 0.5 * ||a/|a| - b/|b|||^2, which keeps every digit. A layer in half
    precision is computed in float32 from its half-precision input.

    Args:
        trace: What `aw.trace` returned.
        unit: What is zeroed at once: tokens by default; a unit's name ("word", "sentence") or a Unit zeroes
            all tokens of an element jointly, which is not the sum over its tokens. A pair of Units (query,
            key) serves "cross".
        distance: "cosine", "euclidean", or "cosine_5_decimals": 1 - cos rounded to five decimals, as the
            context-mixing toolkit does for GPT-2, to compare with its numbers.
        reduce: How the distances of a unit's tokens become those of its row: "mean" or "max"; before rows
            are normalised.
        normalize: Whether rows are divided by their sums. A row in which nothing moves the output by more
            than rounding stays zero.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder; the trace's default otherwise. Each
            zeroes values in its own attention only, and compares the outputs of the whole block.
        layers: Some layers by number; all by default.
        final_norm: Whether outputs of the last layer are compared after the model's final norm (as in
            Mohebbi et al. 2023b and inseq) instead of before it (the context-mixing toolkit).
        chunk_size: How many tokens (or elements of the unit) are zeroed at once, which bounds the memory; by
            default as many as fit 8 MB (256 MB on an accelerator), or 24 MB where blocks are called again.

    Returns:
        A lazy map [layer, query, key] in the unit asked for: rows are the tokens that are affected, columns
        those whose value is zeroed. Exactly zero where no head reads the key, as above the diagonal of
        causal models. For rollout use `aw.rollout(map, residual=None)`: the residual is in it already.

    Raises:
        UnsupportedModelError: Where the trace has no model or its attention was not recorded (a ValueError).
        ValueError: For an unknown stack, unit, distance or reduction, a chunk_size below 1, `final_norm` in
            a model without one, or NaN inside the model (the message names the first layer).
        IndexError: Where the model has no such layer.
    """
    require_trace(trace, "value_zeroing")
    _check("distance", distance, DISTANCES)
    _check("reduce", reduce, ("mean", "max"))
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}.")
    stack = resolve_stack(trace, stack)
    grid = unit_grid(trace, stack, unit)
    numbers = tuple(range(trace.n_layers(stack)))
    chosen = numbers if layers is None else pick(layers, numbers, "layer")

    import torch

    from attnwidgets.tracing.algebra.finish_block import resume
    from attnwidgets.tracing.block_replay import captured

    blocks = captured(trace, stack, "value_zeroing")
    normed = final_norm and numbers[-1] in chosen
    if normed:
        blocks.after_final_norm(blocks.layers[-1].output[:, :1])

    def layer_of(number: int) -> NDArray[np.floating]:
        after = blocks.after_final_norm if normed and number == numbers[-1] else None
        resumed = resume(trace, number, stack)
        with torch.no_grad():
            raw, floor = _distances(
                blocks, number, grid.key.units[grid.name], distance, chunk_size, after, resumed
            )
        rows = grid.rows(raw, reduce)
        return _shares(rows, grid.rows(floor[:, None], "max")) if normalize else rows

    options = {"distance": distance, "normalize": normalize, "final_norm": final_norm, "unit": grid.name}
    if grid.name != next(iter(grid.query.units)):
        options["reduce"] = reduce
    return MixingMap.lazy(
        layer_of,
        query=grid.query,
        key=grid.key,
        layers=chosen,
        unit=grid.name,
        causal=grid.causal,
        stochastic=normalize,
        runs_model=True,
        **provenance_of(trace, stack, "value_zeroing", paper=PAPER, options=options),
    )


def _check(name: str, value: str, taken: tuple[str, ...]) -> None:
    if value not in taken:
        near = suggest(str(value), taken)
        raise ValueError(f"{name} {value!r} is not one of {', '.join(map(repr, taken))}.{near}")


def _distances(
    blocks: RecordedBlocks,
    number: int,
    unit: Unit,
    distance: str,
    chunk_size: int | None,
    after: Callable[[Tensor], Tensor] | None,
    resumed: Resumed | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return distances [query token, element of `unit`], and per query the ones that rounding makes."""
    import torch

    from attnwidgets.tracing.block_replay import require_same

    if resumed is None:
        plain, read, pieces = _called_again(blocks, number, unit, chunk_size)
    else:
        plain, read, pieces = _finished(resumed, number, unit, chunk_size)
    require_same(blocks.layers[number], plain[None], "value_zeroing")
    reference = _final(plain[None], after)[0]
    result = np.zeros((len(reference), len(unit.spans)))
    for piece in pieces:
        apart = _apart(_final(piece.states, after), reference[piece.rows], distance)
        result[piece.rows, piece.elements] = apart.T.cpu().numpy()
    eps = float(torch.finfo(plain.dtype).eps)
    unread = (read.double() @ _members(unit, read).T.double() == 0).cpu().numpy()
    # As distances: cosine grows with the square of the relative change, euclidean with the change itself.
    if distance == "euclidean":
        lengths = reference.norm(dim=-1).cpu().numpy()
        noise, floor = _UNREAD * eps * lengths, _ROUNDING * eps * lengths
    else:
        noise, floor = (np.full(len(result), 0.5 * (times * eps) ** 2) for times in (_UNREAD, _ROUNDING))
    result[unread & (result <= noise[:, None])] = 0.0
    return result, floor


def _members(unit: Unit, read: Tensor) -> Tensor:
    """Return which key lies in which element [element, key]."""
    members = read.new_zeros(len(unit.spans), read.shape[1])
    for element, span in enumerate(unit.spans):
        members[element, list(span)] = True
    return members


def _called_again(
    blocks: RecordedBlocks, number: int, unit: Unit, chunk_size: int | None
) -> tuple[Tensor, Tensor, Iterator[Piece]]:
    """Zero values in copies of the block's input: any architecture.

    Returns:
        The untouched output [query, width], whether any head reads a key [query, key], and the outputs.
    """
    from attnwidgets.tracing.algebra.finish_block import Piece

    with blocks.ready(number) as run:
        plain, read = _baseline(run)
    members = _members(unit, read)
    on_cpu = plain.device.type == "cpu"
    size = chunk_size or blocks.copies_within(number, _CACHE_BYTES if on_cpu else _DEVICE_BYTES)

    def pieces() -> Iterator[Piece]:
        with blocks.ready(number) as run:
            for start in progress(range(0, len(members), size), f"value zeroing, layer {number}"):
                zeroed = members[start : start + size]

                def zero(weights: Tensor, values: Tensor, zeroed: Tensor = zeroed) -> tuple[Tensor, Tensor]:
                    return weights, values.masked_fill(zeroed[:, None, :, None], 0.0)

                yield Piece(slice(None), slice(start, start + size), run(len(zeroed), zero))

    return plain[0], read, pieces()


def _finished(
    resumed: Resumed, number: int, unit: Unit, chunk_size: int | None
) -> tuple[Tensor, Tensor, Iterator[Piece]]:
    """Subtract values from what attention added and finish the block: the closed form, for described blocks.

    Returns:
        As `_called_again` does.
    """
    together = resumed.pieces(unit.spans, chunk_size)
    steps = progress(together, f"value zeroing, layer {number}")
    return resumed.plain, resumed.read, (resumed.without(unit.spans, *piece) for piece in steps)


def _baseline(run: Run) -> tuple[Tensor, Tensor]:
    """Return the untouched output [1, query, width], and whether any head reads a key [query, key]."""
    seen: list[Tensor] = []

    def look(weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((weights[0] != 0).any(dim=0))
        return weights, values

    plain = run(1, look)
    return plain, seen[0]


def _final(states: Tensor, after: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Return states after the final norm, if any."""
    return states if after is None else after(states)


def _apart(states: Tensor, reference: Tensor, distance: str) -> Tensor:
    """Return the distance [element, row] of states [element, row, width] from `reference` [row, width]."""
    import torch

    length = partial(torch.linalg.vector_norm, dim=-1, keepdim=True)

    if distance == "euclidean":
        return length(states - reference)[..., 0]
    tiny = 1e-30  # a state of zeros has no direction; its distance to itself is zero
    direction = reference / length(reference).clamp_min(tiny)
    apart = length(torch.addcmul(-direction, states, length(states).clamp_min(tiny).reciprocal()))
    # Apple's accelerator has no float64.
    half: Tensor = 0.5 * apart[..., 0].to("cpu").double().square()
    # half = 1 - cos up to rounding, but exact where 1 - cos is not.
    return 1.0 - (1.0 - half).round(decimals=5) if distance == "cosine_5_decimals" else half


def _shares(rows: NDArray[np.floating], floor: NDArray[np.floating]) -> NDArray[np.float64]:
    """Divide rows by their sums; rows that do not rise above `floor` [row, 1] become zero."""
    known = rows.max(axis=1, keepdims=True, initial=0.0) > floor
    totals = rows.sum(axis=1, keepdims=True)
    return np.divide(rows, totals, out=np.zeros(rows.shape), where=known & (totals > 0))
