"""Study: questions to people about explanations, in a balanced order.

`Study.__init__` checks items, conditions and options, brings every explanation into the form in which it is
drawn (`Shown`), and shuffles the items by the seed. Who sees which item in which condition, and when, follows
from a person's code (`turns`, see `responses.py`); simulation and planning are in `agents.py`, the page in
`study_view.py`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._former import former_keywords
from attnwidgets.course.records import subject_of
from attnwidgets.people.item import NONE, NOTHING, RANDOM, Item, Shown, item_of, placebo, shown_of, words_of
from attnwidgets.people.kinds import (
    CONSENT,
    KINDS,
    QUESTIONS,
    SIMULATIONS,
    check_answers,
    labels_of,
    refuse_coloured,
    refuse_named,
    refuse_told,
    repeated,
    require_fields,
    truth_of,
)
from attnwidgets.people.responses import Turn, balanced_codes, schedule_of_code, turns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from attnwidgets.people.agents import Agent, Plan
    from attnwidgets.people.responses import Responses
    from attnwidgets.people.study_view import StudyView

Kind = Literal["forced_choice", "trust", "which_model", "forward", "counterfactual", "remove_words"]
PageText = Literal["question", "consent"]
PAGE_TEXTS: tuple[PageText, ...] = ("question", "consent")

_MOST_CHECKS = 10
_MOST_CHARACTERS = 4000
_COMMON = 0.7


class Study:
    """Questions to people in a balanced order; made by `aw.people.study`.

    Attributes:
        kind: The kind of question.
        items: The items in the order that codes begin from, shuffled by the seed.
        conditions: Names of the conditions.
        cells: Indices of the conditions in which an item is shown together: a condition each, or the pairs
            of conditions in a forced choice.
        labels: The valid answers in a simulation.
        hash: 16 digits that name this study in its responses. The values of explanations are not hashed: a
            study made anew on another machine, whose values differ in the last digits, is the same.
        notes: Warnings about the study: repeated texts, and a task that is easier than it looks.
    """

    def __init__(
        self, kind: str, items: Sequence[Any], conditions: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        require_choice("kind", kind, KINDS)
        self.kind = kind
        self.seed = int(options["seed"])
        self.conditions = _conditions(kind, conditions)
        self.between = options["design"] == "between"
        unshuffled = [item_of(entry, number) for number, entry in enumerate(items)]
        practice = [item_of(option, number) for number, option in enumerate(options["practice"])]
        self.cells = _cells(kind, self.conditions)
        _require_balance(unshuffled, len(self.cells), between=self.between)
        require_fields(kind, unshuffled, "items")
        require_fields(kind, practice, "practice")
        refuse_told(kind, unshuffled, practice)
        self.labels = labels_of(kind, [*unshuffled, *practice], options["labels"])
        self.checks = _checks(kind, self.labels, options["checks"], self.seed)
        texts = options["texts"]
        self.question = _words("question", texts.get("question") or QUESTIONS[kind])
        self.consent = _words("consent", texts.get("consent", CONSENT))
        self.title = str(options["title"]) or "A study"
        shown = self._shown(unshuffled, "items", signed=options["signed"])
        self._refuse_leaks(unshuffled, shown)
        order = np.random.default_rng(self.seed).permutation(len(unshuffled))
        names = _names(unshuffled)
        self.items = tuple(unshuffled[index] for index in order)
        self.ids = tuple(names[index] for index in order)
        self.shown = tuple(shown[index] for index in order)
        self.practice = tuple(practice)
        self.practice_shown = tuple(self._shown(practice, "practice", signed=options["signed"]))
        self.words = tuple(map(_text_words, self.items, self.shown))
        self.practice_words = tuple(map(_text_words, self.practice, self.practice_shown))
        self.truths = tuple(
            truth_of(kind, item, words, number)
            for number, (item, words) in enumerate(zip(self.items, self.words, strict=True))
        )
        self.notes = (*repeated(kind, unshuffled, practice), *self._remarks())
        contents = [[name, item.text, item.changed] for name, item in zip(self.ids, self.items, strict=True)]
        rest = [
            len(self.practice),
            [str(check) for check in self.checks],
            list(self.labels),
            self.between,
            self.seed,
        ]
        self.hash = subject_of("study", kind, contents, list(self.conditions), self.question, rest)

    def _shown(
        self, items: Sequence[Item], name: str, *, signed: bool
    ) -> list[tuple[tuple[Shown, ...], ...]]:
        """Return the explanations as they are drawn, [item][condition][model]."""
        models = 2 if self.kind == "which_model" else 1
        result = []
        for number, item in enumerate(items):
            by_name: dict[str, tuple[Shown, ...]] = {NONE: (NOTHING,) * models}
            for condition in self.conditions:
                if condition in (NONE, RANDOM):
                    continue
                where = f"{name}[{number}].explanations[{condition!r}]"
                if condition not in item.explanations:
                    raise ValueError(
                        f"{where} is missing: every item needs an explanation in every condition but "
                        f"{NONE!r} and {RANDOM!r}, or it is unbalanced."
                    )
                by_model = item.explanations[condition]
                if models == 1:
                    by_model = (by_model,)
                elif not (isinstance(by_model, (tuple, list)) and len(by_model) == models):
                    raise TypeError(f"{where} is not a pair: give the explanations of both models.")
                drawn = [shown_of(explanation, where) for explanation in by_model]
                by_name[condition] = tuple(drawn if signed else map(_amounts, drawn))
            if RANDOM in self.conditions:
                source = next(
                    (by_name[c] for c in self.conditions if c in by_name and by_name[c][0].values), None
                )
                if source is None:
                    raise ValueError(
                        f"{name}[{number}]: {RANDOM!r} shuffles another condition's values, and none has any."
                    )
                by_name[RANDOM] = tuple(
                    placebo(entry, self.seed + 7 * number + k) for k, entry in enumerate(source)
                )
            drawn_words = {entry.words for drawn in by_name.values() for entry in drawn if entry.words}
            if self.kind == "remove_words" and len(drawn_words) > 1:
                raise ValueError(
                    f"{name}[{number}]: its explanations have different words, and words are marked in all "
                    "of them: bring them into one unit with .to('word')."
                )
            result.append(tuple(by_name[condition] for condition in self.conditions))
        return result

    def _refuse_leaks(self, items: Sequence[Item], shown: Sequence[Sequence[Sequence[Shown]]]) -> None:
        if self.kind != "forward":
            return
        for index, condition in enumerate(self.conditions):
            drawn = [by_condition[index][0] for by_condition in shown]
            refuse_named(items, condition, drawn, self.labels)
            if condition != RANDOM:  # the sum of permuted values is that of the condition they are from
                refuse_coloured(items, condition, drawn)

    def _remarks(self) -> Iterable[str]:
        """Yield notes on properties that make a simulation easier than it looks."""
        if self.kind not in SIMULATIONS:
            return
        commonest, count = Counter(self.truths).most_common(1)[0]
        if count > _COMMON * len(self.items):
            share = f"{count} of {len(self.items)} items"
            yield f"always answering {commonest!r} is right in {share}: balance the predictions"
        labelled = [item for item in self.items if item.label]
        if self.kind == "forward" and labelled and all(item.label == item.prediction for item in labelled):
            yield (
                "the model is right in every item: who knows the true answer needs no explanation; add items "
                "that it gets wrong (Hase and Bansal 2020)"
            )

    # -- who sees what -----------------------------------------------------------------------------

    def turns(self, code: str) -> list[Turn]:
        """Return the turns of the person with this code: item, cell and side, in order.

        Args:
            code: The person's code.

        Example:
            >>> answer = {"prediction": "yes", "explanations": {"a": "why"}}
            >>> items = [{"text": f"text {i}", **answer} for i in range(4)]
            >>> study = aw.people.study("trust", items, ["none", "a"])
            >>> sorted(turn.cell for turn in study.turns("k7m2p9qa"))
            [0, 0, 1, 1]
        """
        items, cells = len(self.items), len(self.cells)
        schedule = schedule_of_code(str(code), self.hash, items, cells)
        return turns_of(schedule, items, cells, between=self.between)

    def codes(self, people: int, *, seed: int = 0) -> list[str]:
        """Return codes to hand out, so that conditions and orders are balanced exactly.

        Codes that the page draws itself are balanced on average only.

        Args:
            people: The number of codes. With a multiple of the number of cells, every item is seen in every
                cell equally often.
            seed: Seed of the codes.

        Raises:
            ValueError: `people` is below 1.

        Example:
            >>> answer = {"prediction": "yes", "explanations": {"a": "why"}}
            >>> items = [{"text": f"text {i}", **answer} for i in range(2)]
            >>> len(aw.people.study("trust", items, ["none", "a"]).codes(6))
            6
        """
        if people < 1:
            raise ValueError(f"people={people}: give 1 or more.")
        return balanced_codes(people, self.hash, len(self.items), len(self.cells), seed)

    def cell_names(self, cell: int) -> tuple[str, str]:
        """Return the condition of a cell, and the second condition of a pair ("" in other kinds)."""
        condition, *second = self.cells[cell]
        return self.conditions[condition], self.conditions[second[0]] if second else ""

    # -- trying it ---------------------------------------------------------------------------------

    def simulate(self, agent: Agent | Callable[..., Any], *, people: int = 20, seed: int = 0) -> Responses:
        """Return the responses of simulated people: a dry run of the study and of its analysis.

        Args:
            agent: An `aw.people.Agent`, with given effects; or a function `(trial, rng)`, called for every
                item with an `aw.results.Trial` (fields: kind, question, text, words, explanations,
                prediction, changed, choices), which returns an answer.
            people: The number of simulated people.
            seed: Seed of the codes, of people, items and answers.

        Returns:
            Responses, as `aw.people.read_responses` returns them.

        Raises:
            ValueError: The agent lacks a condition, or returns something that is not a valid answer.

        Example:
            >>> why = {"a": "why"}
            >>> items = [{"text": f"{i}", "prediction": "yn"[i % 2], "explanations": why} for i in range(8)]
            >>> study = aw.people.study("forward", items, ["none", "a"])
            >>> study.simulate(aw.people.Agent({"none": 0.5, "a": 0.9}), people=10)
            <Responses of 10 people: 80 answers, 20 attention checks>
        """
        from attnwidgets.people.agents import simulate

        return simulate(self, agent, people, seed)

    def plan(
        self,
        agent: Agent,
        *,
        people: Sequence[int] = (8, 16, 32, 64),
        studies: int = 200,
        compare: tuple[str, str] | None = None,
        seed: int = 0,
    ) -> Plan:
        """Return how often studies of several sizes would detect a difference: power, by simulation.

        Args:
            agent: The effects that you expect.
            people: Numbers of people to try.
            studies: How many studies of each size are simulated.
            compare: The condition and its reference; None: the last and the first condition. In a forced
                choice a pair, whose share is compared with a half.
            seed: Seed.

        Returns:
            A `Plan`; `.needed(0.8)` is the smallest number that suffices.

        Raises:
            ValueError: A number is below 2, or a condition is unknown.

        Example:
            >>> why = {"a": "why"}
            >>> items = [{"text": f"{i}", "prediction": "yn"[i % 2], "explanations": why} for i in range(8)]
            >>> study = aw.people.study("forward", items, ["none", "a"])
            >>> plan = study.plan(aw.people.Agent({"none": 0.5, "a": 0.9}), people=[4, 24], studies=40)
            >>> plan.needed(0.8)
            24
        """
        from attnwidgets.people.agents import plan

        return plan(self, agent, people, studies, compare, seed)

    def view(self, code: str | None = None, **options: Any) -> StudyView:
        """Return the study as people see it, see `aw.people.StudyView`.

        Args:
            code: The person's code; None: the view draws one.
            **options: Options of the view.
        """
        from attnwidgets.people.study_view import StudyView

        return StudyView(self, code=code, **options)

    def __repr__(self) -> str:
        design = "each person one condition" if self.between else "each person every condition"
        return (
            f"<Study {self.kind} of {len(self.items)} items in {', '.join(self.conditions)}; {design}; "
            f"{len(self.practice)} practice items, {len(self.checks)} attention checks>"
        )


@former_keywords(PAGE_TEXTS, "texts", '{"question": ..., "consent": ...}', dict)
def study(
    kind: Kind,
    items: Sequence[Item | dict[str, Any]],
    conditions: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
    design: Literal["within", "between"] = "within",
    practice: Sequence[Item | dict[str, Any]] = (),
    checks: int = 2,
    texts: Mapping[PageText, str] = MappingProxyType({}),
    title: str = "",
    signed: bool = True,
    seed: int = 0,
) -> Study:
    """Return a study, in which people judge explanations or predict a model's answers from them.

    Args:
        kind: "forced_choice": which of two explanations is better; "trust": in five steps; "which_model":
            which of two models is better; "forward": the model's answer; "counterfactual": the model's answer
            for a changed text; "remove_words": which words the model should not use.
        items: Items, or dicts with their fields (see `aw.people.Item`). How many there are is a multiple of
            the number of conditions (of pairs of them, in a forced choice), so that every person sees each
            equally often.
        conditions: Names of the conditions: keys of the items' explanations, "none" (the text alone) and
            "random" (the placebo: the first other condition's values on other words of the text).
        labels: The valid answers in a simulation; None: the predictions of the items, sorted.
        design: "within": each person sees every condition, on different items; "between": a single condition.
        practice: Items that come first and do not count. The right answer follows each item.
        checks: Number of attention checks among the items, which ask for a given answer.
        texts: Other texts of the page: the "question", and the "consent" that people agree to before the
            first item.
        title: Heading of the study.
        signed: Whether words with negative values are shown in another colour. False: all values are shown
            as amounts.
        seed: Seed of the order that everybody's order is made from, and of the placebo.

    Returns:
        A `Study`. A warning says where a text comes twice, and where the task is easier than it looks: the
        same answer is nearly always right, or the model is always right.

    Raises:
        TypeError: An item or an explanation has the wrong type.
        ValueError: The kind, the design or a text of the page is unknown; items are unbalanced, or lack what
            the kind needs; a simulation asks for an answer that a practice item or another item shows; or, in
            "forward", an explanation gives the answer away: it contains a label that is not in the text, or
            it is signed and the sum of its values tells the model's answers apart with a balanced accuracy of
            0.9 or more (at the best threshold; of fewer than eight items, at zero), so that the colours state
            the class.

    Source:
        Doshi-Velez and Kim 2017, "Towards a rigorous science of interpretable machine learning"; Hase and
        Bansal 2020, "Evaluating explainable AI".

    Example:
        >>> item = {"text": "A dull film.", "prediction": "negative"}
        >>> second = {"text": "A fine film.", "prediction": "positive"}
        >>> item["explanations"] = {"lrp": (["A", "dull", "film."], [0.0, 0.9, 0.1])}
        >>> second["explanations"] = {"lrp": (["A", "fine", "film."], [0.0, 0.8, 0.2])}
        >>> aw.people.study("forward", [item, second], ["none", "lrp"])
        <Study forward of 2 items in none, lrp; each person every condition; 0 practice items, ...>
    """
    require_choice("design", design, ("within", "between"))
    for name in texts:
        require_choice("texts", name, PAGE_TEXTS)
    options: dict[str, Any] = {"labels": labels, "design": design, "practice": practice, "checks": checks}
    options |= {"texts": texts, "title": title, "signed": signed, "seed": seed}
    result = Study(kind, items, conditions, options)
    for note in result.notes:
        warnings.warn(f"aw.people.study: {note}.", stacklevel=2)
    return result


def _conditions(kind: str, conditions: Sequence[str]) -> tuple[str, ...]:
    if isinstance(conditions, str):
        raise TypeError(f"conditions={conditions!r} is one name; give a list: conditions=[{conditions!r}].")
    names = tuple(str(name) for name in conditions)
    least = 2 if kind == "forced_choice" else 1
    if len(names) < least or len(set(names)) < len(names) or "" in names:
        raise ValueError(f"conditions {list(names)}: give {least} or more names, each once.")
    if kind == "which_model" and RANDOM in names and len(names) == 1:
        raise ValueError(f"conditions {list(names)}: {RANDOM!r} is made from another condition.")
    return names


def _cells(kind: str, conditions: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the cells: tuples of indices of one condition, or of the two of a pair."""
    numbers = range(len(conditions))
    return (
        tuple(combinations(numbers, 2)) if kind == "forced_choice" else tuple((number,) for number in numbers)
    )


def _require_balance(items: Sequence[Item], cells: int, *, between: bool) -> None:
    count = len(items)
    if count == 0:
        raise ValueError("items is empty.")
    if not between and count % cells:
        less, more = count % cells, -count % cells
        advice = f"add {more}" if count < cells else f"add {more} or leave out {less}"
        raise ValueError(
            f"{count} items in {cells} conditions (or pairs) are unbalanced: everybody would see some more "
            f"often than others; {advice}."
        )


def _checks(kind: str, labels: Sequence[str], count: int, seed: int) -> tuple[Any, ...]:
    if not isinstance(count, int) or not 0 <= count <= _MOST_CHECKS:
        raise ValueError(f"checks={count!r}: give a whole number, 0 to {_MOST_CHECKS}.")
    return tuple(check_answers(kind, labels, count, seed))


def _words(name: str, text: str) -> str:
    if not isinstance(text, str) or not 0 < len(text.strip()) <= _MOST_CHARACTERS:
        raise ValueError(f"{name} is not a text of 1 to {_MOST_CHARACTERS:,} characters.")
    return text


def _names(items: Sequence[Item]) -> list[str]:
    names = [item.id or str(number) for number, item in enumerate(items)]
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{count} items have the id {name!r}: ids are unique.")
    return names


def _text_words(item: Item, shown: Sequence[Sequence[Shown]]) -> tuple[str, ...]:
    """Return the words of a text: those of its first explanation that has words."""
    drawn = (entry.words for by_condition in shown for entry in by_condition if entry.words)
    return next(drawn, words_of(item.text))


def _amounts(shown: Shown) -> Shown:
    return shown._replace(values=tuple(abs(value) for value in shown.values))
