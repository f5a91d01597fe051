"""Figures of predictions: outcomes, before and after a change or a removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.parts.lines import Line, Lines
from attnwidgets.figures.parts.matrix import Scale
from attnwidgets.figures.parts.numbers import Bar, Bars, Chips, Table
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Sheet, Words
from attnwidgets.tracing.trace_difference import predict
from attnwidgets.views.still.colours import strip_colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base.view import View

_CHIPS = 5
_LISTED = 10
_NEUTRAL = 1.0  # temperature


def probabilities_of(trace: Trace) -> tuple[str, list[tuple[int, str, float]]]:
    """Return the name of the prediction, and (number, name, probability) of its outcomes, largest first."""
    from attnwidgets.tracing.predictions import TEMPERATURES, outcomes

    top = outcomes(trace)
    logits = np.asarray(top.logits, dtype=np.float64)
    if top.multiple:
        shares = 1 / (1 + np.exp(-logits))
    else:
        rest = float(top.rest[TEMPERATURES.index(_NEUTRAL)])
        shares = np.exp(logits - np.logaddexp(np.logaddexp.reduce(logits), rest))
    return top.title, list(zip(top.ids, top.labels, shares.tolist(), strict=True))


def _predicting(view: Any) -> Trace | None:
    """Return the trace of a view if its model predicts something."""
    trace: Trace | None = view.content.trace
    return trace if trace is not None and predict(trace) else None


def _bars(trace: Trace) -> Bars:
    """Return the largest outcomes of a trace that predicts, or its numbers in their order."""
    if trace.logits is not None and trace.answer.is_numbers:
        numbers = zip(trace.answer.names, trace.logits.tolist(), strict=True)
        return Bars(
            [Bar(*number) for number in numbers][:_LISTED], title=trace.predictions_title, form="{:.4g}"
        )
    about, result = probabilities_of(trace)
    bars = [Bar(name, share) for _, name, share in result[:_LISTED]]
    return Bars(bars, title=f"{about}, probability", top=1.0, form="{:.3f}")


def chips_of(view: Any) -> list[Part]:
    """Return the largest outcomes in a line, or before and after the active interventions; maybe nothing."""
    trace = _predicting(view)
    if trace is None:
        return []
    if view.selection.interventions:
        return _change(view)
    if trace.answer.is_numbers:
        result: list[Any] = [
            (prediction.id, prediction.label, None) for prediction in trace.predictions(_CHIPS)
        ]
    else:
        _, result = probabilities_of(trace)
    target = view.selection.target
    chosen = next((i for i, item in enumerate(result[:_CHIPS]) if target and item[0] == target.id), None)
    return [Chips([(name, share) for _, name, share in result[:_CHIPS]], chosen)]


def words_of_predictions(view: Any) -> str:
    """Return the largest outcomes in a sentence, or before and after the active interventions."""
    trace = _predicting(view)
    if trace is None:
        return "The model of this trace predicts neither tokens nor classes."
    if view.selection.interventions:
        meta, _ = view._changed([dict(spec) for spec in view.selection.interventions])  # noqa: SLF001
        names = "; ".join(item.said for item in view.interventions())
        outcomes = [
            f"“{label}” {after:.3f} (before: {before:.3f})" for _, label, before, after in meta["rows"]
        ]
        return f"{meta['title'].capitalize()} with {names}: {', '.join(outcomes[:_CHIPS])}."
    if trace.answer.is_numbers and trace.logits is not None:
        values = zip(trace.answer.names, trace.logits.tolist(), strict=True)
        outcomes = [f"“{name}” {value:.4g}" for name, value in values]
        return f"{trace.predictions_title.capitalize()}: {', '.join(outcomes[:_CHIPS])}."
    title, largest = probabilities_of(trace)
    outcomes = [f"“{name}” {share:.1%}" for _, name, share in largest[:_CHIPS]]
    return f"{title.capitalize()}: {', '.join(outcomes)}."


def predictions_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a Predictions view: outcomes, and the surprisal of the text."""
    title = str(view.options["title"]) or "predictions"
    trace = _predicting(view)
    if trace is None:
        return Sheet(title, note="The model of this trace predicts neither tokens nor classes.")
    if view.selection.interventions:
        return Sheet(title, _change(view))
    return Sheet(title, [_bars(trace), *_surprisal(view, theme)])


def _surprisal(view: View, theme: Theme) -> list[Part]:
    """Return the text coloured by surprisal, if the model predicted it token by token."""
    answers = [answer for topic, _, answer in view.requests.for_page() if topic == "surprisal"]
    if not answers:
        return []
    meta, (data,) = answers[0]()
    bits = np.frombuffer(data, "<f4").astype(np.float64)
    colours, norm = strip_colours({}, theme, bits, signed=False)
    return [
        Words("surprisal of the text", quiet=False, bold=True),
        Text(bits[None], meta["labels"], colours, norm),
        Scale(colours, norm, f"bits; {meta['mean']:.2f} on average"),
    ]


