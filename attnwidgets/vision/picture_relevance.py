"""Relevance, gradients and attention of the words of an answer, by the parts of a picture."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.circuits.sentences.part_scores import summed_logits
from attnwidgets.explanations.attribution.chefer import chefer
from attnwidgets.explanations.attribution.embedding_gradients import embedding_gradients
from attnwidgets.explanations.attribution.gradients import input_x_gradient, integrated_gradients
from attnwidgets.explanations.attribution.lrp import lrp, require_conservation
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.targets.named import token
from attnwidgets.explanations.targets.target_set import resolve_target_set
from attnwidgets.tracing.unsupported import UnsupportedModelError
from attnwidgets.vision.picture_answer import PartValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.explanation import Explanation
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.targets.named import NamedTarget
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.vision.picture_answer import PictureAnswer

    Float = NDArray[np.float64]

_PIXELS = "pixel_values"
_DEEPER = "the tower also writes into later layers of the language model: no token's number has that"
STEPS = 20
"""Points of integrated gradients on the line."""


def relevance_of_tokens(answer: PictureAnswer) -> PartValues:
    """Return LRP's relevance of the picture's tokens, where the language model reads them."""
    result = lrp(answer.trace, target=_targets(answer), stack=answer.stack)
    return _at_entry(answer, result, _row(result.residual))


def relevance_of_pixels(answer: PictureAnswer) -> PartValues:
    """Return LRP's relevance of the pixels, summed over the box of each token; of the text by its tokens."""
    trace, parts = answer.trace, answer.picture_unit()
    owners = _owners(parts, tuple(trace.inputs[_PIXELS].shape) if _PIXELS in trace.inputs else ())
    if owners is None:
        shapes = [tuple(x.shape) for name, x in trace.inputs.items() if name.startswith("pixel")]
        raise UnsupportedModelError(
            'vision.sources: by="lrp_pixels" sums pixels by tokens, and which belong to a token is not known '
            f"of {type(trace.model).__name__}, which reads {', '.join(map(str, shapes))}. "
            'by="lrp" gives the relevance of its tokens.'
        )
    from attnwidgets.relevance.rules import propagate

    targets = resolve_target_set(trace, _targets(answer), None, "lrp")
    require_conservation(trace, "lrp", force=False)
    relevances = propagate(
        trace, targets.scores, "lrp", rule="attnlrp", place="input", entry=answer.stack, plane=_PIXELS
    )
    pixels = relevances.inputs[_PIXELS].double().flatten(1).numpy()
    values = np.stack([np.bincount(owners[owners >= 0], row[owners >= 0], len(parts)) for row in pixels])
    tokens = relevance_of_tokens(answer)
    whole = pixels.sum(1)
    residual = answer.word_logits() - whole - tokens.text
    return PartValues(values.astype(np.float64), whole, tokens.text, parts, residual)


def _owners(parts: Unit, shape: tuple[int, ...]) -> NDArray[np.intp] | None:
    """Return the part that each number of the pixels belongs to [number], -1 of padding; None: not known.

    Pixels are tiles [(batch,) tile, channel, row, column], each of which is a view, whose tokens lie on it
    row by row; or [patch, number], where the patches that are merged into a token follow each other.
    """
    count = len(parts)
    if len(shape) == len(("patch", "number")):
        is_merged = parts.grid is not None and shape[0] % count == 0
        return np.arange(shape[0] * shape[1]) // (shape[1] * shape[0] // count) if is_merged else None
    if len(shape) not in (4, 5) or (len(shape) == 5 and shape[0] > 1):  # noqa: PLR2004 - a batch before the tiles
        return None
    tiles, channels, high, wide = shape[-4:]
    cells = np.array([[int(at) for at in re.findall(r"\d+", label)[-3:]] for label in parts.labels])
    if cells.shape[1] < 3:  # noqa: PLR2004 - a single view has no number
        cells = np.column_stack([np.zeros(count, dtype=int), cells])
    size = cells.max(0) + 1
    grid = np.full(size, -1)
    grid[tuple(cells.T)] = np.arange(count)
    # A view of several tiles, or without its padding, has another number of tokens.
    if size[0] != tiles or (tiles > 1 and (grid < 0).any()):
        return None
    rows, columns = np.arange(high) * size[1] // high, np.arange(wide) * size[2] // wide
    owners = grid[:, rows][:, :, columns][:, None]
    return np.broadcast_to(owners, (tiles, channels, high, wide)).ravel()


