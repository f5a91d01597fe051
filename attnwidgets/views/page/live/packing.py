"""Packs the models and tokenizers of a live page, with the views that show the texts of each.

A page computes GPT-2, Llama and BERT itself (`js/src/live/`). Every model is therefore run by the same steps
in numpy (`forward.py`) and compared with torch and its recorded logits before it is packed. Models and
tokenizers that a page cannot compute raise an error with the reason.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.base.texts import given_text
from attnwidgets.views.page.contents import LEVEL
from attnwidgets.views.page.live.files import ModelFiles
from attnwidgets.views.page.live.readers import packed_reader
from attnwidgets.views.page.live.weights import MOST_PARAMETERS, layout_of, named_weights
from attnwidgets.views.page.script import base64_text

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.views.base.view import View
    from attnwidgets.views.page.live.weights import Layout
    from attnwidgets.views.page.other_texts import Group

BAR = "LiveBar"
"""The view with the line that the reader types: js/src/live/LiveBar.ts."""

UNITS = ("token", "word", "sentence", "paragraph")
_DIGITS = 7  # of the logits that a page is checked with
_CHECKED = 512  # outcomes, the last ones: of a large vocabulary, all would be as long as the page
_ROUNDING = 0.1  # of logits, as a share of the largest, when weights are rounded
_TOKENS = ((MOST_PARAMETERS, None), (50_000_000, 256), (float("inf"), 128))
"""Parameters of models, and the most tokens of a text for which a browser has the memory."""
_SEEN = 1e-3  # of a weight of attention, from which on rounding is said in numbers


def add_live(
    groups: Sequence[Group],
    names: Mapping[View | None, str],
    state: MutableMapping[str, Any],
    blobs: MutableMapping[str, str],
    weights: str = "auto",
    *,
    in_files: bool = False,
    prefix: str = "",
) -> list[ModelFiles]:
    """Add the models of groups of views to the contents of a page, and a line for the reader's text.

    Args:
        groups: Views that show the same text, and go to another text together.
        names: The names of their models.
        state: The `Page` of js/src/host/standalone.ts.
        blobs: The bytes that the page holds, by the id of their element.
        weights: How the numbers of the models travel; see `to_html`.
        in_files: Whether all models travel in files next to the page, not only large ones.
        prefix: Beginning of the names of what is added.

    Returns:
        The models that travel in files.

    Raises:
        ValueError: A model or a tokenizer cannot run in a page, or there is none; the message names the
            unsupported part.
    """
    if not groups:
        raise ValueError(
            "live=True: no view of this page was given a trace with its model, which "
            "aw.trace(model, tokenizer, text) returns."
        )
    models = state["models"]
    layouts: dict[Any, Layout] = {}
    files: dict[str, ModelFiles] = {}
    for number, group in enumerate(groups):
        lead = next(line for line in group.views if None not in line)
        traces = [view.trace for view in lead if view is not None]
        try:
            entry = _described(traces, group, weights, layouts)
        except ValueError as error:
            raise ValueError(f"live=True: {str(error).rstrip('.')}.") from error
        blob, bar = f"aw-{prefix}live-{number}", f"{prefix}live{number}"
        data = entry.pop("weights")
        if in_files or entry["parameters"] > MOST_PARAMETERS:
            model = ModelFiles.of(entry["model"], data, entry["reader"])
            files[model.name] = model
            entry |= {"reader": None, "files": model.described()}
        else:
            blobs[blob] = base64_text(zlib.compress(data, LEVEL))
        shown = [models[names[view]]["state"] for view in lead]
        entry |= {"blob": blob, "bar": bar, "group": number}
        stores = (item["store"].removeprefix("anywidget:") for item in shown)
        entry["stores"] = dict(zip(stores, entry["stores"], strict=True))
        state.setdefault("live", []).append(entry)
        line = []
        for index, trace in enumerate(traces):
            name = bar if index == group.shown else f"{bar}-{index}"
            plain = {"filters": {}, "title": "", "text": given_text(trace)}
            models[name] = {"kind": "view", "view": BAR, "state": {**shown[group.shown], "options": plain}}
            line.append(name)
        state["texts"][number]["views"].append(line)
        for view in (view for line in group.views for view in line if view is not None):
            options = models[names[view]]["state"]["options"]
            if "texts" in options:
                options["texts"] = {**options["texts"], "refusal": ""}
            if "lrp" in options["methods"]:  # its other rule is a method in the page
                options["methods"] = [*options["methods"], "cp_lrp"]
    return list(files.values())


def _described(
    traces: Sequence[Any], group: Group, weights: str, layouts: MutableMapping[Any, Layout]
) -> dict[str, Any]:
    """Return the `PackedLive` of js/src/live/session.ts, with the ids of all texts, and the weights."""
    from attnwidgets.tracing.predictions import read_ids
    from attnwidgets.tracing.recording.borrow import unwrap

    first = traces[group.shown]
    for trace in traces:
        if trace.model is not first.model:
            raise ValueError("its texts are of several models")
        require_computable(trace)
    ordered = [first, *(trace for trace in traces if trace is not first)]
    model = unwrap(first.model)
    if model not in layouts:
        layouts[model] = layout_of(model, weights)
    stores = [read_ids(trace) for trace in traces]
    return described(ordered, layouts[model]) | {"units": _units(group), "stores": stores}


def require_computable(trace: Any) -> None:
    """Raise a ValueError for a trace that was not made as a page would make it; runs no model."""
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.retrace import refusal

    if trace.model is None:
        raise ValueError("the numbers of a trace were given without a model")
    if why := refusal(trace):
        raise ValueError(f"a page computes what aw.trace(model, tokenizer, text) does, and here {why}")
    named_weights(unwrap(trace.model))  # names the kind of model before other options
    _require_plain(trace)


def described(traces: Sequence[Any], layout: Layout) -> dict[str, Any]:
    """Return the `PackedLive` of js/src/live/session.ts of the model of some texts, and the weights.

    Args:
        traces: The texts; the page checks itself with the first.
        layout: The model as the page has it.

    Raises:
        ValueError: The model or the tokenizer cannot run in a page; the message names the unsupported part.
    """
    import torch

    from attnwidgets.statistics.patterns import PATTERNS
    from attnwidgets.tracing.predictions import read_ids
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.inputs import limit_of, text_tokenizer
    from attnwidgets.tracing.retrace import retraced
    from attnwidgets.views.heads.handlers import described_pattern
    from attnwidgets.views.page.live.forward import torch_logits

    first = traces[0]
    model, tokenizer = unwrap(first.model), text_tokenizer(first.tokenizer)
    # The page has the numbers of a model in float32 on the CPU that needed no rounding.
    is_same = not layout.rounded and all(
        parameter.dtype == torch.float32 and parameter.device.type == "cpu"
        for parameter in model.parameters()
    )
    rounded = model if is_same and not model.training else layout.rounded_copy(model)
    logits = torch_logits(rounded, first.inputs, layout)
    _require_same(first, logits)
    limits = (layout.positions, limit_of(model, tokenizer), getattr(tokenizer, "model_max_length", None))
    count = sum(parameter.numel() for parameter in model.parameters())
    room = next((tokens for most, tokens in _TOKENS if count <= most), None)
    if room is not None:
        room = max(room, *(len(read_ids(trace)) for trace in traces))
    longest = int(min(limit for limit in (*limits, room) if limit is not None))
    reader = packed_reader(tokenizer, longest)
    computed = [
        retraced(trace, given_text(trace), rounded) for trace in (traces if layout.rounded else traces[:1])
    ]
    predicts = _predicts(first, layout.shape["reads"], reader)
    return {
        "name": type(model).__name__,
        "parameters": count,
        "files": None,
        "model": layout.described(),
        "weights": layout.data(),
        "rounding": _rounding(layout.rounded, traces, computed),
        "reader": reader,
        "predicts": predicts,
        "patterns": [described_pattern(pattern) for pattern in PATTERNS],
        "longest": longest,
        "check": {
            "text": given_text(first),
            "ids": read_ids(first),
            "logits": [float(f"{value:.{_DIGITS}g}") for value in logits[-_CHECKED:]],
            "relevance": _relevance(computed[0], predicts["kind"]),
        },
    }


def _rounding(rounded: str, traces: Sequence[Any], computed: Sequence[Any]) -> str:
    """Return by how much rounding changes the attention of a page's texts, in words; "" without rounding."""
    if not rounded:
        return ""
    most = max(
        float((trace.attention_layer(layer) - other.attention_layer(layer)).abs().max())
        for trace, other in zip(traces, computed, strict=True)
        for layer in range(trace.n_layers())
    )
    differs = f": attention differs by up to {most:.1g}" if most >= _SEEN else ""
    return f"weights rounded to {rounded}{differs}"


