"""The panel of predictions: the next token or class, continuations, and the surprisal of the text."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.interventions.intervention_view import Intervening
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.tracing.continuations import How
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer

_LONGEST = 200  # tokens of a continuation that a page may ask for
_MOST = 20  # continuations at once

_FRAME_TALL, _OUTCOME_TALL = (
    190,
    46,
)  # CSS pixels around classes, and of one before and after


class Predictions(Intervening):
    """What the model says next, or which class, and what it would write.

    Sliders for temperature, top k and top p act in the browser, on the 200 largest logits and the exact
    weight of all others. Click an outcome to explain it in linked views; with Shift it becomes the foil.
    Next to it are continuations, generated on request (see `aw.continuations`), and the surprisal of every
    token of the text (see `aw.surprisal`); click a token to see what the model expected in its place. While
    heads are knocked out or rows of attention are set in a linked view (see `InterventionView`), the view
    compares predictions before and after.
    """

    _VIEW = "Predictions"
    NEEDS = Needs(("explorer", "interventions"))
    _HEIGHT = 420

    def __init__(self, shown: Any, **options: Unpack[ViewOptions]) -> None:
        classes = is_trace(shown) and getattr(shown, "predictions_title", "") == "class"
        if classes and not options.get("height"):
            options["height"] = min(self._HEIGHT, _FRAME_TALL + _OUTCOME_TALL * len(shown.predictions()))
        super().__init__(shown, **options)

    def _handlers(self) -> Mapping[str, Handler]:
        return prediction_handlers(self.content.trace) | self._intervention_handlers(rows=False)

    def describe(self) -> str:
        """Return the largest outcomes in a sentence, or before and after the active interventions."""
        from attnwidgets.views.still.predictions import words_of_predictions

        return words_of_predictions(self)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.predictions import predictions_sheet

        return predictions_sheet(self, theme)


def prediction_handlers(trace: Trace | None) -> dict[str, Handler]:
    """Return the handlers of a panel of predictions; none if the trace has no predictions.

    - "outcomes" (position: a token, None: where the model predicts): the fields of `Outcomes`, with the
      temperatures; buffers logits [outcome] (float32) and rest [temperature] (float64).
    - "surprisal" (no arguments), only if tokens were predicted one after the other: labels and special of the
      tokens, their mean; buffer surprisal in bits [token] (float32), NaN for the first.
    - "continuations" (how, n, length, temperature, top_k, top_p, seed): items, each with tokens, logs
      (natural log-probability of every token) and ended.
    """
    if trace is None or getattr(trace, "logits", None) is None or not trace.answer.is_distribution:
        return {}
    arguments = partial(_surprisal_arguments, trace)
    return {
        "outcomes": Handler(partial(_outcomes, trace), for_page=_no_arguments),
        "surprisal": Handler(partial(_surprisal, trace), for_page=arguments),
        "continuations": Handler(partial(_continuations, trace), runs_model=True),
    }


def _no_arguments() -> tuple[dict[str, Any], ...]:
    """Return one request, without arguments."""
    return ({},)


def _surprisal_arguments(trace: Trace) -> tuple[dict[str, Any], ...]:
    """Return one request if the tokens of a trace were predicted one after the other, else none."""
    from attnwidgets.explanations.attribution.surprisal import surprisals

    try:
        surprisals(trace)
    except ValueError:
        return ()
    return ({},)


def _outcomes(trace: Trace, position: int | None = None) -> Answer:
    from attnwidgets.tracing.predictions import TEMPERATURES, outcomes

    top = outcomes(trace, position)
    meta = {
        "title": top.title,
        "ids": list(top.ids),
        "labels": list(top.labels),
        "count": top.count,
        "multiple": top.multiple,
        "temperatures": list(TEMPERATURES),
        "actual": top.actual and dict(zip(("id", "label", "logit", "before"), top.actual, strict=True)),
    }
    return meta, [top.logits.astype("<f4").tobytes(), top.rest.astype("<f8").tobytes()]


def _surprisal(trace: Trace) -> Answer:
    from attnwidgets.explanations.attribution.surprisal import MEASURES, surprisals

    stack = "decoder" if "decoder" in trace.stacks else trace.default_stack
    bits = surprisals(trace) / MEASURES["bits"]
    tokens = trace.axes(stack)[0].units["token"]
    known = bits[np.isfinite(bits)]
    meta = {
        "labels": list(tokens.labels),
        "special": [int(flag) for flag in tokens.special],
        "mean": float(known.mean()) if len(known) else 0.0,
    }
    return meta, [bits.astype("<f4").tobytes()]


def _continuations(
    trace: Trace,
    how: How,
    n: int,
    length: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Answer:
    from attnwidgets.tracing.continuations import continuations

    if not 1 <= n <= _MOST or not 1 <= length <= _LONGEST:
        raise ValueError(f"a page may ask for 1 to {_MOST} continuations of 1 to {_LONGEST} tokens")
    sampling: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k or None,
        "top_p": top_p,
        "seed": seed,
    }
    texts = continuations(trace, how, n, max_new_tokens=length, **(sampling if how == "sample" else {}))
    items = [
        {"tokens": list(text.tokens), "logs": list(text.log_probabilities), "ended": text.ended}
        for text in texts
    ]
    return {"items": items}, []
