"""aw.checkpoints: the weights of a model at many steps, read into a single model."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import Suggesting, require_choice
from attnwidgets._progress import progress
from attnwidgets.circuits.claims.checking import check_claims
from attnwidgets.explanations.viewable import Viewable
from attnwidgets.statistics.head_statistics import head_statistics
from attnwidgets.statistics.statistic import statistics
from attnwidgets.tracing.content import key_of
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.training import repeats
from attnwidgets.training.curve import ClaimsByStep, Curve
from attnwidgets.training.matching import matched
from attnwidgets.training.measures import HEADS, MEASURES, OFFSETS, Look
from attnwidgets.training.reading import checkpoint_of, ended_of, listed, require_alike
from attnwidgets.training.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from attnwidgets.tracing.trace import Trace
    from attnwidgets.training.repeats import Repeats

_MOST_TRACES = 24


def checkpoints(given: Mapping[int, Any] | str | Path, tokenizer: Any = None) -> TrainingRun:
    """Return a model's training as a run: its checkpoints by step, read one after the other.

    The weights of the first checkpoint make a model, into which those of the others are loaded in turn, so
    that there are never two checkpoints in memory (but those that you hold, and while a function returns a
    model). Numbers are cached by the content of the weights and of the text. Only weights in the safetensors
    format are read.

    Args:
        given: {step: checkpoint}, steps ascending. A checkpoint is a model; a folder of transformers; a file
            of `aw.zoo.train.run`; or a function without arguments that returns a model, or (except for the
            first) its state_dict. Or a folder whose entries are called checkpoint-500 or
            step-0500.safetensors.
        tokenizer: The tokenizer; None: that in the folder or file of the first checkpoint.

    Returns:
        A run with `.steps`, `.trace(text, step)`, `.curve("induction")`, `.claims("head 1.1 is induction",
        texts)` and `.view()`.

    Raises:
        TypeError: If a step is not a whole number, or a checkpoint has another form.
        ValueError: If steps are not distinct and ascending; if checkpoints differ in shapes or vocabulary
            (the message names the first parameter that differs); if weights are not in the safetensors
            format, or a tokenizer is missing.
        FileNotFoundError: If a file or folder does not exist.

    Example:
        >>> (first, tokenizer), (last, _) = aw.zoo.trained("dyck", 0), aw.zoo.trained("dyck", 1)
        >>> run = aw.checkpoints({0: first, 100: last}, tokenizer)
        >>> run.curve("previous").values.shape
        (2, 2, 1)
    """
    read = [checkpoint_of(step, item) for step, item in listed(given)]
    for other in read[1:]:
        require_alike(read[0], other)
    tokenizer = tokenizer if tokenizer is not None else read[0].tokenizer()
    if tokenizer is None:
        raise ValueError("tokenizer is missing: the first checkpoint holds none, so pass tokenizer=.")
    return TrainingRun(Weights(read), tokenizer, ended=ended_of(given))


class _Measured(NamedTuple):
    """The measure of a curve.

    Attributes:
        name: Name of the curve.
        key: Identifies the measure, together with the weights.
        of: Takes the model, returns the numbers.
        axes: The names of the axes of the numbers.
        meaning: The definition, in words.
    """

    name: str
    key: str
    of: Callable[[Any], Any]
    axes: tuple[str, ...] = HEADS
    meaning: str = ""


class TrainingRun(Suggesting, Viewable):
    """A model at the steps of its training; see `aw.checkpoints` and `aw.zoo.train.run`.

    Attributes:
        steps: The steps, ascending.
        tokenizer: The tokenizer.
        ended: Where training ended before its last step, in words; "" if it did not.
    """

    kind = "training run"
    viewed_by = "training.run_view:RunView"

    def __init__(self, weights: Weights, tokenizer: Any, *, ended: str = "") -> None:
        self.steps = weights.steps
        self.tokenizer = tokenizer
        self.ended = ended
        self._weights = weights
        self._holds: Any = None  # a folder that lasts as long as the run
        self._numbers: dict[tuple[str, str], Any] = {}
        self._traces: OrderedDict[tuple[int, str], Trace] = OrderedDict()
        self._drawn: Repeats | None = None
        self._looked: tuple[Any, Look | None] = (None, None)

    @property
    def gaps(self) -> Mapping[int, str]:
        """The first parameter that is not finite, by step, of the checkpoints that were read."""
        return dict(self._weights.gaps)

    def model(self, step: int | None = None) -> Any:
        """Return the model with the weights of a step. It is a single model: another step changes it.

        Args:
            step: The step; None: the last.

        Raises:
            ValueError: If the step is not of this run, its weights are not finite, or they are of a model of
                another shape.
        """
        return self._weights.at(self.steps[-1] if step is None else step)

    def trace(self, text: Any, step: int | None = None) -> Trace:
        """Return the trace of a text by the model at a step.

        Its attention and predictions stay as they are when another step is loaded. Methods that run the model
        refuse the trace then, since the weights are others.

        Args:
            text: A text, or a row of token ids.
            step: The step; None: the last.

        Raises:
            ValueError: If the step is not of this run, or its weights are not finite.
        """
        step = self.steps[-1] if step is None else step
        model = self.model(step)
        key = (step, repr(text))
        if key not in self._traces:
            given = {"text": text} if isinstance(text, str) else {"input_ids": list(text)}
            self._traces[key] = record(model, self.tokenizer, **given)
        self._traces.move_to_end(key)
        while len(self._traces) > _MOST_TRACES:
            self._traces.popitem(last=False)
        return self._traces[key]

    def texts(self, texts: Sequence[Any] | None = None) -> Repeats:
        """Return the rows of token ids on which the curves with a name are measured.

        Args:
            texts: Texts (or rows of ids) of equal length that repeat; None: 32 rows of 16 random tokens,
                twice.

        Raises:
            ValueError: If they do not repeat with a common period.
        """
        if texts is not None:
            return repeats.read(self.tokenizer, texts)
        if self._drawn is None:
            # They depend on the vocabulary alone, which all steps share.
            step = self._weights.loaded if self._weights.loaded is not None else self._finite_step()
            self._drawn = repeats.drawn(self.model(step), self.tokenizer)
        return self._drawn

    def _finite_step(self) -> int:
        step = next((step for step in self.steps if self._weights.are_finite(step)), None)
        if step is None:
            raise ValueError("the weights are finite at none of the steps.")
        return step

    def curve(
        self, of: str | Callable[[Any], Any], *, name: str = "", texts: Sequence[Any] | None = None
    ) -> Curve:
        """Return a number of the model at every step.

        With texts that repeat after P tokens, and the mean over the positions i from the second copy on:

            behaviour          the logit of token i + 1 is the largest
            in-context loss    loss at the second copy less loss at the first
            previous           A[layer, head, i, i - 1]
            induction          A[layer, head, i, i - P + 1], the token after the earlier copy
            offset             A[layer, head, i, i - P + k], k = -1 ... 3
            cause              behaviour less behaviour with the output of (layer, head) set to zero
            key composition    [layer, head, earlier layer, earlier head], of the weights alone, as
                               `aw.circuits.head_circuits(...).composition`; also "query", "value composition"

        Any name of `aw.statistics.statistics()` that is read from a map is measured on `texts`, as the mean
        over them.

        Args:
            of: A name from above or of a statistic; or a function that takes the model and returns a number,
                or an array [layer, head].
            name: The name of a function's curve.
            texts: Texts of equal length that repeat, or any texts for a statistic; None: `.texts()`.

        Returns:
            Curve with `.values` [step], [step, layer, head] or [step, layer, head, ...], `.at(1, 1)` of a
            head, and `.appeared`.

        Raises:
            ValueError: If the name is unknown, texts do not repeat, or the model does not predict the next
                token.

        Source: Olsson et al. 2022 (prefix matching, in-context loss); Elhage et al. 2021 (composition).
        """
        if callable(of):
            label = name or getattr(of, "__name__", "function")
            (curve,) = self._over_steps([_Measured(label, key_of(of), of)])
            return curve
        return self.curves([of], texts=texts)[of]

    def curves(self, names: Sequence[str], *, texts: Sequence[Any] | None = None) -> dict[str, Curve]:
        """Return several curves by name; each checkpoint is read once for all of them.

        Args:
            names: Names as `.curve` takes them.
            texts: As of `.curve`.

        Raises:
            ValueError: As of `.curve`.
        """
        of_maps = [name for name, entry in statistics().items() if entry.measure is not None]
        for of in names:
            require_choice("curve", of, [*MEASURES, *of_maps])
        measured = [self._named(of, texts) if of in MEASURES else self._statistic(of, texts) for of in names]
        return dict(zip(names, self._over_steps(measured), strict=True))

    def _named(self, of: str, texts: Sequence[Any] | None) -> _Measured:
        measure, rows = MEASURES[of], self.texts(texts)
        key = f"{of} {rows.period} {rows.second} {key_of(rows.ids)}"
        return _Measured(
            of, key, lambda model: measure.of(self._look(model, rows)), measure.axes, measure.meaning
        )

    def _statistic(self, of: str, texts: Sequence[Any] | None) -> _Measured:
        items = self.texts().ids.tolist() if texts is None else list(texts)

        def measure(model: Any) -> Any:
            by_text = isinstance(items[0], str)
            traces: Any = (
                record(model, self.tokenizer, items)
                if by_text
                else record(model, self.tokenizer, input_ids=items)
            )
            return np.mean([head_statistics(trace, of)[of] for trace in traces], axis=0)

        meaning = statistics()[of].definition.rstrip(".")
        return _Measured(of, f"statistic {of} {key_of(items)}", measure, meaning=meaning)

    def _look(self, model: Any, rows: Repeats) -> Look:
        """Return the model of the step with these rows; several curves share its results."""
        key = (self._weights.loaded, id(rows))
        before, look = self._looked
        if before != key or look is None:
            look = Look(model, self.tokenizer, rows)
            self._looked = (key, look)
        return look

    def _over_steps(self, measured: Sequence[_Measured]) -> list[Curve]:
        arrays = self._measure({item.key: item.of for item in measured}, measured[0].name)
        return [self._curve(item, arrays[item.key]) for item in measured]

    def _measure(self, measured: Mapping[str, Callable[[Any], Any]], name: str) -> dict[str, list[Any]]:
        """Return the measures at every step, by key; None at gaps. It is cached by weights and key."""
        result: dict[str, list[Any]] = {key: [] for key in measured}
        for step in progress(self.steps, f"{name}: steps"):
            for key, of in measured.items():
                result[key].append(self._at(step, key, of))
        return result

    def _at(self, step: int, key: str, of: Callable[[Any], Any]) -> Any:
        cached = (self._weights.digests.get(step, ""), key)
        if cached in self._numbers:
            return self._numbers[cached]
        if not self._weights.are_finite(step):
            return None
        at = (self._weights.digests[step], key)
        if at not in self._numbers:
            self._numbers[at] = of(self.model(step))
        return self._numbers[at]

    def _curve(self, item: _Measured, measured: list[Any]) -> Curve:
        arrays = [None if value is None else np.asarray(value, dtype=np.float64) for value in measured]
        shapes = {array.shape for array in arrays if array is not None}
        if len(shapes) != 1:
            raise ValueError(
                f"curve {item.name!r} has numbers of {len(shapes)} shapes at {len(self.steps)} steps; they "
                "must have the same shape at every step, and some step must be finite."
            )
        (shape,) = shapes
        values = np.stack([np.full(shape, np.nan) if array is None else array for array in arrays])
        axes = item.axes if len(shape) == len(item.axes) else [f"axis {at}" for at in range(len(shape))]
        labels = {
            axis: OFFSETS if axis == "offset" else tuple(range(count))
            for axis, count in zip(axes, shape, strict=True)
        }
        return Curve(item.name, self.steps, values, labels, item.meaning)

    def claims(
        self,
        claims: str | Sequence[str],
        texts: Iterable[Any],
        *,
        roles: Mapping[str, Any] | None = None,
        margin: float = 0.1,
        level: float = 0.95,
    ) -> ClaimsByStep:
        """Check claims about heads at every step; see `aw.circuits.check_claims`.

        Args:
            claims: A sentence such as "head 1.1 is induction", or several.
            texts: The texts on which they are checked.
            roles: Definitions of roles.
            margin: By how much a head must exceed its control.
            level: Confidence of the intervals.

        Returns:
            ClaimsByStep: a verdict for every step, and in words from which step on a claim holds.

        Raises:
            ValueError: If a sentence is not a claim, or cannot be checked on these texts.
        """
        names = [claims] if isinstance(claims, str) else list(claims)
        items = list(texts)
        options: dict[str, Any] = {"roles": roles, "margin": margin, "level": level}

        def check(model: Any) -> list[tuple[str, float]]:
            report = check_claims(model, self.tokenizer, names, items, **options)
            return [(result.verdict, result.difference) for result in report]

        key = key_of("claims", names, items, options)
        checked = self._measure({key: check}, "claims")[key]
        rows = [[("gap", float("nan"))] * len(names) if row is None else row for row in checked]
        return ClaimsByStep(
            self.steps,
            {name: tuple(row[at][0] for row in rows) for at, name in enumerate(names)},
            {name: tuple(row[at][1] for row in rows) for at, name in enumerate(names)},
        )

    def match(self, other: TrainingRun) -> dict[tuple[int, int], tuple[int, int]]:
        """Return which heads of another run attend as those of this run do at the last step.

        Numbers of heads mean nothing in a run from another seed; along a run a head keeps its number. Heads
        are paired so that the correlation of their maps, a mean over `.texts()`, is largest in sum.

        Args:
            other: A run of a model of the same size and vocabulary.

        Returns:
            (layer, head) of the other run by (layer, head) of this run.

        Raises:
            ValueError: If the runs have other numbers of layers or heads.
        """
        rows = self.texts()
        looks = [Look(run.model(), run.tokenizer, rows) for run in (self, other)]
        return matched(*(look.attention for look in looks))

    def __repr__(self) -> str:
        first, last = self.steps[0], self.steps[-1]
        said = [f"training run: {len(self.steps)} checkpoints, step {first:,} to {last:,}"]
        if self.ended:
            said.append(self.ended)
        said += [f"step {step:,} is a gap: {name!r} is not finite" for step, name in self.gaps.items()]
        return "; ".join(said)
