"""Predictions: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.base.accepts import is_trace
from attnwidgets.views.interventions.handlers import Intervening
from attnwidgets.views.interventions.specs import Intervened
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from attnwidgets.tracing.continuations import How
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base.options import ViewOptions

_LONGEST = 200  # tokens of a continuation that a page may ask for
_MOST = 20  # continuations at once


class Predictions(Intervening):
    """What the model says next, or which class, and what it would write.

    The distribution is there for every temperature, top k and top p: sliders act in the browser, on the 200
    largest logits and the exact weight of all others. A click on an outcome makes it the target of the
    methods that explain one, with Shift the foil. Below are continuations, made when they are asked for
    (see `aw.continuations`), and the surprisal of every token of the text (see `aw.surprisal`); a click on
    one shows what the model expected in its place. While heads are knocked out or rows of attention set in a
    linked view (see `InterventionView`), it shows before and after.
    """

    _VIEW = "Predictions"
    PARTS = ("explorer", "interventions")

    def __init__(self, shown: Any, **options: Unpack[ViewOptions]) -> None:
        self._predicts = shown if is_trace(shown) else None
        self._intervened = Intervened.of(shown)
        super().__init__(shown, **options)

    def _handlers(self) -> Mapping[str, Handler]:
        return prediction_topics(self._predicts) | self._intervention_topics(rows=False)


def prediction_topics(trace: Trace | None) -> dict[str, Handler]:
    """Return what a panel of predictions asks of a trace; nothing where it predicts nothing."""
    if trace is None or getattr(trace, "logits", None) is None or not trace.predictions_title:
        return {}

    def surprised() -> tuple[dict[str, Any], ...]:
        return ({},) if _reads_on(trace) else ()

    return {
        "outcomes": Handler(lambda **args: _outcomes(trace, **args), for_page=_once),
        "surprisal": Handler(lambda: _surprisal(trace), for_page=surprised),
        "continuations": Handler(lambda **args: _continuations(trace, **args), runs_model=True),
    }


def _once() -> tuple[dict[str, Any], ...]:
    return ({},)


def _reads_on(trace: Trace) -> bool:
    """Return whether the tokens of a trace were predicted one after the other."""
    from attnwidgets.explanations.attribution.surprisal import surprisals

    try:
        surprisals(trace)
    except ValueError:
        return False
    return True


def _outcomes(trace: Trace, position: int | None = None) -> tuple[dict[str, Any], list[bytes]]:
    from attnwidgets.tracing.top_logits import TEMPERATURES, outcomes

    found = outcomes(trace, position)
    meta = {
        "title": found.title,
        "ids": list(found.ids),
        "labels": list(found.labels),
        "count": found.count,
        "multiple": found.multiple,
        "temperatures": list(TEMPERATURES),
        "actual": None
        if found.actual is None
        else dict(zip(("id", "label", "logit", "before"), found.actual, strict=True)),
    }
    return meta, [found.logits.astype("<f4").tobytes(), found.rest.astype("<f8").tobytes()]


def _surprisal(trace: Trace) -> tuple[dict[str, Any], list[bytes]]:
    from attnwidgets.explanations.attribution.surprisal import MEASURES, surprisals

    stack = "decoder" if "decoder" in trace.stacks else trace.default_stack
    values = surprisals(trace) / MEASURES["bits"]
    tokens = trace.axes(stack)[0].units["token"]
    known = values[np.isfinite(values)]
    meta = {
        "labels": list(tokens.labels),
        "special": [int(flag) for flag in tokens.special],
        "mean": float(known.mean()) if len(known) else 0.0,
    }
    return meta, [values.astype("<f4").tobytes()]


def _continuations(
    trace: Trace,
    how: How,
    n: int,
    length: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> tuple[dict[str, Any], list[bytes]]:
    from attnwidgets.tracing.continuations import continuations

    if not 1 <= n <= _MOST or not 1 <= length <= _LONGEST:
        raise ValueError(f"a page may ask for 1 to {_MOST} continuations of 1 to {_LONGEST} tokens")
    drawing = {"temperature": temperature, "top_k": top_k or None, "top_p": top_p, "seed": seed}
    options: dict[str, Any] = drawing if how == "sample" else {}
    found = continuations(trace, how, n, max_new_tokens=length, **options)
    items = [
        {"tokens": list(one.tokens), "logs": list(one.log_probabilities), "ended": one.ended} for one in found
    ]
    return {"items": items}, []
