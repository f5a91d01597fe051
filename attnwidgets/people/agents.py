"""Simulated people, with given effects or by a function; and how many people a study needs.

`simulate` draws an answer of every person to every item and returns `Responses`, as files would give them.
`plan` needs scores alone: it draws them for many studies of each size and counts the intervals that exclude
the null. Both draw from the probit model of `Agent.draw`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._significance import wilson
from attnwidgets._tables import Table
from attnwidgets.figures.html_tables import first_rows
from attnwidgets.people.analysis import Outcomes, estimate
from attnwidgets.people.kinds import SIDES, STEPS, is_answer
from attnwidgets.people.responses import Responses, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.people.item import Shown
    from attnwidgets.people.responses import Turn
    from attnwidgets.people.study import Study

    Effects = Mapping[Any, float]

_SIDE_ERROR = "effects of a forced choice are shares by pair: {('lrp', 'random'): 0.8}"

_RESAMPLES = 200
_LEVEL = 0.95


@dataclass(frozen=True)
class Agent:
    """Simulated people with given effects.

    The expected share of right answers (in trust: the mean step, less 1, over 4; in a forced choice: the
    share that prefers the first of a pair) over all people and items is exactly the given effect; people and
    items differ around it. An answer is right with probability
    Phi(sqrt(1 + a^2 + b^2) Phi^-1(share) + a p + b i), where p and i are a person's and an item's standard
    normal numbers: the probit model with crossed random effects.

    Args:
        effects: The share of right answers by condition, 0 to 1; in trust the mean step, 1 to 5; in a forced
            choice the share that prefers the first, by pair: `{("lrp", "random"): 0.8}`.
        people_sd: a, how much people differ, in standard deviations of the noise in a single answer.
        items_sd: b, how much items differ.
        attention: Share of attention checks that are passed.

    Raises:
        ValueError: A standard deviation is negative, or a share is not between 0 and 1.
    """

    effects: Effects
    people_sd: float = 0.5
    items_sd: float = 0.3
    attention: float = 1.0

    def __post_init__(self) -> None:
        if min(self.people_sd, self.items_sd) < 0:
            raise ValueError(f"people_sd={self.people_sd}, items_sd={self.items_sd}: give 0 or more.")
        if not 0 <= self.attention <= 1:
            raise ValueError(f"attention={self.attention} is not a share from 0 to 1.")

    def shares(self, study: Study) -> NDArray[np.float64]:
        """Return the expected share of right answers of each cell of a study: [cell], 0 to 1.

        Raises:
            ValueError: A condition has no effect, or an effect is out of range.
        """
        result = []
        for cell in range(len(study.cells)):
            condition, second = study.cell_names(cell)
            value = self.effects.get((condition, second) if second else condition)
            if value is None and second and (second, condition) in self.effects:
                value = 1 - self.effects[second, condition]
            if value is None:
                near = suggest(condition, [name for name in self.effects if isinstance(name, str)])
                missing = f"the pair {(condition, second)}; {_SIDE_ERROR}" if second else f"{condition!r}"
                raise ValueError(f"effects have none for {missing}.{near}")
            share = (value - 1) / (STEPS - 1) if study.kind == "trust" else value
            if not 0 <= share <= 1:
                raise ValueError(f"the effect {value} of {condition!r} is out of range for {study.kind!r}.")
            result.append(float(share))
        return np.array(result)

    def draw(
        self, shares: NDArray[np.float64], cells: NDArray[np.int64], rng: np.random.Generator, trials: int = 1
    ) -> NDArray[np.int64]:
        """Return how many of `trials` come out right, [person, item].

        Args:
            shares: Expected shares of right answers [cell].
            cells: The cell of each answer [person, item].
            rng: The generator of people, items and answers.
            trials: Binomial trials for each answer: 4 in trust, so that the steps are 1 to 5.
        """
        # Phi^-1(share) is scaled by the spread so that the mean over people and items is the share itself.
        spread = np.sqrt(1 + self.people_sd**2 + self.items_sd**2)
        person = self.people_sd * rng.standard_normal((len(cells), 1))
        item = self.items_sd * rng.standard_normal((1, cells.shape[1]))
        return rng.binomial(trials, ndtr(ndtri(shares)[cells] * spread + person + item))


@dataclass(frozen=True)
class Trial:
    """An item as a person sees it, with which a function that answers is called.

    Args:
        kind: The kind of the study.
        question: The question of the study.
        text: The text.
        words: The words of the text, as they are shown.
        explanations: The explanation, or the two that stand side by side: words with values between -1
            and 1, or a text; empty without an explanation.
        prediction: The model's answer, where it is shown; "" otherwise.
        changed: The changed text of a counterfactual simulation.
        choices: The valid answers; () in `remove_words`.
    """

    kind: str
    question: str
    text: str
    words: tuple[str, ...]
    explanations: tuple[Shown, ...]
    prediction: Any
    changed: str
    choices: tuple[Any, ...]


def trial_of(study: Study, turn: Turn) -> Trial:
    """Return the item of a turn as a person sees it."""
    item, shown = study.items[turn.item], study.shown[turn.item]
    explanations = [entry for condition in study.cells[turn.cell] for entry in shown[condition]]
    if turn.side and len(explanations) > 1:
        explanations.reverse()
    choices: tuple[Any, ...] = () if study.kind == "remove_words" else study.labels or SIDES
    prediction = "" if study.kind == "forward" else item.prediction
    return Trial(
        study.kind, study.question, item.text, study.words[turn.item], tuple(explanations), prediction,
        item.changed, tuple(range(1, STEPS + 1)) if study.kind == "trust" else choices,
    )  # fmt: skip


def cells_of(study: Study, codes: Sequence[str]) -> tuple[NDArray[np.int64], list[list[Turn]]]:
    """Return the cell of each answer [person, item], and the turns of each person."""
    turns = [study.turns(code) for code in codes]
    cells = np.empty((len(codes), len(study.items)), np.int64)
    for person, person_turns in enumerate(turns):
        for turn in person_turns:
            cells[person, turn.item] = turn.cell
    return cells, turns


def simulate(study: Study, agent: Agent | Callable[..., Any], people: int, seed: int) -> Responses:
    """Return the responses of simulated people, see `Study.simulate`."""
    codes = study.codes(people, seed=seed)
    cells, turns = cells_of(study, codes)
    rng = np.random.default_rng([seed, 1])
    if isinstance(agent, Agent):
        trials = STEPS - 1 if study.kind == "trust" else 1
        drawn = agent.draw(agent.shares(study), cells, rng, trials)
        attention = agent.attention
    elif callable(agent):
        drawn, attention = None, 1.0
    else:
        raise TypeError(
            f"agent is a {type(agent).__name__}; give an aw.people.Agent or a function (trial, rng)."
        )
    passed = rng.random((people, len(study.checks))) < attention
    rows = []
    for person, code in enumerate(progress(codes, "simulating people")):
        for position, turn in enumerate(turns[person]):
            if drawn is None:
                answer = _answer_by(agent, study, turn, rng)
            else:
                answer = _drawn_answer(study, turn, int(drawn[person, turn.item]), rng)
            rows.append(row_of(study, code, turn, position, answer))
        for number, right in enumerate(study.checks):
            answer = right if passed[person, number] else None
            rows.append(row_of(study, code, None, number, answer))
    return Responses(rows, study=study)


def _answer_by(agent: Any, study: Study, turn: Turn, rng: np.random.Generator) -> Any:
    """Return the answer of an agent that is a function.

    Raises:
        ValueError: The function returned something that is not a valid answer.
    """
    answer = agent(trial_of(study, turn), rng)
    if study.kind == "remove_words" and not isinstance(answer, str):
        answer = sorted({int(entry) for entry in answer})
    if not is_answer(study.kind, answer, study.labels, len(study.words[turn.item])):
        choices = trial_of(study, turn).choices
        valid = f"answers are {', '.join(map(repr, choices))}" if choices else "answer with places of words"
        raise ValueError(f"the agent returned {answer!r}, which is not an answer in {study.kind!r}; {valid}.")
    return answer


def _drawn_answer(study: Study, turn: Turn, drawn: int, rng: np.random.Generator) -> Any:
    """Return an answer with the drawn score (in trust: less 1); wrong answers are drawn uniformly."""
    truth = study.truths[turn.item]
    if study.kind == "trust":
        return 1 + drawn
    if study.kind == "forced_choice":
        return SIDES[turn.side if drawn else 1 - turn.side]
    if study.kind == "which_model":
        return SIDES[(truth if drawn else 1 - truth) ^ turn.side]
    if study.kind == "remove_words":
        if truth is None:
            raise ValueError(
                f"item {study.ids[turn.item]!r} has no words to remove: give remove=, or a function."
            )
        words = len(study.words[turn.item])
        return list(truth) if drawn else [index for index in range(words) if index not in truth][:1]
    if drawn:
        return truth
    wrong = [label for label in study.labels if label != truth]
    return wrong[int(rng.integers(len(wrong)))] if len(wrong) > 1 else wrong[0]


class Plan(Table):
    """How often studies of several sizes find a difference; made by `study.plan`.

    Attributes:
        people: Numbers of people.
        found: For each number of people, how many simulated studies had a 95 % interval without the null.
        studies: How many studies of each size were simulated.
        compare: The conditions that were compared.
    """

    def __init__(
        self, people: Sequence[int], found: Sequence[int], studies: int, compare: tuple[str, str]
    ) -> None:
        self.people, self.found = tuple(people), tuple(found)
        self.studies, self.compare = studies, compare

    @property
    def power(self) -> tuple[float, ...]:
        """The share of studies that detect the difference, for each number of people."""
        return tuple(count / self.studies for count in self.found)

    def needed(self, power: float = 0.8) -> int | None:
        """Return the smallest simulated number of people that reaches a power; None if none does.

        Args:
            power: The share of studies that should detect the difference.
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
        power = ", ".join(f"{n} people {share:.2f}" for n, share in zip(self.people, self.power, strict=True))
        return f"<Plan, {self.compare[0]} against {self.compare[1]}: power {power}>"

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
    """Return how often studies of several sizes detect a difference, see `Study.plan`."""
    sizes = sorted({int(n) for n in people})
    if not sizes or sizes[0] < 2 or studies < 2:  # noqa: PLR2004 - people are resampled
        raise ValueError(f"people={list(people)}, studies={studies}: give numbers of 2 or more.")
    cell, reference, names = _compared(study, compare)
    shares = agent.shares(study)
    trials = STEPS - 1 if study.kind == "trust" else 1
    null = 0.5 if reference is None else 0.0
    counts = []
    for n in progress(sizes, "planning"):
        cells, _ = cells_of(study, study.codes(n, seed=seed))
        count = 0
        for number in range(studies):
            rng = np.random.default_rng([seed, n, number])
            scores = agent.draw(shares, cells, rng, trials).astype(float)
            result = estimate(Outcomes(scores, cells), cell, reference, _LEVEL, _RESAMPLES, rng)
            count += not result.low <= null <= result.high
        counts.append(count)
    return Plan(sizes, counts, studies, names)


def _compared(study: Study, compare: tuple[str, str] | None) -> tuple[int, int | None, tuple[str, str]]:
    """Return a cell, the reference cell (None: a half), and the names of the compared conditions."""
    if study.kind == "forced_choice":
        pairs = [study.cell_names(cell) for cell in range(len(study.cells))]
        pair = pairs[0] if compare is None else tuple(compare)
        if pair not in pairs:
            raise ValueError(f"compare={compare!r} is not one of the pairs {pairs}.")
        return pairs.index(pair), None, (pair[0], pair[1])
    names = study.conditions
    if len(names) < 2:  # noqa: PLR2004 - a comparison
        raise ValueError("a plan compares two conditions, and this study has one.")
    condition, reference = (names[-1], names[0]) if compare is None else compare
    for name in (condition, reference):
        if name not in names:
            raise ValueError(f"compare: {name!r} is not one of {list(names)}.{suggest(name, names)}")
    return names.index(condition), names.index(reference), (condition, reference)
