"""aw.vision.sources: on which part of a picture each word of an answer rests."""

from __future__ import annotations

import math
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._tables import Table
from attnwidgets.circuits.sentences.answer_parts import answer_tokens
from attnwidgets.circuits.sentences.part_passes import log_p_of
from attnwidgets.circuits.sentences.sentence_attribution import LONG_WORK
from attnwidgets.circuits.sentences.sources import WEAK
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.explanations.viewable import Viewable, bundle_of
from attnwidgets.intervene.edit_attention import suppress
from attnwidgets.intervene.preview import preview
from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.predictions import logits_in
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.tracing.text.units import Unit
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.text.units import Box
    from attnwidgets.tracing.trace import Trace

    By = Literal["paint", "hide"]
    Scores = Callable[[Tensor], NDArray[np.float64]]

PAPER = "Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks"
_BLOCKS, _REFINED = 6, 4  # blocks of the shorter side at first; blocks that are then divided into four
REMOVALS: dict[By, str] = {
    "paint": "parts of the picture painted over with its mean colour: the tower reads it again",
    "hide": "tokens hidden from the text: the tower may have copied their content to others",
}
"""How parts are taken away."""


@dataclass(frozen=True, repr=False)
class PictureSources(Table, Viewable):
    """How much less likely each word of an answer is without a part of the picture.

    Displayed, and by `.view()`, it is the picture with its parts, for each word that rests on some.

    Attributes:
        scores: Nats [word, part], on one scale for all words: Attributions, whose elements have boxes
            (`.source_unit.boxes`, in pixels of the given picture). Negative: the word is likelier without.
        picture: Nats that each word loses without the whole picture [word].
        text: Nats by which each word is likelier without the picture than a token chosen at random [word].
            With `picture`, the sum is log p(word) + log(size of the vocabulary) for every token of it.
        by: "paint" or "hide".
        spans: The tokens of each word.
        trace: The picture and its text, with the model.
    """

    kind: ClassVar[str] = "PictureSources"
    viewed_by: ClassVar[str] = "circuits.sources_view:SourcesView"

    scores: Attributions
    picture: tuple[float, ...]
    text: tuple[float, ...]
    by: By
    spans: tuple[tuple[int, ...], ...]
    trace: Trace

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the answer."""
        target = self.scores.target
        return target if isinstance(target, tuple) else (str(target),)

    def strongest(self) -> tuple[Box | None, ...]:
        """Return the box of the part that each word rests on most.

        None where no part matters much: the largest is below 0.6 nats.
        """
        boxes = self.scores.source_unit.boxes or ()
        best = self._values().argmax(1)
        return tuple(
            boxes[at] if row[at] >= WEAK else None for at, row in zip(best, self._values(), strict=True)
        )

    def _values(self) -> NDArray[np.float64]:
        return np.atleast_2d(np.asarray(self.scores.values, dtype=np.float64))

    def _columns(self) -> Iterator[Columns]:
        """Yield word, part, box and nats."""
        unit = self.scores.source_unit
        for word, row in zip(self.words, self._values(), strict=True):
            yield {"word": [word] * len(row), "part": unit.labels, "box": unit.boxes, "nats": row.tolist()}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the view, where a kernel can show it, and text."""
        return bundle_of(self, **options)

    def __repr__(self) -> str:
        said = "; ".join(
            f"{word!r} {nats:+.1f} nats of the picture, {text:+.1f} of the text"
            for word, nats, text in zip(self.words, self.picture, self.text, strict=True)
        )
        return f"<PictureSources: {said}>"


