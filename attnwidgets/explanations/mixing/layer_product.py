"""Following a stack through its layers: what rollout and flow both need of the map they follow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import TraceLike, require_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DEFAULT_WEIGHT = 0.5
"""Share of the residual connection that Abnar and Zuidema publish."""

_MUCH = 2**22
"""Values of a layer."""
_KEPT = ("model", "text", "stack", "words")


def followed(trace: TraceLike | MixingMap, name: str, stack: str | None) -> MixingMap:
    """Return the map to follow: the one given, or a trace's attention.

    Args:
        trace: A trace, or any map of a stack that attends to itself.
        name: The method's name, for errors.
        stack: Which stack of a trace.

    Raises:
        ValueError: For a map from one sequence to another, layers with gaps, or a stack not of the map.
    """
    if isinstance(trace, MixingMap):
        if stack is not None and stack != trace.stack:
            raise ValueError(
                f"stack {stack!r} is asked of a map of stack {trace.stack!r}; give the trace instead."
            )
        source = trace
    else:
        require_trace(trace, name)
        source = attention(trace, stack=stack)
    n_queries, n_keys = source.shape[-2:]
    if source.stack == "cross" or n_queries != n_keys or source.query_labels != source.key_labels:
        raise ValueError(
            f"{name} follows a stack that attends to itself; this map "
            f"(stack {source.stack!r}, {n_queries} queries, {n_keys} keys) goes from one sequence to "
            'another. Use stack="encoder" or stack="decoder".'
        )
    if list(source.layers) != list(range(source.layers[0], source.layers[0] + len(source.layers))):
        raise ValueError(f"{name} needs consecutive layers, not {', '.join(map(str, source.layers))}.")
    return source


def _reads_much(source: MixingMap) -> bool:
    """Return whether a layer is so large that no view should compute one before it is looked at."""
    return source.knows_rows and len(source.query) * len(source.key) * len(source.heads or (0,)) > _MUCH


def decoder_alone(stack: str) -> str:
    """Return what a reader must know of a stack that is followed through its layers, or ""."""
    if stack != "decoder":
        return ""
    return "the decoder's own tokens are followed, and what its blocks read of the encoder is left out"


def require_share(residual_weight: float) -> None:
    """Refuse a residual weight that is no share."""
    if not 0.0 <= residual_weight <= 1.0:
        raise ValueError(f"residual_weight is a share from 0 to 1, not {residual_weight}.")


def mixed(matrix: NDArray[np.float64], residual_weight: float) -> NDArray[np.float64]:
    """Return (1 - w) A + w I of one layer [query, key]."""
    found: NDArray[np.float64] = (1.0 - residual_weight) * matrix
    found[np.diag_indices(len(found))] += residual_weight
    return found


def shares(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows divided by their sums; a row of zeros stays zero."""
    totals = matrix.sum(axis=-1, keepdims=True)
    return np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals != 0)


def product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return left right.

    Where torch is in use it multiplies: its threads and those of numpy's own library, each waiting busily for
    work, would take each other's processors.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return left @ right
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


def carried_on(
    source: MixingMap, method: str, *, title: str, paper: str, options: dict[str, Any], steps: Sequence[str]
) -> dict[str, Any]:
    """Return what a map made of `source` takes over from it: arguments of `MixingMap.lazy`.

    Args:
        source: The map that was followed.
        method: The method's name.
        title: What it is called where it follows attention; of another map, that map is named with it.
        paper: The method's paper.
        options: The method's options; the level and the map followed are added.
        steps: What departs from the published method, in words.
    """
    return {
        "query": source.query,
        "key": source.key,
        "unit": source.unit,
        "runs_model": source.runs_model,
        "on_demand": source.on_demand or _reads_much(source),
        "method": method,
        "stack": source.stack,
        "trace_id": source.trace_id,
        "warning": "; ".join(filter(None, (source.warning, decoder_alone(source.stack)))),
        "dtype": source.dtype,
        "predictions": source.predictions,
        "provenance": {
            **{name: source.provenance[name] for name in _KEPT if name in source.provenance},
            "method": method,
            "title": title if source.method == "attention" else f"{title} of {source.method}",
            "options": {**options, "level": source.unit, "of": source.method},
            "paper": paper,
            "source": source.provenance,
            "steps": list(steps),
        },
    }
