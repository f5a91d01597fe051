"""Texts coloured by what each word does: the same characters, in parts that have a number or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.texts_view import LONGEST, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.tracing.trace import Trace

    Part = list[Any]


def coloured(sample: Trace, text: str, method: str, target: Any) -> list[Part]:
    """Return the parts of a text [text, number or None], by a method's attributions to a target.

    Args:
        sample: A trace of the model that reads it, with its tokenizer.
        text: The text; what is longer than the browser is told is cut off.
        method: Name of a method that returns attributions.
        target: What is explained; None: what the model predicts.

    Raises:
        ValueError: The method cannot explain the model.
    """
    from attnwidgets.explanations.registry.registry import explain
    from attnwidgets.tracing.recording.run import trace

    read = trace(sample.model, sample.tokenizer, text, truncation=True)
    found: Any = explain(read, method, **({} if target in (None, "") else {"target": target}))
    by_word = found.to("word")
    unit = by_word.axis.units["word"]
    words = [
        (label, float(value))
        for label, value, is_special in zip(unit.labels, by_word.values, unit.special, strict=True)
        if not is_special
    ]
    return _parts(text, words)


def _parts(text: str, words: Iterable[tuple[str, float]]) -> list[Part]:
    """Return a text in parts: its words with their numbers, and what is between them."""
    parts: list[Part] = []
    at = 0
    for word, value in words:
        start = text.find(word, at)
        if start < 0:  # a tokenizer that writes words otherwise
            continue
        if start > at:
            parts.append([text[at:start], None])
        at = start + len(word)
        parts.append([word, number(value)])
        if at > LONGEST:
            return [*parts, ["…", None]]
    return [*parts, [text[at:], None]] if at < len(text) else parts