def interventions_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of an InterventionView: active interventions, and predictions before and after."""
    del theme
    title = str(view.options["title"]) or "interventions"
    trace = view._intervened.trace  # noqa: SLF001 - a part of the view
    if view.selection.interventions:
        return Sheet(title, _change(view))
    parts: list[Part] = [Words("no intervention is active")]
    if trace is not None and predict(trace):
        parts.append(_bars(trace))
    return Sheet(title, parts)


def _change(view: Any) -> list[Part]:
    """Return the active interventions, and the predictions before and after."""
    specs = [dict(spec) for spec in view.selection.interventions]
    made = view.interventions()
    meta, _ = view._changed(specs)  # noqa: SLF001 - as its browser side asks
    names = "; ".join(item.said for item in made)
    bars = [Bar(label, after, before=before) for _, label, before, after in meta["rows"][:_LISTED]]
    parts: list[Part] = [Words(names, quiet=False)]
    if bars:
        top = 1.0 if meta["kind"] in {"distribution", "several"} else None
        parts.append(Bars(bars, title=f"{meta['title']}: before → after", top=top, form="{:.3f}"))
    if meta["distance"] is not None:
        parts.append(Words(f"distance {meta['distance']:.3f}"))
    return parts


def words_of_removal(view: Any) -> str:
    """Return a sentence on the effect of removing the first elements; "" where it takes long to compute."""
    args = next(view._removals._opening("removal"), None)  # noqa: SLF001 - a part of the view
    if args is None:
        return ""
    meta, (values, *_) = view._removals._steps(**args)  # noqa: SLF001
    source = next(source for source in view.store.sources() if source.id == args["source"])
    labels, steps = source.axes()[1]["labels"], meta["steps"]
    left = np.frombuffer(values, "<f8").reshape(2, -1)[0]
    order = [f"“{labels[element]}”" for element in meta["order"]]
    form = ".1%" if meta["score"] == "probability" else ".4g"
    parts = [
        f"{left[at]:{form}} without {order[0] if steps[at] == 1 else f'the top {steps[at]} {source.unit}s'}"
        for at in range(1, min(len(steps), 3))
    ]
    title = f"{source.title}, checked by removal ({meta['operator']})"
    return f"{title}: “{meta['target']}” is at {left[0]:{form}}, {', '.join(parts)}."


def removal_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a RemovalView: the curves of removing and of keeping, and the order of removal."""
    answers = {
        topic: answer
        for topic, _, answer in reversed([*view.requests.for_page()])
        if topic.startswith("removal")
    }
    meta, (curve_data, _, _, values) = answers["removal"]()
    basis, lines = answers["removal_baselines"]()
    steps, count = meta["steps"], len(meta["steps"])

    def rows(data: bytes) -> NDArray[np.float64]:
        return np.frombuffer(data, "<f8").reshape(2, -1)

    curves = rows(curve_data)
    mean, low, high, single = (rows(data) for data in lines)
    score = "probability" if meta["score"] == "probability" else "score"
    parts: list[Part] = []
    for side, name in enumerate(("removed", "kept")):
        drawn = [Line("explanation", curves[side][:count])]
        if basis["steps"] == steps:
            about = f"random order, mean of {basis['draws']}"
            drawn += [
                Line(about, mean[side], dashed=True),
                Line("single removals", single[side], dashed=True),
            ]
            drawn[1] = Line(about, mean[side], dashed=True, low=low[side], high=high[side])
        words = f"{score} of {meta['target']}"
        parts.append(Lines(drawn, steps, f"top tokens {name}", words, tall=1.6))
    scores = np.frombuffer(values, "<f8")
    source = next(s for s in view.sources() if s.shape[1] == len(scores))
    labels = source.axes()[1]["labels"]
    colours, norm = strip_colours({}, theme, scores, signed=bool((scores < 0).any()))
    parts += [Text(scores[None], labels, colours, norm), Scale(colours, norm, source.title)]
    title = str(view.options["title"]) or f"removal of tokens: {meta['title']} {meta['target']}"
    return Sheet(title, parts, meta["warning"])


def steer_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of a SteerView at its slider's start: the predictions before and after."""
    del theme
    feature = view._opening_feature()  # noqa: SLF001 - as its browser side asks
    kind = next(iter(view.options["kinds"]), "")
    title = str(view.options["title"]) or f"feature {feature}, steered to its maximum"
    if not kind:
        return Sheet(title, note="There is nothing to compare: the model predicts nothing.")
    try:
        meta, _ = view._comparison(kind, feature, 1)  # noqa: SLF001
    except ValueError as error:  # the view says so as well
        return Sheet(title, note=str(error))
    parts: list[Part] = []
    if "texts" in meta:
        texts = ["".join(str(run[0]) for run in side) for side in meta["texts"]]
        parts.append(Table(("", "text"), list(zip(("before", "after"), texts, strict=True))))
    else:
        bars = [Bar(label, after, before=before) for label, before, after in meta["rows"][:_LISTED]]
        about = view.options.get("predicted") or "likeness"
        parts.append(Bars(bars, title=f"{about}: before → after", form="{:.3f}"))
    return Sheet(title, parts, f"states change by {meta['change']:.1%} of their length")
