"""Value zeroing: how far each token's output moves when another token's value vector is zeroed.

Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, section 3.
"""

from __future__ import annotations

import operator
from contextlib import nullcontext
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.block_maps import chosen_layers, require_chunk_size
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import measured_on_blocks
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)
from attnwidgets.explanations.results.units import mean_groups, unit_grid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.results.units import Groups
    from attnwidgets.tracing.algebra.finish_block import Piece, Resumed
    from attnwidgets.tracing.block_replay import RecordedBlocks, Run
    from attnwidgets.tracing.mixers.mix import MixedBlock
    from attnwidgets.tracing.text.units import Unit

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"

DISTANCES = ("cosine", "euclidean", "cosine_5_decimals")
# Bytes of states that run at once when blocks are called again: on a CPU, exceeding its caches gains nothing.
_CACHE_BYTES = 24_000_000
_DEVICE_BYTES = 256_000_000
# A kernel takes several times the memory and time of the rest of a block: more copies gain nothing.
_OF_KERNELS = 8
# Relative changes of an output, in units of its precision, that count as rounding: of the output itself, and
# for tokens that no head reads, of another batch size.
_ROUNDING = 8
_UNREAD = 1000


@method(
    "value_zeroing",
    question="By perturbing",
    gist="which words change when another one is silenced",
    paper=PAPER,
    needs="recorded mixing",
    returns="MixingMap [layer, query, key]",
    cost="each layer once per token (or span), in batches",
    speed="seconds",
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
    """How far each token's output moves when another token's value vectors are zeroed.

    In every layer and for every token j, the value vectors of j are set to zero in all heads after the
    softmax, the block is computed again from its recorded input, and S[i, j] is the distance of token i's
    output from its original. The residual connection of j stays, so the diagonal is not large. Rows are
    divided by their sums.

    This needs no knowledge of the architecture: the block is called again, on copies of its input, through
    the model's code. If a description fits the block and is verified, the values are subtracted from the
    attention output instead and the block is finished from there, which gives the same numbers faster. The
    model runs once when the map is created, and a layer's block when that layer is first used; the model
    is left as it was. Changes of the model in between raise an error.

    In a block without attention (state spaces, delta rules, gated convolutions: `aw.mixing`), the values of j
    in the kernel are taken away, also those that a short convolution moves to the positions after
    it. The kernel's weights stay, and so does the convolution's activation, as a factor; norm, gate, output
    projection and the rest of the block run again. The effect of j on earlier states (erasing, decay) stays,
    too, as j's key does in a softmax. In a block with both, j loses its values in both.

    Cosine distances go down to 1e-10, where 1 - cos is noise in float32 (errors up to 0.33 after
    normalising); they are computed as 0.5 * ||a/|a| - b/|b|||^2, which keeps every digit. A layer in half
    precision is computed in float32 from its half-precision input.

    Args:
        trace: A trace made by `aw.trace`.
        unit: Unit that is zeroed at once: tokens by default; a name ("word", "sentence") or a Unit zeroes
            all tokens of an element together, which differs from the sum over its tokens. A pair of Units
            (query, key) serves "cross".
        distance: "cosine", "euclidean", or "cosine_5_decimals": 1 - cos rounded to five decimals, to compare
            with the context-mixing toolkit, which does this for GPT-2.
        reduce: How the distances of a unit's tokens are combined to its row, "mean" or "max", before rows are
            normalised.
        normalize: Whether rows are divided by their sums. A row in which nothing moves the output by more
            than rounding stays zero.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder; the trace's default if omitted. Values
            are only zeroed in the stack's attention, and outputs of the whole block are compared.
        layers: Numbers of the layers to include; by default all whose mixing was recorded.
        final_norm: Whether outputs of the last layer are compared after the model's final norm (as in
            Mohebbi et al. 2023b and inseq) instead of before it (the context-mixing toolkit).
        chunk_size: Number of tokens (or elements of the unit) zeroed at once, which bounds the memory; by
            default the number that fits 8 MB (256 MB on an accelerator), or 24 MB if blocks are called again,
            an eighth of it in blocks without attention.

    Returns:
        A lazy map [layer, query, key] in the requested unit: rows are the affected tokens, columns the tokens
        whose values are zeroed. Exactly zero where no head reads the key, as above the diagonal of causal
        models. The map includes the residual, so roll it out with `aw.rollout(map, residual=None)`.

    Raises:
        UnsupportedModelError: If the trace has no model, or neither attention nor other mixing was recorded;
            when a layer is opened, if its kernel takes no values as an argument (MiniMax, xLSTM), or its
            mixers follow each other (Zamba). A ValueError.
        ValueError: For an unknown stack, unit, distance or reduction, a chunk_size below 1, `final_norm` in
            a model without a final norm, or NaN inside the model (the message names the first layer).
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> zeroed = aw.value_zeroing(trace, layers=0)
        >>> zeroed.shape, float(zeroed.layer(0)[2].sum().round(3))
        ((1, 9, 9), 1.0)
    """
    require_trace(trace, "value_zeroing")
    require_choice("distance", distance, DISTANCES)
    require_choice("reduce", reduce, ("mean", "max"))
    require_chunk_size(chunk_size)
    stack = resolve_stack(trace, stack)
    grid = unit_grid(trace, stack, unit)
    chosen = chosen_layers(trace, stack, layers, measured=True)
    mixing = _mixing_of(trace, stack)
    if not chosen_layers(trace, stack, None, measured=True):
        trace.n_heads(stack)  # raises an error that says why

    distances_of = _by_layer(trace, stack, chosen, mixing, final_norm=final_norm)

    def layer_of(number: int) -> NDArray[np.floating]:
        raw, floor = distances_of(number, grid.key.units[grid.name].spans, distance, chunk_size)
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
        **provenance_of(trace, stack, "value_zeroing", paper=PAPER, options=options, attention=not mixing),
    )


