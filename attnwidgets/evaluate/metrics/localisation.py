"""Localisation: whether an explanation points at the object that a mask marks in the picture.

Masks are brought to the picture that the model saw (`mask_as_seen`), values of patches are spread over its
pixels (`spread`), and `_Scorer` compares the two.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, explained, is_constant, require_one_each
from attnwidgets.evaluate.metrics.random_baseline import (
    DEFAULT,
    RandomBaseline,
    require_baseline,
    with_former,
)
from attnwidgets.evaluate.scorecards.build import metric_names, scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

PAPERS = {
    "pointing_game": "Zhang et al. 2018, Top-down Neural Attention by Excitation Backprop",
    "energy_in_mask": "Wang et al. 2020, Score-CAM (the energy-based pointing game)",
    "pixel_accuracy": "Chefer et al. 2021, Transformer Interpretability Beyond Attention Visualization",
    "mean_iou": "Chefer et al. 2021, Transformer Interpretability Beyond Attention Visualization",
    "mean_ap": "Chefer et al. 2021, Transformer Interpretability Beyond Attention Visualization",
}
TOLERANCE = 15
"""Pixels around the mask in which a hit still counts, as in the pointing game's authors."""
Upsampling = Literal["nearest", "bilinear"]


@with_former
@forceable
@documented
def localisation(
    traces: Any,
    explanations: Any,
    masks: Any,
    target: Any = None,
    *,
    metrics: str | Sequence[str] = (
        "pointing_game",
        "energy_in_mask",
        "pixel_accuracy",
        "mean_iou",
        "mean_ap",
    ),
    tolerance: float = TOLERANCE,
    upsampling: Upsampling = "nearest",
    baseline: RandomBaseline = DEFAULT,
) -> Scorecard:
    """Measure whether explanations of pictures point at the objects that masks mark, without the model.

    With v the values of the patches, spread over the picture that the model saw:

        pointing_game    1 if the middle of the highest patch is at most `tolerance` pixels from the mask
        energy_in_mask   sum of (v)+ in the mask, as a share of the whole sum
        pixel_accuracy   share of pixels that "v > mean of v" gets right
        mean_iou         intersection over union of "v > mean of v" with the mask, and of the rest with the
                         rest; the mean of the two
        mean_ap          average precision of v for the mask and of 1 - v for the rest, ranked together, with
                         v stretched from 0 to 1

    A high score says that the map lies on the object, which people expect, and not that the model used it.
    The published mIoU sums intersections and unions over all pictures before it divides; here every picture
    counts the same, so that intervals over pictures can be given.

    Args:
        traces: {traces} Of pictures.
        explanations: {explanations}
        masks: A mask for each trace: numbers or booleans [row, column], other than 0 where the object is; of
            the original picture, of the picture that the model saw, or of its grid of patches.
        target: The target that methods given by name explain; by default the model's prediction.
        metrics: One or several of these five.
        tolerance: Pixels of the picture that the model saw.
        upsampling: How values of patches become pixels: "nearest", or "bilinear" as in the published
            segmentation, which draws edges that no value has.
        baseline: The draws of the baseline "random", whose pointing game is exact: an
            `aw.evaluate.RandomBaseline`.
        force: {force}

    Returns:
        A Scorecard [metric, method, 1], 0 to 1; "oracle" is the mask itself, averaged over patches. NaN, with
        the reason in `.warning`, if an explanation is constant, nothing is above zero (for the energy), or a
        mask is empty or covers the whole picture that was seen.

    Raises:
        ValueError: If a metric is unknown, a mask fits none of the three sizes, their number is not that of
            the traces, a trace is not of a picture with patches, or an explanation belongs to another input.
        TypeError: If an explanation is a map, or not an explanation.

    Source: Zhang et al. 2018, section 4.1; Wang et al. 2020, section 4.2; Chefer et al. 2021 (CVPR), section
    4 (segmentation).

    Example:
        >>> import torch, transformers
        >>> config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        >>> model = transformers.ResNetForImageClassification(config).eval()
        >>> trace = aw.trace(model, None, image=torch.rand(3, 32, 32))
        >>> mask = np.zeros((32, 32))
        >>> mask[8:16, 8:16] = 1
        >>> card = aw.evaluate.localisation(trace, "grad_cam", mask, metrics="pointing_game", tolerance=0)
        >>> float(card.mean[0, 1, 0])  # by chance: 1 of 16 patches
        0.0625
    """
    names = metric_names(metrics, PAPERS)
    require_choice("upsampling", upsampling, ("nearest", "bilinear"))
    require_baseline(baseline)
    if tolerance < 0:
        raise ValueError(f"tolerance must be at least 0, not {tolerance}.")
    inputs = explained(traces, explanations, target, "localisation", "patch")
    listed = list(masks) if isinstance(traces, (list, tuple)) else [masks]
    require_one_each("masks", listed, as_list(traces))
    notes: dict[str, None] = {}
    samples = []
    for number, (item, mask) in enumerate(zip(inputs, listed, strict=True)):
        size = _size_of(item.trace)
        marked = mask_as_seen(item.trace, mask, item.unit)
        if marked.all() or not marked.any():
            notes["a mask is empty, or covers all of the picture that was seen"] = None
        grids = {name: _on_grid(values, item.unit) for name, values in item.values.items()}
        for name, values in grids.items():
            if is_constant(values.reshape(-1)):
                notes[f"{name} is constant on an input and points nowhere"] = None
        shape = item.unit.grid or (1, 1)
        chance = baseline.values(number, shape)
        oracle = share_in(marked, shape)
        scorer = _Scorer(marked, size, tolerance, upsampling)
        samples.append(
            [
                [
                    *(scorer.score(name, values) for values in grids.values()),
                    scorer.by_chance(name, chance),
                    scorer.score(name, oracle),
                ]
                for name in names
            ]
        )
    options = {"tolerance": tolerance, "upsampling": upsampling, **asdict(baseline)}
    return scored_explanations(
        inputs,
        samples,
        "localisation",
        metrics=names,
        notes=notes,
        paper="; ".join(dict.fromkeys(PAPERS[name] for name in names)),
        options=options,
        undefined="undefined where nothing is above zero, or a mask or an explanation says nothing",
    )


