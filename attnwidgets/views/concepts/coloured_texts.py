"""Texts coloured by the values of their words: the same characters, in parts that have a number or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.standalone_view import cut, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.tracing.trace import Trace

    Part = list[Any]

WHOLE = 2000
"""Characters of a text that is read closely; the rest is cut off."""


def coloured(sample: Trace, text: str, method: str, target: str) -> list[Part]:
    """Return the parts of a text [text, number or None], by a method's attributions to a target.

    Args:
        sample: A trace of the model that reads it, with its tokenizer.
        text: The text.
        method: Name of a method that returns attributions.
        target: Class that is explained. A target that is not a class of the model, such as a number that a
            regression learned, is replaced by the prediction of the model.

    Raises:
        ValueError: The method cannot explain the model.
    """
    from attnwidgets.explanations.registry.registry import explain
    from attnwidgets.explanations.targets.resolve import class_names
    from attnwidgets.tracing.recording.run import trace

    read = trace(sample.model, sample.tokenizer, text, truncation=True)
    result: Any = explain(read, method, **({"target": target} if target in class_names(read) else {}))
    by_word = result.to("word")
    unit = by_word.axis.units["word"]
    words = [
        (label, float(value))
        for label, value, is_special in zip(unit.labels, by_word.values, unit.special, strict=True)
        if not is_special
    ]
    return _parts(cut(text, WHOLE), words)


def _parts(text: str, words: Iterable[tuple[str, float]]) -> list[Part]:
    """Return a text in parts: its words with their numbers, and the characters between them."""
    parts: list[Part] = []
    at = 0
    for word, value in words:
        start = text.find(word, at)
        if start < 0:  # cut off, or of a tokenizer that writes words otherwise
            continue
        if start > at:
            parts.append([text[at:start], None])
        at = start + len(word)
        parts.append([word, number(value)])
    return [*parts, [text[at:], None]] if at < len(text) else parts
