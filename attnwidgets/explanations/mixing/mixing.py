"""How every block mixes tokens, with attention or without, as a map.

Ali et al. 2024, The Hidden Attention of Mamba Models; Zimerman et al. 2024, Explaining Modern Gated-Linear
RNNs via a Unified Implicit Attention Formulation. Both draw the kernel's matrix; here a column is a token,
as in attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.block_maps import block_map, measured_stack, shares
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import measured_by_head
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.layers import Stack

PAPER = (
    "Zimerman et al. 2024, Explaining Modern Gated-Linear RNNs via a Unified Implicit Attention Formulation"
)
_MUCH = 2 * 10**9  # multiplications above which views only compute the layers that they show
Measure = Literal["share", "norm", "signed", "kernel"]
TITLES = {
    "share": "share of what tokens add",
    "norm": "norm of what tokens add",
    "signed": "signed share of what tokens add",
    "kernel": "kernel",
}


@method(
    "mixing",
    question="Attention",
    gist="what blocks take from each word, without attention too",
    paper=PAPER,
    needs="mixers",
    returns="MixingMap [layer, head, query, key]",
    cost="a layer when it is opened: O(n² channels head_dim); the kernel's own O(n² channels)",
    speed="seconds",
    takes=measured_by_head,
)
def mixing(
    trace: TraceLike,
    measure: Measure = "share",
    *,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
) -> MixingMap:
    """How every block of a model mixes tokens, by heads: attention, and whatever stands in its place.

    State space models, delta rules, linear attention, gated recurrences and convolutions add to token i a
    sum of vectors F_ij over the tokens j before it, exactly:

        F_ij = (row_i * sum over d of alpha[i, j + d] * act_{j+d} * taps[d, j]) W

    with alpha the kernel, taps[d, j] the weight with which a short convolution adds token j to position
    j + d, act the activation after it, and row_i the gate and norm after the kernel, both fixed. If a token
    between j and i erases j's vector, or lets it decay, this is part of F_ij. Differential attention has this
    form, too: alpha is the difference of two softmaxes (DiffLlama; Ye et al. 2024).

    Args:
        trace: A trace made by `aw.trace`.
        measure: "share": the norms |F_ij|, each row divided by its sum, and in blocks of attention its
            weights; "norm": |F_ij|, in all blocks; "signed": the share of F_ij in the block's update y_i,
            its projection F_ij y_i / |y_i|^2, which sums to 1 over heads and tokens, less the share of the
            biases; "kernel": alpha itself, whose columns are positions after the convolution and not tokens.
            If each channel has a separate kernel, the kernels' mean absolute value.
        stack: Stack of a model that has several; the trace's default if omitted.
        layers: Numbers of the blocks to include; by default all whose mixing was recorded.

    Returns:
        A lazy map [layer, head, query, key] with a layer for each of these blocks, numbered as in the model.
        A block without heads has a single matrix. "signed" and "kernel" may be negative, and rows of "norm",
        "signed" and "kernel" do not sum to 1: they have no entropy, and cannot be rolled out.

    Raises:
        ValueError: For an unknown measure; as `UnsupportedModelError`, if all blocks attend, or a block's
            vectors are unknown (the message says why).
        IndexError: If a layer is out of range.

    Example:
        >>> model = aw.zoo.decayed_counts("abc", 8)
        >>> trace = aw.trace(*model, "abca")
        >>> print(aw.mixing(trace).matrix(0, 0)[-1].round(2))  # earlier tokens have decayed
        [0.   0.21 0.24 0.26 0.29]
    """
    require_choice("measure", measure, tuple(TITLES))
    stack = measured_stack(trace, stack, "mixing")
    traced: Any = trace
    if not getattr(traced, "stack_table", {stack: None})[stack].mixing:
        raise UnsupportedModelError(
            "mixing: it shows blocks that mix tokens otherwise than by a softmax, and this stack "
            "has none. aw.attention shows its attention, aw.attention_norm what tokens add."
        )
    attending = frozenset(traced.stack_table[stack].numbers) - frozenset(traced.stack_table[stack].mixing)

    def measured(layer: int, queries: Sequence[int] | None = None) -> np.ndarray[Any, Any]:
        if layer in attending and measure in ("share", "kernel"):
            return trace.rows_array(layer, None, queries, stack)
        from attnwidgets.tracing.mixers.runs import mixed_block

        block = mixed_block(traced, layer, stack, "mixing")
        rows = range(len(trace.axes(stack)[0])) if queries is None else queries
        values = block.by_head(rows, measure)
        return (shares(values) if measure == "share" else values).cpu().numpy()

    def some_rows(layer: int, heads: Sequence[int] | None, queries: Sequence[int]) -> np.ndarray[Any, Any]:
        order = sorted(set(queries))
        values = measured(layer, order)[:, [order.index(query) for query in queries]]
        return values if heads is None else values[list(heads)]

    kinds = {block.number: block.description for block in traced.anatomy.stacks[stack]}
    return block_map(
        trace,
        measured,
        method="mixing",
        title=TITLES[measure],
        paper=PAPER,
        options={"measure": measure},
        stack=stack,
        layers=layers,
        stochastic=None if measure == "share" else False,
        per_head=True,
        measured=True,
        signed=measure in ("signed", "kernel"),
        rows=some_rows,
        on_demand=_work(traced.stack_table[stack]) > _MUCH,
        facts={"blocks": kinds},
    )


def _work(table: Stack) -> int:
    """Return the multiplications that the maps of all blocks without attention take."""
    mixes = [mix for block in table.mixing.values() for mix in block.mixes]
    return sum(mix.n_tokens**2 * mix.n_channels * mix.n_channels // mix.n_heads for mix in mixes)
