"""Influence: training texts that helped a prediction and that harmed it; wrong labels by self-influence.

`Influence` is the result; its `leave_one_out` fits the head again from the stored features (`refit.py`).
`mislabelled` scores the rankings of a result against labels that are wrong on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets._progress import progress
from attnwidgets._selecting import position
from attnwidgets._tables import Table
from attnwidgets.evaluate.metrics.ranking import average_precision, expected_average_precision
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored
from attnwidgets.explanations.viewable import Viewable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.concepts.refit import Refit
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]


class InfluentialText(NamedTuple):
    """A training text with its influence on a test.

    Attributes:
        text: The text.
        label: Its label.
        influence: Its influence; positive is harmful.
        change: How the test's measure changes when it is left out, estimated; NaN for gradients.
        number: Its number among the training texts.
    """

    text: str
    label: str
    influence: float
    change: float
    number: int


@dataclass(frozen=True, eq=False)
class Influence(Table, Viewable):
    """Influence of training texts on tests [test, train]. Made by `aw.concepts.influence`.

    Attributes:
        values: [test, train]: the derivative of a test's loss by the weight of a training text in the
            objective, I_up,loss of Koh and Liang (2017). Positive is harmful: more of the text raises the
            loss. Leaving it out changes the loss by about -values / n. With `normalize`, divided by the
            square root of the text's influence on itself.
        change: Estimated change of the measure when a training text is left out [test, train]; positive: it
            was helpful (of the margin, how far it falls). None for gradients.
        self_influence: Of every training text on the loss at itself [train], at least 0; large for texts
            that only they themselves explain, as wrong labels.
        losses: Loss of every training text [train], in nats.
        leverage: How far a text decides the prediction for itself [train], 0 to 1; None for gradients.
        distance: One less the cosine between features [test, train], 0 to 2; None for gradients.
        tests: The texts that are explained.
        train: The training texts.
        test_labels: Their labels.
        train_labels: Their labels.
        of: "head" or "gradients".
        measure: "loss" or "margin".
        l2: Penalty of the refit head; NaN for gradients.
        agreement: Share of tests for which the refit head predicts the model's class; NaN for gradients
            and for a regression.
        agreement_train: The same of training texts.
        gradient_norm: Length of the objective's gradient at the model's head: 0 at the minimum.
        model: The model's id.
        notes: Caveats.
    """

    kind: ClassVar[str] = "Influence"
    viewed_by: ClassVar[str] = "concepts.influence_view:InfluenceView"

    values: Float
    change: Float | None
    self_influence: Float
    losses: Float
    leverage: Float | None
    distance: Float | None
    tests: tuple[str, ...]
    train: tuple[str, ...]
    test_labels: tuple[str, ...]
    train_labels: tuple[str, ...]
    of: str
    measure: str
    l2: float
    agreement: float
    agreement_train: float
    gradient_norm: float
    model: str = ""
    notes: tuple[str, ...] = ()
    _refit: Refit | None = field(default=None, repr=False)
    _tests: Any = field(default=None, repr=False)  # features and labels of the tests, as numbers
    _sample: Any = field(default=None, repr=False)  # trace of a training text; None if traces were given

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of tests and of training texts."""
        return (len(self.tests), len(self.train))

    def helpful(self, test: int = 0, k: int = 5) -> list[InfluentialText]:
        """Return the training texts that help a test most, the most helpful first.

        Args:
            test: Number of the test.
            k: Largest number of texts; those that do not help are left out.

        Raises:
            IndexError: If the index of the test is out of range.
        """
        return self._ranked(test, k, 1)

    def harmful(self, test: int = 0, k: int = 5) -> list[InfluentialText]:
        """Return the training texts that harm a test most, the most harmful first; as `helpful`.

        Args:
            test: Number of the test.
            k: Largest number of texts.

        Raises:
            IndexError: If the index of the test is out of range.
        """
        return self._ranked(test, k, -1)

    def _ranked(self, test: int, k: int, sign: int) -> list[InfluentialText]:
        row = self.values[position(test, range(len(self.tests)), "test")]
        order = [int(at) for at in np.argsort(sign * row, kind="stable")[:k] if sign * row[at] < 0]
        change = np.full(len(row), np.nan) if self.change is None else self.change[test]
        return [
            InfluentialText(self.train[at], self.train_labels[at], float(row[at]), float(change[at]), at)
            for at in order
        ]

    @property
    def measured(self) -> Float | None:
        """The measure of every test under the refit head, with all texts [test]; None for gradients.

        For "margin" it is the margin with its sign turned, or the output of a regression.
        """
        if self._refit is None:
            return None
        features, labels = self._tests
        return self._refit.measured(self._refit.outputs_for(features), labels, self.measure)  # type: ignore[arg-type]

    def leave_one_out(self, train: Iterable[int] | None = None) -> Float:
        """Fit the head again without each text and return the true change of the measure [test, text].

        As in `.change`, a positive value says that the text was helpful: the loss rises, or the margin falls.
        The divisor stays the number of all texts, as in the influence: the text left out has weight zero.

        Args:
            train: Numbers of training texts; all by default (a fit each, of a few Newton steps).

        Raises:
            IndexError: If the index of the text is out of range.
            ValueError: For influence by gradients, which fits no head.
        """
        if self._refit is None:
            raise ValueError(
                "leave_one_out() fits a head again, and influence of='gradients' has none; use of='head'."
            )
        every = range(len(self.train))
        chosen = list(every if train is None else (position(at, every, "training text") for at in train))
        features, labels = self._tests
        before = self._refit.measured(self._refit.outputs_for(features), labels, self.measure)  # type: ignore[arg-type]
        result = np.zeros((len(self.tests), len(chosen)))
        for column, text in enumerate(progress(chosen, "leaving out")):
            outputs = self._refit.outputs_without(text, features)
            result[:, column] = self._refit.measured(outputs, labels, self.measure) - before  # type: ignore[arg-type]
        return result

    def _columns(self) -> Iterator[Columns]:
        """Yield a part for each test."""
        return map(self._of_test, range(len(self.tests)))

    def _of_test(self, test: int) -> Columns:
        """Return the columns of a test: both texts, their labels, influence, change and distance."""
        texts = len(self.train)
        columns: dict[str, Any] = {
            "test": [test] * texts,
            "train": range(texts),
            "test_text": [self.tests[test]] * texts,
            "train_text": self.train,
            "test_label": [self.test_labels[test]] * texts,
            "train_label": self.train_labels,
            "influence": self.values[test],
        }
        if self.change is not None and self.distance is not None:
            columns |= {"change": self.change[test], "distance": self.distance[test]}
        return columns

    def figure(self, test: int = 0, *, k: int = 6, columns: int = 2) -> Figure:
        """Return a matplotlib figure: the most helpful and the most harmful training texts of a test.

        Args:
            test: Number of the test.
            k: Largest number of texts of each kind.
            columns: How many columns of a page it takes, 1 or 2.

        Raises:
            IndexError: If the index of the test is out of range.
        """
        from attnwidgets.concepts.figures import influence_sheet

        return influence_sheet(self, test, k=k).figure(columns)

    def __repr__(self) -> str:
        return self._text_of(0)

    def _text_of(self, test: int) -> str:
        """Return the printed form: method, agreement, and the most influential texts of a test."""
        sizes = f"[test {self.shape[0]}, train {self.shape[1]}]"
        lines = [f"Influence by {self.of} on the {self.measure} {sizes} {self.model}"]
        if not np.isnan(self.agreement):
            lines.append(
                f"  a head fitted again (l2 {self.l2:g}) predicts what the model does for "
                f"{self.agreement:.0%} of tests and {self.agreement_train:.0%} of training texts"
            )
        lines.append(f"  {_spoken(self.tests[test], self.test_labels[test])}")
        for word, ranked in (("helped", self.helpful(test, 2)), ("harmed", self.harmful(test, 2))):
            lines += [
                f"    {word} {text.influence:+.3g}  {_spoken(text.text, text.label)}" for text in ranked
            ]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def _spoken(text: str, label: str) -> str:
    """Return a text with its label; without it for language models, which have no labels."""
    return f"{label}: {quoted(text)}" if label else quoted(text)


