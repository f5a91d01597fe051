"""Hidden token attribution: the size of the derivative of one hidden token by another.

Brunner et al. 2020, On Identifiability in Transformers, section 5.
"""

from __future__ import annotations

import threading
import time
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import duration, require_choice
from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import at_most, n_keys
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.block_replay import RecordedBlocks

PAPER = "Brunner et al. 2020, On Identifiability in Transformers"

LIMIT = 25_000
"""Input numbers (tokens * width) beyond which `force=True` is asked for."""

_CHUNK_BYTES = 256_000_000
_PROBE = 8


def _size(trace: Any, stack: str) -> int:
    """Return how many numbers the first block reads, from the recorded queries and the model's config."""
    heads, _, depth = trace.stack_table[stack].layers[0].query_key()[0].shape
    return n_keys(trace, stack) * int(getattr(trace.model.config, "hidden_size", heads * depth))


@method(
    "hidden_token_attribution",
    paper=PAPER,
    needs=("recorded model", "itself", at_most(LIMIT, "input numbers (tokens * width)", _size)),
    returns="MixingMap [layer, query, key]",
    cost="each layer once per token and dimension (tokens * width directional derivatives)",
)
def hidden_token_attribution(
    trace: TraceLike,
    *,
    scope: Literal["global", "local"] = "global",
    norm: Literal["frobenius", "spectral"] = "frobenius",
    normalize: bool = True,
    times_input: bool = False,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
    chunk_size: int | None = None,
    force: bool = False,
) -> MixingMap:
    """How strongly a token's output depends on another token's input: norms of Jacobian blocks.

    Layer l holds S[i, j] = ||d h_i / d e_j||_F: the Frobenius norm of the [width, width] derivative of the
    output of token i by e_j, the input of token j to the first layer ("global") or to layer l itself
    ("local"). Rows are divided by their sums. It is exact: all tokens * width directional derivatives are
    taken (forward mode, vectorised by `torch.func`), not a gradient of sums, whose norm is another number.
    One sweep through the layers serves all of them.

    Args:
        trace: What `aw.trace` returned.
        scope: "global" from the input of the first layer, "local" from the input of each layer.
        norm: How a block [width, width] becomes a number: "frobenius" as published, the root of the sum of
            squares, or "spectral", its largest singular value (the matrix 2-norm). The latter takes all
            directions of a token at once and tokens² eigenvalue problems [width, width] a layer.
        normalize: Whether rows are divided by their sums (the paper's relative contribution). A row of
            zeros stays zero.
        times_input: Whether every column of the Jacobian is multiplied by the input it belongs to, as in
            GlobEnc's equation 18.
        stack: "encoder" or "decoder" of an encoder-decoder; the trace's default otherwise. "cross" is
            refused: its keys are no input of these blocks.
        layers: Some layers by number; all by default. "global" stops after the last one named.
        chunk_size: How many directions run at once, which bounds the memory; by default as fit 256 MB.
        force: Run it beyond 25,000 input numbers (65 tokens of width 384, 32 of 768).

    Returns:
        A map [layer, query, key], lazy: "local" computes a layer when it is first asked for, "global" all
        of them at once. A progress bar shows what takes longer than a second.

    Raises:
        UnsupportedModelError: Where the trace has no model or its attention was not recorded (a ValueError),
            or where something stands between the blocks, for "global".
        ValueError: For an unknown scope, norm or stack, a chunk_size below 1 or with "spectral", too long an
            input without `force` (the message estimates the time), or NaN inside the model (the message names
            the first layer).
        IndexError: Where the model has no such layer.
    """
    require_trace(trace, "hidden_token_attribution")
    require_choice("scope", scope, ("global", "local"))
    require_choice("norm", norm, ("frobenius", "spectral"))
    if chunk_size is not None and (chunk_size < 1 or norm == "spectral"):
        wrong = "is for norm='frobenius'" if norm == "spectral" else f"must be at least 1, not {chunk_size}"
        raise ValueError(f"chunk_size {wrong}.")
    stack = resolve_stack(trace, stack)
    if stack == "cross":
        raise ValueError(
            'hidden_token_attribution follows a stack that attends to itself, and "cross" does not; '
            'use stack="encoder" or stack="decoder".'
        )
    query, key = trace.axes(stack)
    numbers = tuple(range(trace.n_layers(stack)))
    chosen = numbers if layers is None else pick(layers, numbers, "layer")

    from attnwidgets.tracing.block_replay import capture

    blocks = capture(trace, stack, "hidden_token_attribution")
    size = blocks.layers[0].hidden[0].numel()
    if size > LIMIT and not force:
        passes = len(chosen) if scope == "local" else max(chosen) + 1
        seconds = _estimate(blocks, size, times_input=times_input) * passes
        raise ValueError(
            f"hidden_token_attribution over {len(key)} tokens of width {size // len(key)} takes about "
            f"{duration(seconds)} for {passes} layers; pass force=True to run it, choose fewer layers, or "
            "shorten the text."
        )
    if scope == "global":
        _require_chain(blocks, max(chosen))
    sweep = _Sweep(blocks, max(chosen), scope, norm, chunk_size, times_input=times_input)
    options = {"scope": scope, "norm": norm, "normalize": normalize, "times_input": times_input}
    return MixingMap.lazy(
        lambda number: _shares(sweep(number)) if normalize else sweep(number),
        query=query,
        key=key,
        layers=chosen,
        unit=next(iter(query.units)),
        causal=trace.is_causal(stack),
        stochastic=True if normalize else None,
        runs_model=True,
        **provenance_of(trace, stack, "hidden_token_attribution", paper=PAPER, options=options),
    )