class _Scorer:
    """Scores maps of a picture against its mask.

    Args:
        marked: The mask [row, column], of the picture that was seen.
        size: Its rows and columns.
        tolerance: See `localisation`.
        upsampling: See `localisation`.
    """

    def __init__(self, marked: Bools, size: tuple[int, int], tolerance: float, upsampling: str) -> None:
        self._mask, self._size = marked, size
        self._tolerance, self._upsampling = tolerance, upsampling
        self._defined = bool(marked.any()) and not bool(marked.all())

    def score(self, metric: str, values: Float) -> float:
        """Return a score of values [row, column] of the grid of patches; NaN if it is undefined."""
        if not self._defined or (is_constant(values.reshape(-1)) and metric != "energy_in_mask"):
            return float("nan")
        if metric == "pointing_game":
            return float(self._hits(values.shape)[np.unravel_index(values.argmax(), values.shape)])
        return _MEASURES[metric](spread(values, self._size, self._upsampling), self._mask)

    def by_chance(self, metric: str, maps: Sequence[Float]) -> float:
        """Return the mean score of random maps; of the pointing game, exactly."""
        if metric == "pointing_game":
            return float(self._hits(maps[0].shape).mean()) if self._defined else float("nan")
        return float(np.mean([self.score(metric, values) for values in maps]))

    def _hits(self, grid: tuple[int, ...]) -> Bools:
        """Return a mask of the patches whose middle is close enough to the mask [row, column]."""
        from scipy.ndimage import distance_transform_edt

        far = distance_transform_edt(~self._mask)
        rows, columns = (
            ((np.arange(count) + 0.5) * length / count).astype(int)
            for count, length in zip(grid, self._size, strict=True)
        )
        return np.asarray(far[np.ix_(rows, columns)] <= self._tolerance)


def _energy(values: Float, mask: Bools) -> float:
    positive = values.clip(min=0)
    total = float(positive.sum())
    return float(positive[mask].sum()) / total if total else float("nan")


def _accuracy(values: Float, mask: Bools) -> float:
    return float(((values > values.mean()) == mask).mean())


def _mean_iou(values: Float, mask: Bools) -> float:
    chosen = values > values.mean()
    pairs = ((chosen, mask), (~chosen, ~mask))
    return float(np.mean([(a & b).sum() / (a | b).sum() for a, b in pairs]))


