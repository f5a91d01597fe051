"""Hidden token attribution: the norm of the derivative of a hidden token by another.

Brunner et al. 2020, On Identifiability in Transformers, section 5.
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import duration, require_choice
from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.block_maps import chosen_layers
from attnwidgets.explanations.mixing.layer_product import shares
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import Need, at_most, n_keys
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.block_replay import RecordedBlocks

PAPER = "Brunner et al. 2020, On Identifiability in Transformers"

LIMIT = 25_000
"""Input numbers (tokens * width) above which `force=True` is required."""

_CHUNK_BYTES = 256_000_000
_PROBE = 8


def _size(trace: Any, stack: str) -> int:
    """Return the size of the first block's input, from the model's config or else the recorded heads."""
    layer = trace.stack_table[stack].layers[0]
    width = getattr(trace.model.config, "hidden_size", layer.shape[0] * layer.call.head_dim)
    return n_keys(trace, stack) * int(width)


def _unread(trace: Any, stack: str) -> str:
    last = max(trace.layers(stack), default=0)
    gaps = [block for block in trace.anatomy.stacks[stack] if block.number < last and not block.is_recorded]
    if not gaps:
        return ""
    block = f"block {gaps[0].number} ({gaps[0].kinds})"
    return f"and {block} does not: scope='local' in Python takes single layers"


_FOLLOWED = Need("every block attends", "a model whose blocks all attend", _unread)


@method(
    "hidden_token_attribution",
    question="What goes into a token",
    gist="how strongly each word reacts to each input word",
    paper=PAPER,
    needs=("recorded model", "itself", _FOLLOWED, at_most(LIMIT, "input numbers (tokens * width)", _size)),
    returns="MixingMap [layer, query, key]",
    cost="each layer once per token and dimension (tokens * width directional derivatives)",
    speed="minutes",
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
    """How strongly a token's output depends on another token's input, as norms of Jacobian blocks.

    Layer l holds S[i, j] = ||d h_i / d e_j||_F: the Frobenius norm of the [width, width] derivative of the
    output of token i by e_j, the input of token j to the first layer ("global") or to layer l itself
    ("local"). Rows are divided by their sums. The result is exact: all tokens * width directional derivatives
    are computed (forward mode, vectorised by `torch.func`), instead of a gradient of sums, whose norm is a
    different number. A single sweep through the layers serves all of them.

    Args:
        trace: A trace made by `aw.trace`.
        scope: "global" for the input of the first layer, "local" for the input of each layer.
        norm: How a block [width, width] becomes a number: "frobenius" as published, the root of the sum of
            squares, or "spectral", its largest singular value (the matrix 2-norm). The latter computes all
            directions of a token at once and tokens² eigenvalue problems [width, width] per layer.
        normalize: Whether rows are divided by their sums (the paper's relative contribution). A row of
            zeros stays zero.
        times_input: Whether each column of the Jacobian is multiplied by its input, as in GlobEnc's
            equation 18.
        stack: "encoder" or "decoder" of an encoder-decoder; the trace's default if omitted. "cross" is not
            supported, as its keys are not an input of these blocks.
        layers: Numbers of the layers to include; all by default. "global" stops after the last of them.
        chunk_size: Number of directions computed at once, which bounds the memory; by default the number that
            fits 256 MB.
        force: Whether to run beyond 25,000 input numbers (65 tokens of width 384, 32 of 768).

    Returns:
        A lazy map [layer, query, key]: "local" computes a layer when it is first used, "global" all of them
        at once. Computations over a second show a progress bar.

    Raises:
        UnsupportedModelError: If the trace has no model or no recorded attention (a ValueError), or for
            "global", if something lies between the blocks.
        ValueError: For an unknown scope, norm or stack, a chunk_size below 1 or with "spectral", too long an
            input without `force` (the message estimates the time), or NaN inside the model (the message names
            the first layer).
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "Hi there")
        >>> jacobian_norms = aw.hidden_token_attribution(trace, scope="local", layers=0)
        >>> jacobian_norms.layer(0).sum(-1).round(3)
        array([1., 1., 1., 1.], dtype=float32)
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
            'hidden_token_attribution needs self-attention, which "cross" is not; '
            'use stack="encoder" or stack="decoder".'
        )
    query, key = trace.axes(stack)
    chosen = chosen_layers(trace, stack, layers)

    from attnwidgets.tracing.block_replay import capture

    blocks = capture(trace, stack, "hidden_token_attribution")
    numbers = trace.layers(stack)
    size = blocks.layers[numbers[0]].hidden[0].numel()
    if size > LIMIT and not force:
        passes = len(chosen) if scope == "local" else sum(layer <= max(chosen) for layer in blocks.layers)
        seconds = _estimate(blocks, size, times_input=times_input) * passes
        raise ValueError(
            f"hidden_token_attribution over {len(key)} tokens of width {size // len(key)} takes about "
            f"{duration(seconds)} for {passes} layers; pass force=True to run it, choose fewer layers, or "
            "shorten the text."
        )
    if scope == "global":
        _require_chain(trace, stack, blocks, max(chosen))
    sweep: dict[int, NDArray[np.float64]] = {}
    lock = threading.Lock()

    def layer_of(number: int) -> NDArray[np.float64]:
        with lock:
            if number not in sweep:
                passed = (number,) if scope == "local" else numbers[: numbers.index(max(chosen)) + 1]
                sweep.update(_norms(blocks, passed, norm, chunk_size, times_input=times_input))
            norms = sweep[number] if scope == "global" else sweep.pop(number)
        return shares(norms) if normalize else norms

    options = {"scope": scope, "norm": norm, "normalize": normalize, "times_input": times_input}
    return MixingMap.lazy(
        layer_of,
        query=query,
        key=key,
        layers=chosen,
        unit=next(iter(query.units)),
        causal=trace.is_causal(stack),
        stochastic=True if normalize else None,
        runs_model=True,
        **provenance_of(trace, stack, "hidden_token_attribution", paper=PAPER, options=options),
    )