class _Sweep:
    """Norms [query, key] of a layer; "global" ones come together and are kept."""

    def __init__(
        self,
        blocks: RecordedBlocks,
        last: int,
        scope: str,
        norm: str,
        chunk_size: int | None,
        *,
        times_input: bool,
    ) -> None:
        self._blocks, self._last, self._scope = blocks, last, scope
        self._norm, self._chunk = norm, chunk_size
        self._times_input = times_input
        self._done: dict[int, NDArray[np.float64]] = {}
        self._lock = threading.Lock()

    def __call__(self, layer: int) -> NDArray[np.float64]:
        with self._lock:
            if layer not in self._done:
                first, last = (0, self._last) if self._scope == "global" else (layer, layer)
                self._done |= _norms(
                    self._blocks, first, last, self._norm, self._chunk, times_input=self._times_input
                )
            return self._done[layer] if self._scope == "global" else self._done.pop(layer)


def _norms(
    blocks: RecordedBlocks, first: int, last: int, norm: str, chunk_size: int | None, *, times_input: bool
) -> dict[int, NDArray[np.float64]]:
    """Return per layer the norms [query, key] of its output by the input of layer `first`."""
    import torch

    start = _start(blocks, first)
    _, n_tokens, width = start.shape
    whole = norm == "spectral"
    size = width if whole else chunk_size or blocks.copies_within(first, _CHUNK_BYTES)
    squares = {
        layer: torch.zeros(n_tokens, n_tokens, dtype=torch.float64) for layer in range(first, last + 1)
    }
    label = "hidden token attribution" if first == 0 < last else f"hidden token attribution, layer {first}"
    begins = range(0, n_tokens * width, size)
    tangents = start
    for begin, layer in progress(product(begins, squares), desc=label, total=len(begins) * len(squares)):
        index = torch.arange(begin, min(begin + size, n_tokens * width), device=start.device)
        if layer == first:
            tangents = torch.zeros(len(index), *start.shape, dtype=start.dtype, device=start.device)
            scale = start.flatten()[index] if times_input else 1.0
            tangents.flatten(1)[torch.arange(len(index), device=start.device), index] = scale
        tangents = _push(blocks, layer, tangents)
        pushed = tangents[:, 0]  # [direction, query, width]
        if whole:
            by_query = pushed.transpose(0, 1).cpu().double()
            # The largest singular value, squared: several times faster than singular values.
            squares[layer][begin // width] = torch.linalg.eigvalsh(by_query @ by_query.mT)[:, -1].clamp(min=0)
        else:
            squares[layer].index_add_(0, (index // width).cpu(), pushed.square().sum(dim=-1).cpu().double())
    return {layer: found.sqrt().T.numpy() for layer, found in squares.items()}


def _push(blocks: RecordedBlocks, layer: int, tangents: Tensor) -> Tensor:
    """Return derivatives of a block's output along `tangents` [direction, 1, token, width] of its input."""
    import torch

    with blocks.ready(layer) as run:
        point = _start(blocks, layer)

        def along(tangent: Tensor) -> Tensor:
            def step(hidden: Tensor) -> Tensor:
                return run(1, None, hidden)

            return torch.func.jvp(step, (point,), (tangent,))[1]

        found: Tensor = torch.func.vmap(along)(tangents)
    return found


def _start(blocks: RecordedBlocks, layer: int) -> Tensor:
    from attnwidgets.tracing.precision import widened

    return widened(blocks.layers[layer].hidden)


def _require_chain(blocks: RecordedBlocks, last: int) -> None:
    """Raise unless every block reads what the one before returned: derivatives are multiplied along them."""
    from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

    for layer in range(last):
        before, after = blocks.layers[layer].output, blocks.layers[layer + 1].hidden
        if before.shape != after.shape or not bool((before == after).all()):
            raise UnsupportedModelError(
                f"hidden_token_attribution cannot follow layers {layer} and {layer + 1}: something stands "
                'between them; scope="local" takes each layer by itself.'
            )


def _estimate(blocks: RecordedBlocks, size: int, *, times_input: bool) -> float:
    """Return the seconds all directions take in one layer, from a few of them."""
    import torch

    start = _start(blocks, 0)
    tangents = (start if times_input else torch.ones_like(start)).expand(_PROBE, *start.shape)
    begin = time.perf_counter()
    _push(blocks, 0, tangents)
    return (time.perf_counter() - begin) * size / _PROBE


def _shares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    totals = rows.sum(axis=1, keepdims=True)
    return np.divide(rows, totals, out=np.zeros_like(rows), where=totals > 0)