def _relevance(trace: Any, kind: str) -> dict[str, Any] | None:
    """Return the relevance of tokens for the most probable outcome; None where `aw.lrp` refuses the model."""
    from attnwidgets.explanations.attribution.lrp import lrp

    if kind not in {"class", "next token"}:
        return None
    try:
        values = lrp(trace).values
    except ValueError:
        return None
    tokens = [float(f"{value:.{_DIGITS}g}") for value in values]
    return {"row": -1, "plus": trace.predictions(1)[0].id, "minus": None, "tokens": tokens}


def _require_same(trace: Any, logits: NDArray[np.float64]) -> None:
    """Raise a ValueError for a model that changed since: numbers of two models would stand side by side."""
    if trace.logits is None:
        return
    recorded = np.atleast_2d(trace.logits.double().numpy())[-1]
    largest = np.abs(recorded).max(initial=0)
    if np.abs(recorded - logits).max(initial=0) > _ROUNDING * max(largest, 1.0):
        raise ValueError(
            "the model is not the one that was traced: it was changed since, so trace the text again"
        )


def _require_plain(trace: Any) -> None:
    """Raise a ValueError for an option of a trace that a page does not apply to a typed text."""
    for name, value in trace.asked.options.items():
        if name == "words" and value not in {None, "standard"}:
            raise ValueError(f"words={value!r} is not a rule by which a page finds words")
        if name in {"target_text", "max_new_tokens", "text_pair"} and value:
            raise ValueError(f"{name}={value!r} is not done with a text that is typed in a page")


