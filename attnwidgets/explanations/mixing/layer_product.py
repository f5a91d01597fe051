"""Maps followed through their layers: the source, single layers and the result of rollout and flow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import spoken_range
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    require_trace,
    resolve_stack,
    without_clause,
)
from attnwidgets.tracing.text.units import surplus_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DEFAULT_WEIGHT = 0.5
"""Weight of the residual connection in Abnar and Zuidema."""

_MUCH = 2**22
"""Values in a layer above which it is large."""
_INHERITED = ("model", "text", "stack", "words", "left_out", "interventions")


def measured_steps(
    trace: TraceLike | MixingMap, stack: str | None, *, partial: bool, plain: bool
) -> MixingMap | None:
    """Return the steps of a trace's blocks that mix tokens without attention; None if none are followed.

    A step holds the norms of the vectors that tokens add, with the residual (`aw.attention_norm`, "res"),
    which are divided by the sums of their rows.

    Args:
        trace: A trace, or a map, which is followed as it is.
        stack: Stack of a trace.
        partial: Whether attention alone is followed.
        plain: Whether no option changes attention before it is followed.

    Raises:
        ValueError: If an option does, as it would change some blocks only.
    """
    if isinstance(trace, MixingMap) or partial or not hasattr(trace, "stack_table"):
        return None
    stack = resolve_stack(trace, stack)
    table = trace.stack_table.get(stack)
    if table is None or not table.mixing or trace.left_out(stack, attention=False):
        return None
    if not plain:
        raise ValueError(
            f"{trace.left_out(stack)}: weights of the residual connection, reductions of heads and discarded "
            "tokens change attention only. Leave these options out, or pass partial=True to follow attention "
            "alone."
        )
    from attnwidgets.explanations.mixing.attention_norm import attention_norm

    return attention_norm(trace, "res", stack=stack, layers=list(table.mixing))


def source_map(
    trace: TraceLike | MixingMap,
    name: str,
    stack: str | None,
    *,
    partial: bool = False,
    measured: MixingMap | None = None,
) -> MixingMap:
    """Return the map to follow through the layers: `trace` if it is a map, else its attention.

    Args:
        trace: A trace, or a map of a stack with self-attention.
        name: The method's name, for messages.
        stack: Stack of a trace.
        partial: Whether attention alone is followed where blocks also mix tokens otherwise.
        measured: The steps of the blocks that do; see `measured_steps`.

    Raises:
        ValueError: For a map from one sequence to another, gaps between layers, or a stack other than the
            map's; if mixing of tokens was not recorded in some blocks, unless `partial`.
    """
    if isinstance(trace, MixingMap):
        if stack is not None and stack != trace.stack:
            raise ValueError(
                f"stack={stack!r} was passed with a map of stack {trace.stack!r}; pass the trace instead."
            )
        source = trace
    else:
        require_trace(trace, name)
        if measured is not None and len(measured.layers) == len(trace.mixing_layers(measured.stack)):
            return measured
        source = attention(trace, stack=stack)
    n_queries, n_keys = source.shape[-2:]
    if source.stack == "cross" or n_queries != n_keys or source.query_labels != source.key_labels:
        surplus = surplus_keys(source.query, source.key)
        if surplus:
            raise ValueError(f"{name} follows a text's tokens, and {surplus}.")
        raise ValueError(
            f"{name} needs a map of self-attention; this one (stack {source.stack!r}, {n_queries} queries, "
            f"{n_keys} keys) goes from one sequence to another. "
            'Use stack="encoder" or stack="decoder".'
        )
    left_out = source.provenance.get("left_out")
    if left_out and not partial and measured is None:
        raise ValueError(
            f"{name} follows tokens through every block, and {left_out}: its numbers would not be the shares "
            "of the input tokens. Pass partial=True to follow attention alone."
        )
    if left_out or measured is not None:
        return source
    if list(source.layers) != list(range(source.layers[0], source.layers[0] + len(source.layers))):
        raise ValueError(f"{name} needs consecutive layers, not {', '.join(map(str, source.layers))}.")
    return source


def decoder_alone(stack: str) -> str:
    """Return a note for a decoder that is followed through its layers; "" for other stacks."""
    if stack != "decoder":
        return ""
    return "only the decoder's own tokens are followed; what its blocks read from the encoder is left out"


def require_share(residual_weight: float) -> None:
    """Raise a ValueError if a residual weight is not between 0 and 1."""
    if not 0.0 <= residual_weight <= 1.0:
        raise ValueError(f"residual_weight must be between 0 and 1, not {residual_weight}.")


def mix_residual(matrix: NDArray[np.float64], residual_weight: float) -> NDArray[np.float64]:
    """Return (1 - w) A + w I of a layer [query, key]."""
    mixture: NDArray[np.float64] = (1.0 - residual_weight) * matrix
    mixture[np.diag_indices(len(mixture))] += residual_weight
    return mixture


def shares(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows divided by their sums; a row of zeros stays zero."""
    totals = matrix.sum(axis=-1, keepdims=True)
    result: NDArray[np.float64] = matrix / np.where(totals == 0, 1.0, totals)
    return result


def product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix product.

    If torch is loaded, it multiplies: its threads and those of numpy's library both wait actively for work
    and would otherwise compete for the CPU.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return left @ right
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


def map_fields(
    source: MixingMap,
    method: str,
    *,
    title: str,
    paper: str,
    options: dict[str, Any],
    steps: Sequence[str],
    measured: MixingMap | None = None,
) -> dict[str, Any]:
    """Return the arguments of `MixingMap.lazy` for a map computed from `source`.

    Args:
        source: The map that was followed.
        method: The method's name.
        title: Title for a map computed from attention; for other maps their name is added.
        paper: The method's paper.
        options: The method's options; the level and the source are added.
        steps: Departures from the published method.
        measured: The steps of blocks without attention that were followed, too.
    """
    if measured is not None:
        blocks = f"block{'s' * (len(measured.layers) > 1)} {spoken_range(measured.layers)}"
        steps = [*steps, f"{blocks} by the norms of what tokens add"]
    inherited = [name for name in _INHERITED if measured is None or name != "left_out"]
    # Views compute a layer this large only when it is shown.
    size = len(source.query) * len(source.key) * len(source.heads or (0,))
    is_large = source.knows_rows and size > _MUCH
    warning = source.warning
    if measured is not None:
        warning = without_clause(warning, source.provenance.get("left_out", ""))
    return {
        "query": source.query,
        "key": source.key,
        "unit": source.unit,
        "runs_model": source.runs_model or measured is not None,
        "on_demand": source.on_demand or is_large,
        "method": method,
        "stack": source.stack,
        "trace_id": source.trace_id,
        "warning": "; ".join(filter(None, (warning, decoder_alone(source.stack)))),
        "dtype": source.dtype,
        "predictions": source.predictions,
        "provenance": {
            **{name: source.provenance[name] for name in inherited if name in source.provenance},
            "method": method,
            "title": title
            if source.method == "attention" or source is measured
            else f"{title} of {source.method}",
            "options": {**options, "level": source.unit, "of": source.method},
            "paper": paper,
            "source": source.provenance,
            "steps": list(steps),
        },
    }
