"""Plan: how many people a study needs, by simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._tables import Table
from attnwidgets.figures.html_tables import first_rows
from attnwidgets.people.agents import cells_of
from attnwidgets.people.analysis import Outcomes, estimate, wilson
from attnwidgets.people.kinds import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets._tables import Columns
    from attnwidgets.people.agents import Agent
    from attnwidgets.people.study import Study

_RESAMPLES = 200
_LEVEL = 0.95


class Plan(Table):
    """How often studies of several sizes find a difference; made by `study.plan`.

    Attributes:
        people: Numbers of people.
        found: How many of the simulated studies had an interval (95 %) without the null.
        studies: How many were simulated of each size.
        compare: The conditions that were compared.
    """

    def __init__(
        self, people: Sequence[int], found: Sequence[int], studies: int, compare: tuple[str, str]
    ) -> None:
        self.people, self.found = tuple(people), tuple(found)
        self.studies, self.compare = studies, compare

    @property
    def power(self) -> tuple[float, ...]:
        """The share of studies that found it, for each number of people."""
        return tuple(count / self.studies for count in self.found)

    def needed(self, power: float = 0.8) -> int | None:
        """Return the smallest number of people that was tried and suffices; None if none does.

        Args:
            power: The share of studies that should find the difference.
        """
        return next((n for n, share in zip(self.people, self.power, strict=True) if share >= power), None)

    def _columns(self) -> Iterator[Columns]:
        ends = [wilson(count, self.studies) for count in self.found]
        yield {
            "people": list(self.people),
            "power": list(self.power),
            "low": [low for low, _ in ends],
            "high": [high for _, high in ends],
        }

    def __repr__(self) -> str:
        said = ", ".join(f"{n} people {share:.2f}" for n, share in zip(self.people, self.power, strict=True))
        return f"<Plan, {self.compare[0]} against {self.compare[1]}: power {said}>"

    def _repr_html_(self) -> str:
        return first_rows(self.to_rows(), len(self.people))


def plan(
    study: Study,
    agent: Agent,
    people: Sequence[int],
    studies: int,
    compare: tuple[str, str] | None,
    seed: int,
) -> Plan:
    """Return how often studies of several sizes find a difference, see `Study.plan`."""
    sizes = sorted({int(n) for n in people})
    if not sizes or sizes[0] < 2 or studies < 2:  # noqa: PLR2004 - people are resampled
        raise ValueError(f"people={list(people)}, studies={studies}: give numbers of 2 or more.")
    one, other, names = _compared(study, compare)
    shares = agent.shares(study)
    trials = STEPS - 1 if study.kind == "trust" else 1
    null = 0.5 if other is None else 0.0
    counts = []
    for n in progress(sizes, "planning"):
        cells, _ = cells_of(study, study.codes(n, seed=seed))
        count = 0
        for number in range(studies):
            rng = np.random.default_rng([seed, n, number])
            scores = agent.draw(shares, cells, rng, trials).astype(float)
            found = estimate(Outcomes(scores, cells), one, other, _LEVEL, _RESAMPLES, rng)
            count += not found.low <= null <= found.high
        counts.append(count)
    return Plan(sizes, counts, studies, names)


def _compared(study: Study, given: tuple[str, str] | None) -> tuple[int, int | None, tuple[str, str]]:
    """Return the cell, the one that it is compared with (None: a half), and their names."""
    if study.kind == "forced_choice":
        pairs = [study.cell_names(cell) for cell in range(len(study.cells))]
        wanted = pairs[0] if given is None else tuple(given)
        if wanted not in pairs:
            raise ValueError(f"compare={given!r} is not one of the pairs {pairs}.")
        return pairs.index(wanted), None, (wanted[0], wanted[1])
    names = study.conditions
    if len(names) < 2:  # noqa: PLR2004 - a comparison
        raise ValueError("a plan compares two conditions, and this study has one.")
    one, other = (names[-1], names[0]) if given is None else given
    for name in (one, other):
        if name not in names:
            raise ValueError(f"compare: {name!r} is not one of {list(names)}.{suggest(name, names)}")
    return names.index(one), names.index(other), (one, other)
