"""Handlers of one pair of query and key: its weight in every layer and head, and how it is computed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.heads.handlers import source_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer


def pair_handlers(view: View, trace: Any = None) -> dict[str, Handler]:
    """Return the handlers of one pair.

    - "pair" (source, query, key): buffer values [layer, head] (float32). Layers that are yet to be computed,
      and heads that a layer does not have, are NaN; nothing is computed.
    - "computed" (stack, layer, head, query, key), if a trace is given: the steps from q . k to the weight of
      a token pair, in order: each a name and the number after it.
    """
    handlers = {"pair": Handler(partial(_pair, view), for_page=tuple)}
    return handlers | (
        {} if trace is None else {"computed": Handler(partial(_computed, trace), for_page=tuple)}
    )


def _pair(view: View, source: str, query: int, key: int) -> Answer:
    shown = source_of(view, source)
    rows, columns = shown.shape
    if not (0 <= int(query) < rows and 0 <= int(key) < columns):
        raise IndexError(
            f"pair ({query}, {key}) is out of range: there are {rows} queries and {columns} keys."
        )
    values = np.full((len(shown.layers), len(shown.heads or (0,))), np.nan, dtype="<f4")
    for place, layer in enumerate(shown.layers):
        if layer in shown.ready:
            weights = shown.across(layer, "query", int(query))[:, int(key)]
            values[place, : len(weights)] = weights
    return {}, [values.tobytes()]


def _computed(trace: Any, stack: str, layer: int, head: int, query: int, key: int) -> Answer:
    from attnwidgets.explanations.mixing.attention_row import attention_row

    row = attention_row(trace, int(layer), int(head), int(query), stack=str(stack))
    key = int(key)
    if not 0 <= key < len(row.dot):
        raise IndexError(f"key {key} is out of range: there are {len(row.dot)}, 0 to {len(row.dot) - 1}.")
    if row.masked[key]:
        return {"steps": [], "note": "This key comes later than the query, or is padding: it is masked."}, []
    dim = len(row.query)
    score = "q · k" if row.additive is None else "v · tanh(q + k)"
    steps = [(f"{score}, over {dim} dimensions", row.dot[key])]
    is_root = np.isclose(row.scaling, dim**-0.5)
    if row.additive is None or row.scaling != 1:
        steps.append((f"× 1 / √{dim}" if is_root else f"× {row.scaling:.4g}", row.scaled[key]))
    if row.softcap is not None:
        steps.append((f"capped at ± {row.softcap:.4g}", row.capped[key]))
    if row.bias is not None:
        steps.append(("+ bias of the position", row.scores[key]))
    readable = int((~row.masked).sum())
    steps.append((f"softmax over {readable} keys", row.weights[key]))
    note = "" if row.dtype == "float32" else f"The model computes in {row.dtype}, and so rounds every step."
    return {"steps": [[name, float(value)] for name, value in steps], "note": note}, []