def zeroed_within(
    trace: TraceLike, rows: Groups, elements: Groups, *, stack: str, final_norm: bool
) -> NDArray[np.float64]:
    """Return how far rows move without each of some elements, in cosine distance [layer, row, element].

    They are those of `value_zeroing(..., normalize=False)` in a unit of which these spans are a part, but
    only the queries from the first to the last of the rows are computed.

    Args:
        trace: A trace made by `aw.trace`.
        rows: The queries of every row, whose mean is taken; a row without any is zero.
        elements: The keys of every element.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder.
        final_norm: As in `value_zeroing`.
    """
    chosen = chosen_layers(trace, stack, None, measured=True)
    distances_of = _by_layer(trace, stack, chosen, _mixing_of(trace, stack), final_norm=final_norm)
    queries = [query for row in rows for query in row]
    some = slice(min(queries, default=0), max(queries, default=0) + 1)
    within = tuple(tuple(query - some.start for query in row) for row in rows)
    layers = []
    for number in chosen:
        raw, _ = distances_of(number, elements, "cosine", None, some)
        layers.append(mean_groups(raw, within, [1.0] * len(raw), axis=-2))
    return np.stack(layers)


def _by_layer(
    trace: TraceLike,
    stack: str,
    chosen: Sequence[int],
    mixing: Mapping[int, MixedBlock],
    *,
    final_norm: bool,
) -> Callable[..., tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return `_distances` as a function of a layer's number, spans, distance, chunk size and queries.

    The model runs at once if it has to.
    """
    from attnwidgets.tracing.algebra.finish_block import resume
    from attnwidgets.tracing.block_replay import captured

    blocks = captured(trace, stack, "value_zeroing", mixing=True)
    last = max(blocks.layers)
    if final_norm and last in chosen:
        blocks.after_final_norm(blocks.layers[last].output[:, :1])  # raises if there is none

    def distances_of(
        number: int, spans: Groups, distance: str, chunk_size: int | None, queries: slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        after = blocks.after_final_norm if final_norm and number == last else _identity
        mixed = mixing.get(number)
        resumed = resume(trace, number, stack, queries) if mixed is None else None
        with no_grad():
            return _distances(blocks, number, spans, distance, chunk_size, after, resumed, mixed, queries)

    return distances_of


def _mixing_of(trace: TraceLike, stack: str) -> Mapping[int, MixedBlock]:
    table: Any = getattr(trace, "stack_table", {}).get(stack)
    return {} if table is None else table.mixing


def _identity(states: Tensor) -> Tensor:
    return states


def _distances(
    blocks: RecordedBlocks,
    number: int,
    spans: Groups,
    distance: str,
    chunk_size: int | None,
    after: Callable[[Tensor], Tensor],
    resumed: Resumed | None,
    mixed: MixedBlock | None,
    queries: slice,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distances of some queries [query, element], and the distances due to rounding [query]."""
    import torch

    from attnwidgets.tracing.block_replay import require_same

    if resumed is None:
        plain, read, pieces = _call_again(blocks, number, spans, chunk_size, mixed, queries)
    else:
        plain, read, pieces = _subtract_values(resumed, number, spans, chunk_size)
    require_same(blocks.layers[number], plain[None], "value_zeroing", queries)
    reference = after(plain[None])[0]
    result = np.zeros((len(reference), len(spans)))
    for piece in pieces:
        distances = _distance(after(piece.states), reference[piece.rows], distance)
        result[piece.rows, piece.elements] = distances.T.cpu().numpy()
    eps = float(torch.finfo(plain.dtype).eps)
    unread = (read.double() @ _members(spans, read).T.double() == 0).cpu().numpy()
    # The cosine distance grows with the square of the relative change, the Euclidean with the change.
    if distance == "euclidean":
        lengths = reference.norm(dim=-1).cpu().numpy()
        noise, floor = _UNREAD * eps * lengths, _ROUNDING * eps * lengths
    else:
        noise, floor = (np.full(len(result), 0.5 * (times * eps) ** 2) for times in (_UNREAD, _ROUNDING))
    result[unread & (result <= noise[:, None])] = 0.0
    return result, floor


def _members(spans: Groups, read: Tensor) -> Tensor:
    """Return whether a key lies in an element [element, key]."""
    members = read.new_zeros(len(spans), read.shape[1])
    for element, span in enumerate(spans):
        members[element, list(span)] = True
    return members


def _call_again(
    blocks: RecordedBlocks,
    number: int,
    spans: Groups,
    chunk_size: int | None,
    mixed: MixedBlock | None,
    queries: slice,
) -> tuple[Tensor, Tensor, Iterator[Piece]]:
    """Zero values in calls of the block on copies of its input, for any architecture.

    `mixed` are the mixers of the block besides attention.

    Returns:
        The original output [query, width], whether any head reads a key [query, key], and the outputs without
        elements, all of `queries` alone.
    """
    from attnwidgets.tracing.algebra.finish_block import Piece
    from attnwidgets.tracing.mixers.without import without_tokens

    with blocks.ready(number) as run:
        plain, read = _baseline(run, causal=mixed is not None)
    members = _members(spans, read)
    on_cpu = plain.device.type == "cpu"
    budget = (_CACHE_BYTES if on_cpu else _DEVICE_BYTES) // (1 if mixed is None else _OF_KERNELS)
    size = chunk_size or blocks.copies_within(number, budget)

    def pieces() -> Iterator[Piece]:
        with blocks.ready(number) as run:
            for start in progress(range(0, len(members), size), f"value zeroing, layer {number}"):
                zeroed = members[start : start + size]

                def zero(weights: Tensor, values: Tensor, zeroed: Tensor = zeroed) -> tuple[Tensor, Tensor]:
                    return weights, values.masked_fill(zeroed[:, None, :, None], 0.0)

                kernels = nullcontext() if mixed is None else without_tokens(mixed, zeroed, "value_zeroing")
                with kernels:
                    states = run(len(zeroed), zero)
                yield Piece(slice(None), slice(start, start + size), states[:, queries])

    return plain[0, queries], read[queries], pieces()


def _subtract_values(
    resumed: Resumed, number: int, spans: Groups, chunk_size: int | None
) -> tuple[Tensor, Tensor, Iterator[Piece]]:
    """Subtract values from the attention output and finish the block: the closed form, for described blocks.

    Returns:
        The same as `_call_again`.
    """
    steps = progress(resumed.pieces(spans, chunk_size), f"value zeroing, layer {number}")
    return resumed.plain, resumed.read, (resumed.without(spans, *piece) for piece in steps)


def _baseline(run: Run, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Return the original output [1, query, width], and whether any head reads a key [query, key].

    With `causal`, the block has kernels, which read every earlier token.
    """
    read: list[Tensor] = []

    def record(weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        read.append((weights[0] != 0).any(dim=0))
        return weights, values

    output = run(1, record)
    if causal:
        count = output.shape[1]
        read.append(output.new_ones(count, count).tril() != 0)
    return output, reduce(operator.or_, read)


def _distance(states: Tensor, reference: Tensor, distance: str) -> Tensor:
    """Return the distance [element, row] of states [element, row, width] from `reference` [row, width]."""
    import torch

    length = partial(torch.linalg.vector_norm, dim=-1, keepdim=True)
    if distance == "euclidean":
        return length(states - reference)[..., 0]
    tiny = 1e-30  # a state of zeros has no direction, and distance zero to itself
    direction = reference / length(reference).clamp_min(tiny)
    difference = length(torch.addcmul(-direction, states, length(states).clamp_min(tiny).reciprocal()))
    # On the CPU, because Apple's accelerator has no float64. Equals 1 - cos, but without its cancellation.
    cosine: Tensor = 0.5 * difference[..., 0].to("cpu").double().square()
    return 1.0 - (1.0 - cosine).round(decimals=5) if distance == "cosine_5_decimals" else cosine


def _shares(rows: NDArray[np.floating], floor: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return rows divided by their sums; rows that stay below `floor` [row, 1] become zero."""
    moved = rows.max(axis=1, keepdims=True, initial=0.0) > floor
    totals = rows.sum(axis=1, keepdims=True)
    return np.divide(rows, totals, out=np.zeros(rows.shape), where=moved & (totals > 0))