def sources(trace: Any, answer: Any = None, *, by: By = "paint") -> PictureSources:
    """Return on which part of a picture each word of an answer rests: by painting over one after another.

        score[w, b] = log p(w) - log p(w with part b painted over), in nats, summed over the tokens of w

    "paint" paints blocks of the given picture with its mean colour, reads it again with the processor, and
    runs the whole model: six blocks of the shorter side (or as many as there are tokens), then the four that
    matter most are divided. "hide" hides one token of the picture after another from the text in the language
    model. The two are different questions: where the tower has copied a part's content to other tokens,
    hiding its own token costs nothing. Two parts that show the same cover for each other.

    Args:
        trace: Trace of a picture and a text that holds the answer, made with the model's processor.
        answer: The answer's tokens as a pair (start, end); by default what was generated.
        by: "paint" (which part of the picture) or "hide" (which token).

    Returns:
        PictureSources: `.scores` [word of the answer, part], `.strongest()`, `.view()`; `.picture` and
        `.text` say how much of each word is the picture's and how much the text's.

    Raises:
        ValueError: If the answer has no tokens, `by` is unknown, or the places of the picture's tokens or its
            pixels are not known.
        UnsupportedModelError: If the trace has no model, or it predicts no tokens from those before.
        TypeError: If `trace` is not a trace.

    Source: Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks, section 4.2, for
    each word.

    Example:
        >>> model, processor = aw.zoo.trained("scenes")
        >>> scene = model.truth.scene(7)
        >>> text = f"{scene.text} {scene.answer}"
        >>> trace = aw.trace(model, processor, text, image=scene.image)
        >>> result = aw.vision.sources(trace, (16, 23))
        >>> [word for word, box in zip(result.words, result.strongest()) if box]
        ['red', 'middle', 'right']
    """
    require_trace(trace, "vision.sources")
    require_choice("by", by, tuple(REMOVALS))
    traced: Trace = trace
    stack = _stack(traced)
    axis = traced.axes(stack)[0]
    boxes = axis.units["token"].boxes
    picture = traced.picture
    if boxes is None or picture is None or picture.given is None:
        raise ValueError(
            "vision.sources needs to know where the picture's tokens lie: trace the picture with its "
            "processor (`trace.warning` says what is not known)."
        )
    words = _words(traced, stack, answer_tokens(traced, answer))
    read = _reader(traced, [span for _, span in words])
    if by == "paint":
        values, whole, unit = _painted(traced, picture.given, [box for box in boxes if box is not None], read)
    else:
        values, whole, unit = _hidden(traced, stack, axis.units["token"], read)
    ids = traced.logits.shape[-1] if traced.logits is not None else 1
    before = read(traced.logits) if traced.logits is not None else whole
    random = np.array([len(span) * math.log(ids) for _, span in words])
    common = provenance_of(
        traced,
        stack,
        "vision.sources",
        paper=PAPER,
        title=f"nats lost without a part ({REMOVALS[by]})",
        options={"answer": answer, "by": by},
        notes=["parts that show the same cover for each other: each is then small alone"],
    )
    scores = Attributions(
        (before[None] - values).T,
        axis=media_axis(unit),
        unit="patch",
        target=[label for label, _ in words],
        **common,
    )
    return PictureSources(
        scores,
        tuple((before - whole).tolist()),
        tuple((whole + random).tolist()),
        by,
        tuple(tuple(span) for _, span in words),
        traced,
    )


def _stack(trace: Trace) -> str:
    """Return the stack of the text, after checking that the model predicts its tokens."""
    if trace.model is None or trace.logits is None or trace.logits.dim() != TOKENS:
        raise UnsupportedModelError("vision.sources needs a trace with a model that predicts tokens.")
    if len(trace.logits) != len(trace.tokens) or trace.input_ids is None:
        raise UnsupportedModelError(
            "vision.sources needs the logits of every token of a text with a picture."
        )
    require_same_model(trace, "vision.sources")
    return trace.default_stack