def _predicts(trace: Any, reads: str, reader: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `Predicts` of js/src/live/predictions.ts."""
    from attnwidgets.tracing.anatomy.forward import can_generate
    from attnwidgets.tracing.predictions import label_of
    from attnwidgets.tracing.recording.borrow import unwrap

    model, tokenizer = unwrap(trace.model), trace.tokenizer
    mask = getattr(tokenizer, "mask_token_id", None)
    kind = ""
    if can_generate(model):
        kind = "next token"
    elif reads in {"first", "last"} and trace.answer.is_distribution:
        kind = "class"
    elif reads in {"first", "last"} and trace.answer.is_numbers:
        kind = trace.predictions_title
    elif type(model).__name__.endswith("ForMaskedLM") and isinstance(mask, int):
        kind = "mask"
    elif type(model).__name__.endswith("ForTokenClassification"):
        kind = "classes"
    count = 0 if trace.logits is None or not kind else int(trace.logits.shape[-1])
    config: Any = model.config
    names: dict[int, str] = config.id2label if kind == "classes" else {}
    # The tokens of a large vocabulary are spelled by the page's tokenizer: they are not written twice.
    in_reader = kind in {"next token", "mask"} and reader["kind"] != "characters"
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return {
        "kind": kind,
        "numbers": trace.answer.is_numbers,
        "several": kind == "class" and trace.answer.several,
        "outcomes": count,
        "labels": None
        if in_reader
        else [str(names.get(item) or label_of(trace, item)) for item in range(count)],
        "mask": [mask, str(tokenizer.mask_token)] if kind == "mask" else None,
        "ends": ends if isinstance(ends, list) else [] if ends is None else [int(ends)],
    }


def _units(group: Group) -> list[str]:
    """Return the units in which views of a group can be read: all, unless every view was given some."""
    given = [view.options["units"] for line in group.views for view in line if view is not None]
    allowed = set(UNITS) if not all(given) else {unit for units in given for unit in units}
    return [unit for unit in UNITS if unit in allowed]
