"""Parts of a picture taken away: painted over, or their tokens hidden from the text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.intervene.edit_attention import suppress
from attnwidgets.intervene.preview import preview
from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.predictions import logits_in
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.text.units import Unit
from attnwidgets.tracing.unsupported import UnsupportedModelError
from attnwidgets.vision.picture_answer import PartValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import Box
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.vision.picture_answer import PictureAnswer

_BLOCKS, _REFINED = 6, 4  # blocks of the shorter side at first; blocks that are then divided into four


def painted_over(answer: PictureAnswer) -> PartValues:
    """Return the nats that words lose with blocks of the picture painted over."""
    tokens = answer.picture_unit().boxes or ()
    least = tuple(min(box[axis + 2] - box[axis] for box in tokens if box) for axis in (0, 1))
    size = answer.given.shape[:2]
    side = min(size) / _BLOCKS
    counts = [max(1, round(length / max(side, cell))) for length, cell in zip(size, least, strict=True)]
    boxes = _divided((0.0, 0.0, float(size[0]), float(size[1])), counts[0], counts[1])
    answer.say_if_long(len(boxes) + 4 * _REFINED + 1)
    before = answer.log_p(answer.logits)
    with _runs(answer) as painted:
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
    return _lost(answer, values, whole, unit)


def tokens_hidden(answer: PictureAnswer) -> PartValues:
    """Return the nats that words lose with tokens of the picture hidden."""
    trace, stack = answer.trace, answer.stack
    answer.say_if_long(len(answer.shown) + 1)
    causal = trace.is_causal(stack)

    def without(span: list[int]) -> NDArray[np.float64]:
        start = span[0] + 1 if causal else 0
        readers = [at for at in range(start, len(trace.tokens)) if at not in span]
        logits = preview(trace, suppress(trace, span, readers, stack=stack)).logits
        if logits is None:
            raise UnsupportedModelError("vision.sources needs a model that predicts tokens.")
        return answer.log_p(logits)

    whole = without(answer.inside)
    values = [without([at]) for at in progress(answer.shown, "hiding tokens of the picture")]
    return _lost(answer, values, whole, answer.picture_unit())


def _lost(
    answer: PictureAnswer,
    without: Sequence[NDArray[np.float64]],
    whole: NDArray[np.float64],
    parts: Unit,
) -> PartValues:
    """Return the nats that words lose, from log p of words [word] without each part and without all."""
    before = answer.log_p(answer.logits)
    at_random = np.log(answer.logits.shape[-1]) * np.array([len(span) for span in answer.spans])
    return PartValues((before - np.stack(without)).T, before - whole, whole + at_random, parts)


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

    if trace.picture is None or trace.picture.given is None:  # checked by `picture_answer`
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
def _runs(answer: PictureAnswer) -> Iterator[Callable[[Box], NDArray[np.float64]]]:
    """Yield the function that paints a box over and returns log p of every word."""
    trace, paint = answer.trace, painter(answer.trace)
    with borrowed(unwrap(trace.model)) as model, no_grad():
        options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in forward_parameters(model):
            options["use_cache"] = False

        def painted(box: Box) -> NDArray[np.float64]:
            logits = logits_in(trace.call(model, paint(box), options, {}))
            if logits is None:
                raise UnsupportedModelError("vision.sources needs a model that predicts tokens.")
            return answer.log_p(logits[0])

        yield painted