def _words(trace: Trace, stack: str, inside: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return the words of an answer, each with its tokens."""
    unit, members = trace.axes(stack)[0].units["word"], set(inside)
    pairs = [
        (label, [token for token in span if token in members])
        for label, span, special in zip(unit.labels, unit.spans, unit.special, strict=True)
        if not special
    ]
    return [(label, span) for label, span in pairs if span]


def _reader(trace: Trace, spans: Sequence[Sequence[int]]) -> Scores:
    """Return the function that reads log p of every word from logits [token, vocabulary]: [word]."""
    tokens = [token for span in spans for token in span]
    rows = [token - 1 for token in tokens]
    ends = np.cumsum([len(span) for span in spans])[:-1]

    def read(logits: Tensor) -> NDArray[np.float64]:
        return np.array([part.sum() for part in np.split(log_p_of(trace, logits, 0, tokens, rows), ends)])

    return read


def _painted(
    trace: Trace, given: NDArray[np.uint8], tokens: Sequence[Box], read: Scores
) -> tuple[NDArray[np.float64], NDArray[np.float64], Unit]:
    """Return log p of words [block, word] with blocks painted over, without the picture, and the blocks."""
    least = tuple(min(box[axis + 2] - box[axis] for box in tokens) for axis in (0, 1))
    size = given.shape[:2]
    side = min(size) / _BLOCKS
    counts = [max(1, round(length / max(side, cell))) for length, cell in zip(size, least, strict=True)]
    boxes = _divided((0.0, 0.0, float(size[0]), float(size[1])), counts[0], counts[1])
    _say_if_long(trace, len(boxes) + 4 * _REFINED + 1)
    before = read(trace.logits) if trace.logits is not None else np.zeros(0)
    with _runs(trace, read) as painted:
        whole = painted((0.0, 0.0, float(size[0]), float(size[1])))
        values = [painted(box) for box in progress(boxes, "painting over parts")]
        order = sorted(range(len(boxes)), key=lambda at: -np.abs(before - values[at]).max())
        chosen = [at for at in order[:_REFINED] if _can_divide(boxes[at], least)]
        for at in sorted(chosen, reverse=True):
            parts = _divided(boxes[at], 2, 2)
            values[at : at + 1] = [painted(box) for box in parts]
            boxes[at : at + 1] = parts
    labels = tuple(
        f"rows {top:.0f}-{bottom:.0f}, columns {left:.0f}-{right:.0f}" for top, left, bottom, right in boxes
    )
    n = len(boxes)
    unit = Unit("patch", labels, tuple((at,) for at in range(n)), (False,) * n, boxes=tuple(boxes))
    if not chosen:
        named = tuple("{},{}".format(*divmod(at, counts[1])) for at in range(n))
        unit = Unit(
            "patch",
            named,
            unit.spans,
            unit.special,
            (counts[0], counts[1]),
            cells=tuple(range(n)),
            boxes=unit.boxes,
        )
    return np.stack(values), whole, unit


def _divided(box: Box, rows: int, columns: int) -> list[Box]:
    """Return the parts of a box, row by row."""
    top, left, bottom, right = box
    down, across = np.linspace(top, bottom, rows + 1), np.linspace(left, right, columns + 1)
    return [
        (float(down[row]), float(across[column]), float(down[row + 1]), float(across[column + 1]))
        for row in range(rows)
        for column in range(columns)
    ]


def _can_divide(box: Box, least: Sequence[float]) -> bool:
    """Return whether half a block is not much smaller than a token."""
    return all((box[axis + 2] - box[axis]) / 2 >= 0.9 * least[axis] for axis in (0, 1))


def painter(trace: Trace) -> Callable[[Box], dict[str, Any]]:
    """Return the function that paints a box of the picture over, and returns the model's inputs then."""
    from PIL import Image

    if trace.picture is None or trace.picture.given is None:  # checked by `sources`
        raise AssertionError
    given = trace.picture.given
    reader = getattr(trace.tokenizer, "image_processor", trace.tokenizer)
    colour = np.round(given.reshape(-1, given.shape[-1]).mean(0)).astype(np.uint8)

    def paint(box: Box) -> dict[str, Any]:
        image = given.copy()
        top, left, bottom, right = (round(edge) for edge in box)
        image[top:bottom, left:right] = colour
        again = dict(reader(images=Image.fromarray(image), return_tensors="pt"))
        inputs = dict(trace.inputs)
        for name, value in inputs.items():
            if name in again and getattr(value, "is_floating_point", lambda: False)():
                inputs[name] = again[name].to(value)
        return inputs

    return paint


@contextmanager
def _runs(trace: Trace, read: Scores) -> Iterator[Callable[[Box], NDArray[np.float64]]]:
    """Yield the function that paints a box over and returns log p of every word."""
    paint = painter(trace)
    with borrowed(unwrap(trace.model)) as model, no_grad():
        options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in forward_parameters(model):
            options["use_cache"] = False

        def painted(box: Box) -> NDArray[np.float64]:
            logits = logits_in(trace.call(model, paint(box), options, {}))
            if logits is None:
                raise UnsupportedModelError("vision.sources needs a model that predicts tokens.")
            return read(logits[0])

        yield painted


def picture_tokens(trace: Trace) -> list[int]:
    """Return the positions of the tokens that lie on the picture: the parts by "hide", in their order."""
    unit = trace.axes(trace.default_stack)[0].units["token"]
    return [at for at, box in enumerate(unit.boxes or ()) if box is not None]


def _hidden(
    trace: Trace, stack: str, tokens: Unit, read: Scores
) -> tuple[NDArray[np.float64], NDArray[np.float64], Unit]:
    """Return log p of every word [token, word] with a token hidden, with all of them, and these tokens."""
    boxes = tokens.boxes or ()
    inside = picture_tokens(trace)
    _say_if_long(trace, len(inside) + 1)
    causal = trace.is_causal(stack)

    def without(span: list[int]) -> NDArray[np.float64]:
        start = span[0] + 1 if causal else 0
        readers = [at for at in range(start, len(trace.tokens)) if at not in span]
        logits = preview(trace, suppress(trace, span, readers, stack=stack)).logits
        if logits is None:
            raise UnsupportedModelError("vision.sources needs a model that predicts tokens.")
        return read(logits)

    whole = without([tokens.spans[at][0] for at in inside])
    values = [without(list(tokens.spans[at])) for at in progress(inside, "hiding tokens of the picture")]
    unit = Unit(
        "patch",
        tuple(tokens.labels[at] for at in inside),
        tuple((at,) for at in range(len(inside))),
        (False,) * len(inside),
        tokens.grid,
        cells=None if tokens.cells is None else tuple(tokens.cells[at] for at in inside),
        boxes=tuple(boxes[at] for at in inside),
    )
    return np.stack(values), whole, unit


def _say_if_long(trace: Trace, passes: int) -> None:
    """Report the cost, where it takes long."""
    n = len(trace.tokens)
    weights = sum(parameter.numel() for parameter in trace.model.parameters())
    if passes * n * weights >= LONG_WORK:
        warnings.warn(
            f"vision.sources takes {passes:,} passes of {n:,} tokens; aw.lrp(trace, target=..., at='input') "
            "takes one backward pass.",
            UserWarning,
            stacklevel=4,
        )