def _mean_ap(values: Float, mask: Bools) -> float:
    low, high = values.min(), values.max()
    scaled = ((values - low) / (high - low)).reshape(-1)
    flat = mask.reshape(-1)
    return stepwise_precision(np.concatenate([1 - scaled, scaled]), np.concatenate([~flat, flat]))


def stepwise_precision(values: Float, relevant: Bools) -> float:
    """Return average precision, the sum over steps of recall times precision; equal values enter together."""
    order = np.argsort(-values, kind="stable")
    hits, ranked = np.cumsum(relevant[order]), values[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    recall = np.concatenate([[0.0], hits[ends] / hits[-1]])
    return float((np.diff(recall) * hits[ends] / (ends + 1)).sum())


_MEASURES: dict[str, Callable[[Float, Bools], float]] = {
    "energy_in_mask": _energy,
    "pixel_accuracy": _accuracy,
    "mean_iou": _mean_iou,
    "mean_ap": _mean_ap,
}


def spread(values: Float, size: tuple[int, int], upsampling: str) -> Float:
    """Return values of patches [row, column] as values of pixels.

    "bilinear" interpolates between the middles of patches; beyond them, the nearest patch counts.
    """
    positions = [(np.arange(n) + 0.5) * count / n for n, count in zip(size, values.shape, strict=True)]
    if upsampling == "nearest":
        rows, columns = (position.astype(int) for position in positions)
        return values[np.ix_(rows, columns)]
    for axis, position in enumerate(positions):
        count = values.shape[axis]
        at = (position - 0.5).clip(0, count - 1)
        low = np.floor(at).astype(int).clip(max=max(count - 2, 0))
        share = np.expand_dims(at - low, 1 - axis)
        upper = np.minimum(low + 1, count - 1)
        values = values.take(low, axis) * (1 - share) + values.take(upper, axis) * share
    return values


def mask_as_seen(trace: Trace, mask: Any, unit: Unit) -> Bools:
    """Return a mask of the picture that the model saw [row, column].

    Raises:
        ValueError: If the mask has the size of neither the original picture, the picture as seen, nor the
            patches.
    """
    marked = np.asarray(mask) != 0
    size = _size_of(trace)
    picture = trace.picture
    original = None if picture is None or picture.given is None else picture.given.shape[:2]
    if marked.shape == size:
        return np.asarray(marked)
    if marked.shape == unit.grid:
        return np.asarray(spread(marked.astype(float), size, "nearest") > 0)
    if (
        picture is not None
        and original is not None
        and original == marked.shape
        and picture.scale is not None
    ):
        rows, columns = (
            np.floor(picture.shift[axis] + picture.scale[axis] * (np.arange(size[axis]) + 0.5)).astype(int)
            for axis in (0, 1)
        )
        inside = ((rows >= 0) & (rows < original[0]))[:, None] & ((columns >= 0) & (columns < original[1]))
        mask = marked[np.ix_(rows.clip(0, original[0] - 1), columns.clip(0, original[1] - 1))]
        return np.asarray(mask & inside)
    sizes = {"as given": original, "as seen": size, "its patches": unit.grid}
    listed = ", ".join(f"{item[0]} x {item[1]} ({name})" for name, item in sizes.items() if item is not None)
    raise ValueError(
        f"a mask is {' x '.join(map(str, marked.shape))} [row, column]; the picture has {listed}."
    )


def share_in(marked: Bools, grid: tuple[int, int]) -> Float:
    """Return the share of the mask in every patch [row, column]."""
    rows, columns = (np.arange(n) * count // n for n, count in zip(marked.shape, grid, strict=True))
    sums, counts = np.zeros(grid), np.zeros(grid)
    np.add.at(sums, (rows[:, None], columns[None]), marked)
    np.add.at(counts, (rows[:, None], columns[None]), 1.0)
    return sums / counts


def _size_of(trace: Trace) -> tuple[int, int]:
    from attnwidgets.tracing.media.feature_maps import size_of

    size = size_of(trace.inputs)
    if size is None:
        raise ValueError("localisation needs traces of pictures: [batch, channel, row, column] of pixels.")
    return size


def _on_grid(values: Float, unit: Unit) -> Float:
    """Return values of patches on their grid [row, column]."""
    rows, columns = unit.grid or (1, 1)
    cells = np.zeros(rows * columns)
    for value, cell in zip(values, unit.cells or (), strict=True):
        if cell is not None:
            cells[cell] = value
    return cells.reshape(rows, columns)
