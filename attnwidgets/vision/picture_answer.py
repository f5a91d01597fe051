"""An answer to a text with a picture: its words, and the tokens of the picture that it may rest on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.circuits.sentences.answer_parts import answer_tokens
from attnwidgets.circuits.sentences.part_passes import log_p_of
from attnwidgets.circuits.sentences.sentence_attribution import LONG_WORK
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.text.units import Unit
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.explanation import Explanation
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]


@dataclass(frozen=True)
class PartValues:
    """What a method measures for the words of an answer.

    Attributes:
        values: [word, part].
        picture: Of the whole picture [word].
        text: Of the text [word].
        parts: The parts of the picture, with their boxes.
        residual: What neither has of the number that they share [word]; None where nothing is shared out.
        notes: Remarks of the method, besides those of the trace.
    """

    values: Float
    picture: Float
    text: Float
    parts: Unit
    residual: Float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PictureAnswer:
    """An answer, word by word, in a trace of a picture and a text.

    Attributes:
        trace: The trace.
        stack: Its stack of the text.
        logits: [token, vocabulary].
        ids: All token ids.
        given: The picture [row, column, channel].
        words: The words of the answer.
        spans: The tokens of each word.
        shown: Positions of the picture's tokens that have a box.
        inside: Positions of all tokens of the picture, also of its new lines and class tokens.
    """

    trace: Trace
    stack: str
    logits: Tensor = field(repr=False)
    ids: list[int] = field(repr=False)
    given: NDArray[np.uint8] = field(repr=False)
    words: tuple[str, ...]
    spans: tuple[tuple[int, ...], ...]
    shown: list[int]
    inside: list[int]

    @property
    def tokens(self) -> Unit:
        """The tokens of the text, with the boxes of the picture's."""
        return self.trace.axes(self.stack)[0].units["token"]

    @property
    def writes_deeper(self) -> bool:
        """Whether the tower also adds to the states of later layers of the language model (Qwen3-VL)."""
        config = getattr(self.trace.model.config, "vision_config", None)
        return bool(getattr(config, "deepstack_visual_indexes", None))

    def log_p(self, logits: Tensor) -> Float:
        """Return log p of every word from logits [token, vocabulary]: [word]."""
        tokens = [token for span in self.spans for token in span]
        return self.by_word(log_p_of(self.trace, logits, 0, tokens, [token - 1 for token in tokens]))

    def word_logits(self) -> Float:
        """Return the sum of the logits of every word's tokens [word]."""
        tokens = [token for span in self.spans for token in span]
        return self.by_word([float(self.logits[token - 1, self.ids[token]]) for token in tokens])

    def by_word(self, values: Any) -> Float:
        """Return values of the answer's tokens, in their order, summed over words [word, ...]."""
        ends = np.cumsum([len(span) for span in self.spans])[:-1]
        return np.stack([part.sum(0) for part in np.split(np.asarray(values, dtype=np.float64), ends)])

    def notes(self, result: Explanation) -> tuple[str, ...]:
        """Return the warnings of a method's result that the trace does not have."""
        return tuple(note for note in result.warning.split("; ") if note and note not in self.trace.warning)

    def picture_unit(self) -> Unit:
        """Return the unit of the picture's tokens that have a box."""
        tokens, shown = self.tokens, self.shown
        return Unit(
            "patch",
            tuple(tokens.labels[at] for at in shown),
            tuple((at,) for at in range(len(shown))),
            (False,) * len(shown),
            tokens.grid,
            cells=None if tokens.cells is None else tuple(tokens.cells[at] for at in shown),
            boxes=tuple((tokens.boxes or ())[at] for at in shown),
        )

    def say_if_long(self, passes: int) -> None:
        """Report the cost of a method, where its passes take long; called by the method's function."""
        n = len(self.ids)
        weights = sum(parameter.numel() for parameter in self.trace.model.parameters())
        if passes * n * weights >= LONG_WORK:
            warnings.warn(
                f'vision.sources takes {passes:,} passes of {n:,} tokens; by="lrp" takes one, and one back '
                "for every word.",
                UserWarning,
                stacklevel=4,
            )


def picture_answer(trace: Trace, answer: Any) -> PictureAnswer:
    """Return an answer to a text with a picture.

    Args:
        trace: The trace.
        answer: The answer's tokens as a pair (start, end), or None: what was generated.

    Raises:
        ValueError: If the answer has no tokens, or the places of the picture's tokens or its pixels are not
            known.
        UnsupportedModelError: If the trace has no model, or it predicts no tokens from those before.
    """
    if trace.model is None or trace.logits is None or trace.logits.dim() != TOKENS:
        raise UnsupportedModelError("vision.sources needs a trace with a model that predicts tokens.")
    if len(trace.logits) != len(trace.tokens) or trace.input_ids is None:
        raise UnsupportedModelError(
            "vision.sources needs the logits of every token of a text with a picture."
        )
    require_same_model(trace, "vision.sources")
    stack, picture = trace.default_stack, trace.picture
    if trace.axes(stack)[0].units["token"].boxes is None or picture is None or picture.given is None:
        raise ValueError(
            "vision.sources needs to know where the picture's tokens lie: trace the picture with its "
            "processor (`trace.warning` says what is not known)."
        )
    words = _words(trace, stack, answer_tokens(trace, answer))
    ids = [int(index) for index in trace.input_ids]
    shown = picture_tokens(trace)
    of_picture = {ids[at] for at in shown}
    return PictureAnswer(
        trace,
        stack,
        trace.logits,
        ids,
        picture.given,
        tuple(label for label, _ in words),
        tuple(tuple(span) for _, span in words),
        shown,
        [at for at, index in enumerate(ids) if index in of_picture],
    )


def picture_tokens(trace: Trace) -> list[int]:
    """Return the positions of the tokens that lie on the picture, which are parts of it, in their order."""
    unit = trace.axes(trace.default_stack)[0].units["token"]
    return [at for at, box in enumerate(unit.boxes or ()) if box is not None]


def _words(trace: Trace, stack: str, inside: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return the words of an answer, each with its tokens."""
    unit, members = trace.axes(stack)[0].units["word"], set(inside)
    pairs = [
        (label, [token for token in span if token in members])
        for label, span, special in zip(unit.labels, unit.spans, unit.special, strict=True)
        if not special
    ]
    return [(label, span) for label, span in pairs if span]
