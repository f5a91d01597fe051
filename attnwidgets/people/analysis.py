"""Analysis of responses: intervals that hold for other people and other items, and p by permutation.

`analyse` turns the rows of responses into `Outcomes`: scores and cells, [person, item]. Every cell (a
condition, or a pair of conditions) gets a mean by `estimate`, and every comparison with the reference a
difference by `estimate` and a p by `permuted` (`flipped` in a forced choice), corrected by Holm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from attnwidgets._errors import suggest
from attnwidgets._significance import holm
from attnwidgets._significance import wilson as wilson  # noqa: PLC0414 - aw.people has it
from attnwidgets._tables import Table
from attnwidgets.figures.html_tables import first_rows
from attnwidgets.people.item import NONE, RANDOM
from attnwidgets.people.kinds import KINDS, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.people.responses import Responses

    Float = NDArray[np.float64]
    Whole = NDArray[np.int64]

_LEAST_RESAMPLES = 100
_SHOWN = 40


class Estimate(NamedTuple):
    """A mean or a difference (`value`) with the ends of its interval and its standard error."""

    value: float
    low: float
    high: float
    error: float


class Outcomes(NamedTuple):
    """Scores (NaN without an answer) and cells (-1 without an answer), both [person, item]."""

    scores: Float
    cells: Whole


def estimate(
    outcomes: Outcomes,
    cell: int,
    reference: int | None,
    level: float,
    resamples: int,
    rng: np.random.Generator,
) -> Estimate:
    """Return the mean of a cell, or its difference to the reference cell, with an interval.

    Two-way cluster variance: Var(people) + Var(items) - Var(answers) (Cameron, Gelbach and Miller 2011), the
    first two estimated by bootstraps, the last in closed form. A bootstrap that resamples people and items at
    once counts the noise of single answers three times (Owen 2007), and its intervals are far too wide. The
    quantile is Student's, for the smaller of the two numbers.
    """
    signs = {cell: 1.0} if reference is None else {cell: 1.0, reference: -1.0}
    masks = {key: outcomes.cells == key for key in signs}
    totals = {key: np.where(mask, outcomes.scores, 0.0) for key, mask in masks.items()}
    value = sum(sign * totals[key].sum() / masks[key].sum() for key, sign in signs.items())
    answers = 0.0
    for mask in masks.values():
        scores = outcomes.scores[mask]
        answers += scores.var(ddof=1) / len(scores) if len(scores) > 1 else 0.0
    clustered, sizes = [], []
    for axis in (0, 1):
        used = np.any(np.logical_or.reduce(list(masks.values())), axis=1 - axis)
        count = int(used.sum())
        sizes.append(count)
        if count < 2:  # noqa: PLR2004 - a single person or item cannot be resampled
            continue
        weights = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        means = np.zeros(resamples)
        with np.errstate(invalid="ignore"):  # a resample may hold nobody of a cell
            for key, sign in signs.items():
                sums = weights @ totals[key].sum(1 - axis)[used]
                means += sign * sums / (weights @ masks[key].sum(1 - axis)[used])
        clustered.append(np.nanvar(means, ddof=1) * count / (count - 1))
    # Where people or items do not differ, their variance estimates that of the answers, and the sum of the
    # three may fall below it by chance.
    variance = max(sum(clustered) - (len(clustered) - 1) * answers, answers)
    error = float(np.sqrt(variance))
    half = float(stdtrit(max(1, min(size for size in sizes if size > 1) - 1), 0.5 + level / 2)) * error
    return Estimate(float(value), float(value - half), float(value + half), error)


def permuted(
    outcomes: Outcomes, cell: int, reference: int, resamples: int, rng: np.random.Generator
) -> float:
    """Return p of no difference between two cells, by permuting the cells of the answers within each person.

    Where nobody has answers in both cells (a study between people), the cells of people are permuted.
    """
    in_cell, in_reference = outcomes.cells == cell, outcomes.cells == reference
    either = in_cell | in_reference
    scores = np.where(either, outcomes.scores, 0.0)
    if not (in_cell.any(1) & in_reference.any(1)).any():
        used = either.any(1)
        sums, counts, members = scores[used].sum(1), either[used].sum(1), in_cell[used].any(1)
        orders = rng.permuted(np.tile(members, (resamples, 1)), axis=1)
        drawn = orders @ sums / (orders @ counts) - ~orders @ sums / (~orders @ counts)
        observed = members @ sums / (members @ counts) - ~members @ sums / (~members @ counts)
    else:
        first, second = in_cell.sum(1), in_reference.sum(1)
        keys = rng.random((resamples, *scores.shape), dtype=np.float32)
        keys[:, ~either] = 2  # above all random keys, so that answers in other cells rank last
        ranks = keys.argsort(2).argsort(2)
        chosen = (np.where(ranks < first[:, None], scores, 0.0)).sum((1, 2))
        total = scores.sum()
        drawn = chosen / first.sum() - (total - chosen) / second.sum()
        observed = scores[in_cell].sum() / first.sum() - scores[in_reference].sum() / second.sum()
    return _share_beyond(drawn, float(observed))


def flipped(outcomes: Outcomes, cell: int, resamples: int, rng: np.random.Generator) -> float:
    """Return p of no preference in a pair, by reversing all choices of random people."""
    mask = outcomes.cells == cell
    by_person = np.where(mask, outcomes.scores - 0.5, 0.0).sum(1)
    drawn = rng.choice((-1.0, 1.0), (resamples, len(by_person))) @ by_person
    return _share_beyond(drawn, float(by_person.sum()))


def _share_beyond(drawn: Float, observed: float) -> float:
    """Return the two-sided p of an observed statistic, which counts as a draw itself."""
    return float((1 + (np.abs(drawn) >= abs(observed) - 1e-12).sum()) / (1 + len(drawn)))


class Analysis(Table):
    """Means of the conditions and differences between them; made by `responses.analyse()`.

    Scores are 1 for a right answer and 0 otherwise; in trust the step, 1 to 5; in a forced choice 1 where
    the first condition of the pair was chosen; in remove_words the Jaccard similarity of the marked words
    and the words to remove.

    Attributes:
        means: A dict for every condition, or pair: condition, other, people, answers, mean, low, high (of the
            interval that holds for other people and other items), wilson_low and wilson_high (as if answers
            were independent; None where scores are not 0 or 1).
        differences: A dict for every comparison with the reference: condition, reference, difference, low,
            high, p (permutation within people) and p_holm (of all comparisons). In a forced choice the pair,
            and its share less a half.
        notes: Sentences about people who were left out, answers without a score, and imbalance.
        level: Coverage of the intervals.
    """

    def __init__(
        self, kind: str, means: Sequence[Any], differences: Sequence[Any], level: float, notes: Sequence[str]
    ) -> None:
        self.kind, self.level = kind, level
        self.means = tuple(means)
        self.differences = tuple(differences)
        self.notes = tuple(notes)

    def difference(self, condition: str, reference: str | None = None) -> Mapping[str, Any]:
        """Return an entry of `differences`.

        Args:
            condition: The condition, or the first of a pair.
            reference: The reference, or the second of a pair; None: the first entry of the condition.

        Raises:
            ValueError: The comparison is unknown.
        """
        for item in self.differences:
            if item["condition"] == condition and reference in (None, item["reference"]):
                return dict(item)
        names = [entry["condition"] for entry in self.differences]
        raise ValueError(
            f"{condition!r} was not compared; the comparisons are {names}.{suggest(condition, names)}"
        )

    def _columns(self) -> Iterator[Columns]:
        compared = {
            difference["condition"]: difference
            for difference in self.differences
            if difference["condition"] != ""
        }
        rows = []
        for mean in self.means:
            difference = next(
                (
                    d
                    for d in self.differences
                    if (d["condition"], d["reference"]) == (mean["condition"], mean["other"])
                ),
                compared.get(mean["condition"], {}) if not mean["other"] else {},
            )
            names = ("reference", "difference", "low", "high", "p", "p_holm")
            columns = {
                f"difference_{name}" if name in ("low", "high") else name: difference.get(name)
                for name in names
            }
            rows.append({**mean, **columns})
        yield {name: [row[name] for row in rows] for name in rows[0]}

    def __str__(self) -> str:
        lines = []
        for mean in self.means:
            name = f"{mean['condition']} rather than {mean['other']}" if mean["other"] else mean["condition"]
            ends = f"[{mean['low']:.2f}, {mean['high']:.2f}]"
            lines.append(f"{name}: {mean['mean']:.2f} {ends}, {mean['answers']} answers")
        for item in self.differences:
            name = "less a half" if self.kind == "forced_choice" else f"less {item['reference']}"
            ends = f"[{item['low']:+.2f}, {item['high']:+.2f}]"
            lines.append(
                f"{item['condition']} {name}: {item['difference']:+.2f} {ends}, p {_p(item['p_holm'])}"
            )
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        return f"<Analysis of {self.kind}>\n{self}"

    def _repr_html_(self) -> str:
        return first_rows(self.to_rows(), _SHOWN)


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"  # noqa: PLR2004 - digits


def outcomes_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Outcomes, list[tuple[str, str]]]:
    """Return scores and cells of answers, and the names of the cells."""
    people = {name: i for i, name in enumerate(dict.fromkeys(row["person"] for row in rows))}
    items = {name: i for i, name in enumerate(dict.fromkeys(row["item"] for row in rows))}
    cells = {
        name: i for i, name in enumerate(dict.fromkeys((row["condition"], row["other"]) for row in rows))
    }
    scores = np.full((len(people), len(items)), np.nan)
    numbers = np.full(scores.shape, -1, np.int64)
    for row in rows:
        at = people[row["person"]], items[row["item"]]
        scores[at], numbers[at] = row["score"], cells[row["condition"], row["other"]]
    return Outcomes(scores, numbers), list(cells)


def analyse(
    responses: Responses,
    reference: str | None,
    level: float,
    resamples: int,
    *,
    keep_inattentive: bool,
    seed: int,
) -> Analysis:
    """Return the analysis of responses, see `Responses.analyse`."""
    if not 0.5 < level < 1:  # noqa: PLR2004 - an interval
        raise ValueError(f"level={level} is not above 0.5 and below 1.")
    if resamples < _LEAST_RESAMPLES:
        raise ValueError(f"resamples={resamples}: give {_LEAST_RESAMPLES} or more.")
    out = () if keep_inattentive else responses.inattentive
    rows = [row for row in responses.rows if row["role"] == "item" and row["person"] not in out]
    unscored = sum(row["score"] is None for row in rows)
    rows = [row for row in rows if row["score"] is not None]
    if not rows:
        advice = (
            "give read_responses(..., study) the study, whose items hold the truth."
            if responses.study is None
            else "no item says what is right (remove=)."
        )
        raise ValueError(f"no answer has a score: {advice}")
    outcomes, cells = outcomes_of(rows)
    if len(outcomes.scores) < 2:  # noqa: PLR2004 - people are resampled
        raise ValueError(f"{len(outcomes.scores)} person is left: an interval needs two or more.")
    order = _in_order(responses, cells)
    rng = np.random.default_rng(seed)
    kind = responses.kind if responses.kind in KINDS else "forward"
    is_share = bool(np.isin(outcomes.scores[outcomes.cells >= 0], (0.0, 1.0)).all())
    ends = (1.0, float(STEPS)) if kind == "trust" else (0.0, 1.0)
    means = [
        _mean(outcomes, cell, cells[cell], level, resamples, rng, ends=ends, is_share=is_share)
        for cell in order
    ]
    differences: list[dict[str, Any]] = []
    if kind == "forced_choice":
        for cell, mean in zip(order, means, strict=True):
            p = flipped(outcomes, cell, resamples, rng)
            differences.append(
                {
                    "condition": mean["condition"], "reference": mean["other"],
                    "difference": mean["mean"] - 0.5, "low": mean["low"] - 0.5, "high": mean["high"] - 0.5,
                    "p": p,
                }
            )  # fmt: skip
    else:
        names = [cells[cell][0] for cell in order]
        base = order[names.index(_reference(reference, names))]
        for cell in order:
            if cell == base:
                continue
            result = estimate(outcomes, cell, base, level, resamples, rng)
            differences.append(
                {
                    "condition": cells[cell][0], "reference": cells[base][0], "difference": result.value,
                    "low": result.low, "high": result.high,
                    "p": permuted(outcomes, cell, base, resamples, rng),
                }
            )  # fmt: skip
    for difference, p in zip(
        differences, holm([difference["p"] for difference in differences]).tolist(), strict=True
    ):
        difference["p_holm"] = p
    return Analysis(
        kind, means, differences, level, tuple(_remarks(responses, out, unscored, outcomes, cells))
    )


def _mean(
    outcomes: Outcomes,
    cell: int,
    names: tuple[str, str],
    level: float,
    resamples: int,
    rng: np.random.Generator,
    *,
    ends: tuple[float, float],
    is_share: bool,
) -> dict[str, Any]:
    """Return the mean of a cell with its intervals, an entry of `Analysis.means`."""
    mask = outcomes.cells == cell
    count = int(mask.sum())
    result = estimate(outcomes, cell, None, level, resamples, rng)
    low, high = wilson(int(outcomes.scores[mask].sum()), count, level=level) if is_share else (None, None)
    return {
        "condition": names[0], "other": names[1], "people": int(mask.any(1).sum()), "answers": count,
        "mean": result.value, "low": max(result.low, ends[0]), "high": min(result.high, ends[1]),
        "wilson_low": low, "wilson_high": high,
    }  # fmt: skip


def _in_order(responses: Responses, cells: Sequence[tuple[str, str]]) -> list[int]:
    """Return the cells in the order of the study's conditions; by name without a study."""
    study = responses.study
    if study is None:
        return sorted(range(len(cells)), key=lambda cell: cells[cell])
    order = [study.cell_names(cell) for cell in range(len(study.cells))]
    return sorted(range(len(cells)), key=lambda cell: order.index(cells[cell]))


def _reference(reference: str | None, names: Sequence[str]) -> str:
    if reference is None:
        return next((name for name in (NONE, RANDOM) if name in names), names[0])
    if reference not in names:
        raise ValueError(f"reference={reference!r} is not one of {list(names)}.{suggest(reference, names)}")
    return reference


def _remarks(
    responses: Responses,
    out: Sequence[str],
    unscored: int,
    outcomes: Outcomes,
    cells: Sequence[tuple[str, str]],
) -> Iterator[str]:
    if out:
        yield f"left out: {', '.join(out)}, who failed an attention check"
    if unscored:
        yield f"{unscored} answers have no score and do not count"
    counts = np.array([(outcomes.cells == cell).sum(0) for cell in range(len(cells))])
    if not (responses.study is not None and responses.study.between) and counts.min() == 0:
        missing = int((counts == 0).sum())
        yield (
            f"unbalanced: {missing} of {counts.size} pairs of item and condition have no answer, so "
            "conditions differ in their items, too; hand out study.codes(n)"
        )
    elif counts.max() > 2 * counts.min() + 2:
        yield (
            f"unbalanced: items were answered {int(counts.min())} to {int(counts.max())} times in a "
            "condition; hand out study.codes(n)"
        )