def gradient_of_tokens(answer: PictureAnswer) -> PartValues:
    """Return input x gradient of the picture's tokens, where the language model reads them."""
    result = input_x_gradient(answer.trace, target=_targets(answer), stack=answer.stack)
    return _at_entry(answer, result)


def integrated_gradients_of_tokens(answer: PictureAnswer) -> PartValues:
    """Return integrated gradients of the picture's tokens, from the mean of them; words stay.

    The text's number is the logit at that baseline.
    """
    targets, stack, inside = _targets(answer), answer.stack, answer.inside
    answer.say_if_long(STEPS * (1 + len(targets)))
    resolved = resolve_target_set(answer.trace, targets, None, "integrated_gradients")
    with embedding_gradients(answer.trace, resolved, "integrated_gradients", stack) as model:
        baseline = model.embeddings.clone()
    baseline[inside] = baseline[inside].mean(0)
    result = integrated_gradients(answer.trace, target=targets, baseline=baseline, steps=STEPS, stack=stack)
    parts = _at_entry(answer, result, _row(result.residual))
    return replace(parts, text=answer.word_logits() - _row(result.provenance["change"]))


def shares_by_chefer(answer: PictureAnswer) -> PartValues:
    """Return the shares of the picture's tokens in Chefer's relevance; the mean over a word's tokens."""
    rows = []
    tokens = [at for span in answer.spans for at in span]
    answer.say_if_long(2 * len(tokens))
    for at in progress(tokens, "chefer"):
        target = token(answer.ids[at], position=at - 1)
        result = chefer(answer.trace, target=target, stack=answer.stack)
        values = np.asarray(result.values, dtype=np.float64)
        rows.append(values / values.sum())
    return _of_tokens(answer, _mean_by_word(answer, rows), result)


def shares_by_rollout(answer: PictureAnswer) -> PartValues:
    """Return the shares of the picture's tokens in attention rollout; the mean over a word's tokens."""
    result = rollout(answer.trace, stack=answer.stack)
    last = np.asarray(result.layer(-1), dtype=np.float64)
    rows = [last[at - 1] for span in answer.spans for at in span]
    return _of_tokens(answer, _mean_by_word(answer, rows), result)


def _at_entry(answer: PictureAnswer, result: Attributions, residual: Float | None = None) -> PartValues:
    """Return attributions of what the language model reads first, by the picture's tokens."""
    parts = _of_tokens(answer, result.values, result, residual)
    return replace(parts, notes=(*parts.notes, _DEEPER)) if answer.writes_deeper else parts


def _of_tokens(
    answer: PictureAnswer, values: Any, result: Explanation, residual: Float | None = None
) -> PartValues:
    """Return values of all tokens [word, token] of a method's result, by the picture's tokens."""
    rows = np.asarray(values, dtype=np.float64)
    whole = rows[:, answer.inside].sum(1)
    parts = answer.picture_unit()
    return PartValues(
        rows[:, answer.shown], whole, rows.sum(1) - whole, parts, residual, answer.notes(result)
    )


def _targets(answer: PictureAnswer) -> list[NamedTarget]:
    return [summed_logits(span, answer.ids) for span in answer.spans]


def _mean_by_word(answer: PictureAnswer, rows: Any) -> Float:
    sizes = np.array([len(span) for span in answer.spans])
    result: Float = answer.by_word(rows) / sizes[:, None]
    return result


def _row(numbers: Any) -> Float:
    return np.atleast_1d(np.asarray(numbers, dtype=np.float64))