def mislabelled(influence: Influence, flipped: Iterable[int]) -> Scorecard:
    """Return how well influence ranks wrong training labels first, against the plain loss and chance.

    A text that no other text explains has a large influence on itself, and also a large loss, which needs no
    Hessian: the scorecard shows both.

    Args:
        influence: Of a model trained with the wrong labels.
        flipped: Numbers of the training texts whose labels are wrong.

    Returns:
        A Scorecard [metric, method, 1] of two metrics, 0 to 1: average precision of the ranking, and recall,
        the share of wrong labels among the first n texts, for n wrong labels. Baselines: "random" in closed
        form, "oracle".

    Raises:
        ValueError: If `flipped` is empty.
        IndexError: If the index of the text is out of range.

    Source: Koh and Liang 2017, section 5.4.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> train = aw.demo_texts("train")[:40]
        >>> labels = [int(text.label == "positive") for text in train]
        >>> labels[3] = 1 - labels[3]
        >>> influence = aw.concepts.influence(model, tokenizer, train, train[:1], labels=labels)
        >>> aw.concepts.mislabelled(influence, [3]).methods
        ('self_influence', 'loss', 'random', 'oracle')
    """
    n = len(influence.train)
    wrong = sorted({int(at) for at in flipped})
    if not wrong:
        raise ValueError("flipped is empty: name at least one training text whose label is wrong.")
    if wrong[0] < 0 or wrong[-1] >= n:
        raise IndexError(
            f"flipped names text {wrong[-1] if wrong[-1] >= n else wrong[0]}; there are 0 to {n - 1}."
        )
    rows = []
    for scores in (influence.self_influence, influence.losses):
        first = np.argsort(-scores, kind="stable")[: len(wrong)]
        rows.append((average_precision(scores, wrong), float(np.isin(first, wrong).mean())))
    rows += [(expected_average_precision(len(wrong), n), len(wrong) / n), (1.0, 1.0)]
    return scored(
        np.array(rows).T[None, :, :, None],
        "mislabelled",
        model=influence.model,
        metrics=("average_precision", "recall"),
        methods=("self_influence", "loss", RANDOM, ORACLE),
        baselines=(RANDOM, ORACLE),
        unit="text",
        options={"of": influence.of, "l2": influence.l2, "flipped": len(wrong), "texts": n},
        paper="Koh and Liang 2017, section 5.4",
    )