def _norms(
    blocks: RecordedBlocks,
    layers: Sequence[int],
    norm: str,
    chunk_size: int | None,
    *,
    times_input: bool,
) -> dict[int, NDArray[np.float64]]:
    """Return by layer the norms [query, key] of its output's derivative by the input of the first layer."""
    import torch

    first = layers[0]
    start = _start(blocks, first)
    _, n_tokens, width = start.shape
    spectral = norm == "spectral"
    size = width if spectral else chunk_size or blocks.copies_within(first, _CHUNK_BYTES)
    squares = {layer: torch.zeros(n_tokens, n_tokens, dtype=torch.float64) for layer in layers}
    label = "hidden token attribution" if len(layers) > 1 else f"hidden token attribution, layer {first}"
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
        if spectral:
            by_query = pushed.transpose(0, 1).cpu().double()
            # The largest singular value, squared: several times faster than `svdvals`.
            squares[layer][begin // width] = torch.linalg.eigvalsh(by_query @ by_query.mT)[:, -1].clamp(min=0)
        else:
            squares[layer].index_add_(0, (index // width).cpu(), pushed.square().sum(dim=-1).cpu().double())
    return {layer: square.sqrt().T.numpy() for layer, square in squares.items()}


def _push(blocks: RecordedBlocks, layer: int, tangents: Tensor) -> Tensor:
    """Return derivatives of a block's output along directions of its input [direction, 1, token, width]."""
    import torch

    with blocks.ready(layer) as run:
        point = _start(blocks, layer)

        def along(tangent: Tensor) -> Tensor:
            def step(hidden: Tensor) -> Tensor:
                return run(1, None, hidden)

            return torch.func.jvp(step, (point,), (tangent,))[1]

        return torch.func.vmap(along)(tangents)


def _start(blocks: RecordedBlocks, layer: int) -> Tensor:
    from attnwidgets._tensors import widened

    return widened(blocks.layers[layer].hidden)


def _require_chain(trace: Any, stack: str, blocks: RecordedBlocks, last: int) -> None:
    """Raise unless each block reads the output of the block before, along which derivatives are multiplied.

    A block that attends may mix tokens in other ways as well: the derivative is that of the whole block.
    """
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    alone = 'use scope="local", which takes each layer by itself.'
    gap = next(
        (block for block in trace.anatomy.stacks[stack] if block.number < last and not block.is_recorded),
        None,
    )
    if gap is not None:
        raise UnsupportedModelError(
            f"hidden_token_attribution cannot follow tokens to layer {last}: block {gap.number} "
            f"({gap.kinds}) does not attend and was not recorded; {alone}"
        )
    for (layer, before), (following, after) in pairwise(blocks.layers.items()):
        output, hidden = before.output, after.hidden
        if following <= last and (output.shape != hidden.shape or not bool((output == hidden).all())):
            raise UnsupportedModelError(
                f"hidden_token_attribution cannot combine layers {layer} and {following}: something lies "
                f"between them; {alone}"
            )


def _estimate(blocks: RecordedBlocks, size: int, *, times_input: bool) -> float:
    """Return the estimated seconds for all directions in one layer, from the time of a few."""
    import torch

    first = next(iter(blocks.layers))
    start = _start(blocks, first)
    tangents = (start if times_input else torch.ones_like(start)).expand(_PROBE, *start.shape)
    begin = time.perf_counter()
    _push(blocks, first, tangents)
    return (time.perf_counter() - begin) * size / _PROBE
