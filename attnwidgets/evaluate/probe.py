"""aw.evaluate.probe: the labels that a linear probe reads from states, compared with control labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice, suggests_keywords
from attnwidgets._logistic import fit_softmax, log_softmax
from attnwidgets._progress import progress
from attnwidgets._tensors import as_array
from attnwidgets.evaluate.probe_numbers import NumbersTrial, numbers_of
from attnwidgets.evaluate.scorecards.build import of_means, scored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]
    Rows = NDArray[np.int64]

PAPER = (
    "Hewitt and Liang 2019, Designing and Interpreting Probes with Control Tasks; "
    "Voita and Titov 2020, Information-Theoretic Probing with Minimum Description Length"
)
MAJORITY, MEAN, POSITION, RANDOM = "majority", "mean", "position", "random weights"
_MOST_PLACES = 200  # with more different positions, a position is a number and no longer a column
_LEAST = 1e-12

Control = Literal["type", "shuffle", "none"]
CONTROLS: tuple[Control, ...] = ("type", "shuffle", "none")
_TWO = 2


@suggests_keywords
def probe(
    states: Any,
    labels: Sequence[Any],
    *,
    groups: Sequence[Any] | None = None,
    control: Control | None = None,
    mdl: bool = True,
    random_states: Any = None,
    folds: int = 5,
    penalty: float = 1.0,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Scorecard:
    """Train linear probes on states, layer by layer, and score their predictions on unseen texts.

    A high accuracy does not say that a model encodes a property: the probe itself may learn it, and positions
    or the embeddings may reveal it. Four controls are returned with it. With `groups`, the test texts are
    of types that the probe has not seen (other cue words). Control labels, drawn at random for every type,
    measure how much a probe learns by heart: the difference is its selectivity. The description length counts
    how many texts a probe needs. And the baselines read no states, only positions, or states of a model with
    random weights.

    Args:
        states: `aw.concepts.states(...)`, or numbers [text, layer, dim] or [text, dim].
        labels: The class of every text: names or numbers. An array [text, number] holds numbers to predict,
            such as the pixels of a patch, by ridge regression.
        groups: The type of every text, such as the word that decides its label.
        control: "type" draws a random label for every type, "shuffle" exchanges labels among texts, "none"
            leaves it out. By default "type" with groups, else "shuffle".
        mdl: Whether the description length is measured; not of numbers.
        random_states: States of the same texts by a model with random weights (inside `with
            aw.randomized(model):`), as another baseline.
        folds: Parts of the cross-validation, each tested once.
        penalty: Weight of |theta|^2 / 2, for states divided by their spread; scikit-learn's 1 / C.
        level: Coverage of the confidence intervals (bootstrap over texts).
        resamples: How often texts are resampled for them.
        seed: Seed of folds, control labels and order.

    Returns:
        A Scorecard [metric, method, layer], 0 to 1 unless noted: "accuracy" on test texts, of unseen types
        with groups; "accuracy_seen", with groups, on other texts of the same types; "control", of
        control labels; "selectivity", the accuracy on seen types less that of the control labels (-1 to 1);
        "compression", length of the labels in a uniform code over that in an online code: a probe, trained
        on earlier texts, predicts each block (above 1 if states help). Baselines: "majority",
        "position", and "random weights". Of numbers, "r2" and "r2_seen", the share of their variance over
        unseen texts that is predicted (below 0: worse than their mean), instead of accuracies and
        compression, and the baseline "mean" instead of "majority".

    Raises:
        ValueError: If there are more or fewer labels than texts, some are missing, there is a single class or
            type, states are not finite, or an option is unknown.

    Source: Hewitt and Liang 2019 (control tasks, selectivity); Voita and Titov 2020 (online code).

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> texts = aw.demo_texts("train")[:40]
        >>> states = aw.concepts.states(model, tokenizer, texts, layers=[0, 6])
        >>> card = aw.evaluate.probe(states, [each.label for each in texts], resamples=50)
        >>> card.metrics, card.x
        (('accuracy', 'control', 'selectivity', 'compression'), (0, 6))
    """
    values, layers = _values(states, "states")
    numbers = numbers_of(labels)
    task = probe_task(labels if numbers is None else range(len(numbers)), groups, len(values), numbers)
    if not isinstance(folds, (int, np.integer)) or not 2 <= folds <= task.n:  # noqa: PLR2004
        raise ValueError(
            f"folds must be a whole number from 2 to the number of texts, {task.n}, not {folds!r}."
        )
    if not penalty > 0:
        raise ValueError(f"penalty is {penalty}; without one, separable data has no best probe.")
    kind = control or ("shuffle" if groups is None else "type")
    trial: _Trial | NumbersTrial
    if numbers is None:
        trial = _trial(task, kind, int(folds), seed, penalty, mdl=mdl)
    else:
        trial = _numbers_trial(task, numbers, kind, int(folds), seed, penalty)
    inputs = {"probe": values}
    if random_states is not None:
        chance, random_layers = _values(random_states, "random_states")
        if chance.shape[:2] != values.shape[:2] or random_layers != layers:
            raise ValueError(
                f"random_states has shape {chance.shape} at layers {random_layers}; the states have "
                f"{values.shape} at {layers}."
            )
        inputs[RANDOM] = chance
    rows = {name: [] for name in inputs}  # type: dict[str, list[Float]]
    for column in progress(range(len(layers)), "probing, by layers"):
        for name, array in inputs.items():
            rows[name].append(trial.scores(np.asarray(array[:, column], dtype=np.float64)))
    samples = {name: np.stack(parts, axis=-1) for name, parts in rows.items()}
    for name, result in _baselines(trial, states, task.n).items():
        samples[name] = np.repeat(result[..., None], len(layers), axis=-1)
    names = ["probe", *(name for name in (MAJORITY, MEAN, POSITION, RANDOM) if name in samples)]
    card = scored(
        np.stack([samples[name] for name in names], axis=2),
        "probe",
        model=str(getattr(states, "model", "") or ""),
        metrics=trial.raw,
        methods=names,
        baselines=names[1:],
        x=layers,
        x_name="layer",
        unit="text",
        level=level,
        resamples=resamples,
        seed=seed,
        title="linear probe",
        paper=PAPER,
        notes=_notes(task, states, kind, classes=numbers is None),
        options={
            "at": str(getattr(states, "at", "")),
            "classes": list(task.classes) if numbers is None else [],
            "types": 0 if task.types is None else int(task.types.max()) + 1,
            "control": kind,
            "folds": int(folds),
            "penalty": penalty,
            "examples": task.n,
        },
    )
    return of_means(card, trial.summary, metrics=trial.metrics)


def _values(states: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """Return states as [text, layer, dim] and the numbers of their layers."""
    array = getattr(states, "values", None)
    values = array if isinstance(array, np.ndarray) else as_array(states)
    values = values[:, None] if values.ndim == 2 else values  # noqa: PLR2004 - a single layer
    if values.ndim != 3 or not len(values):  # noqa: PLR2004
        raise ValueError(f"{name} has shape {values.shape}; it must be [text, layer, dim] or [text, dim].")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} hold NaN or infinite values.")
    layers = getattr(states, "layers", None)
    return values, tuple(range(values.shape[1])) if layers is None else tuple(int(layer) for layer in layers)


@dataclass(frozen=True)
class _Trial:
    """Labels, folds and the order of an evaluation; the same for every layer and baseline."""

    task: ProbeTask
    folds: dict[str, tuple[Rows, Rows]]  # by raw metric: labels, and the fold of every example
    order: Rows | None  # of the online code; None leaves it out
    penalty: float

    @property
    def raw(self) -> list[str]:
        """Metrics of single examples."""
        return [*self.folds, *(["bits"] if self.order is not None else [])]

    @property
    def metrics(self) -> list[str]:
        """Metrics of the scorecard."""
        result = list(self.folds)
        result += ["selectivity"] if "control" in result else []
        return [*result, *(["compression"] if self.order is not None else [])]

    def scores(self, values: Float) -> Float:
        """Return the scores of each example [example, raw metric]: 1 where it is right, and its bits."""
        spread = float(values.std(0).mean())
        scaled = (values - values.mean(0)) / (spread or 1.0)
        result = [self._right(scaled, *labels_and_folds) for labels_and_folds in self.folds.values()]
        if self.order is not None:
            result.append(self._bits(scaled))
        return np.stack(result, axis=1)

    def _right(self, values: Float, labels: Rows, fold: Rows) -> Float:
        right = np.zeros(len(labels))
        theta = None
        for number in np.unique(fold):
            test = fold == number
            theta = self._fit(values[~test], labels[~test], theta)
            right[test] = _outputs(values[test], theta).argmax(1) == labels[test]
        return right

    def _fit(self, values: Float, labels: Rows, start: Float | None) -> Float:
        return fit_softmax(values, labels, len(self.task.classes), penalty=self.penalty, start=start)

    def _bits(self, values: Float) -> Float:
        """Return the bits of every label in the online code [example]."""
        classes = len(self.task.classes)
        bits = np.zeros(self.task.n)
        theta, start = None, 0
        order = np.arange(self.task.n) if self.order is None else self.order
        for stop in blocks(self.task.n):
            rows, earlier = order[start:stop], order[:start]
            if start == 0:  # nothing was sent yet: both sides share the uniform code
                bits[rows] = np.log2(classes)
            else:
                theta = self._fit(values[earlier], self.task.labels[earlier], theta)
                log_p = log_softmax(_outputs(values[rows], theta))
                bits[rows] = -log_p[np.arange(len(rows)), self.task.labels[rows]] / np.log(2)
            start = stop
        return bits

    def summary(self, means: Float) -> Float:
        """Return the metrics of means of the raw metrics [draw, raw metric, ...]."""
        by_name = dict(zip(self.raw, np.moveaxis(means, 1, 0), strict=True))
        result = [by_name[name] for name in self.folds]
        if "control" in by_name:
            result.append(by_name.get("accuracy_seen", by_name["accuracy"]) - by_name["control"])
        if self.order is not None:
            result.append(np.log2(len(self.task.classes)) / np.maximum(by_name["bits"], _LEAST))
        return np.stack(result, axis=1)


def _trial(task: ProbeTask, control: Control, folds: int, seed: int, penalty: float, *, mdl: bool) -> _Trial:
    rng = np.random.default_rng(seed)
    seen = (task.labels, random_folds(task.labels, folds, rng))
    tasks = {"accuracy": seen}
    if task.types is not None:
        parts = min(folds, int(task.types.max()) + 1)
        tasks = {"accuracy": (task.labels, type_folds(task.types, parts, rng)), "accuracy_seen": seen}
    if control != "none":
        drawn = control_labels(task, control, rng)
        tasks["control"] = (drawn, random_folds(drawn, folds, rng))
    return _Trial(task, tasks, rng.permutation(task.n) if mdl else None, penalty)


def _numbers_trial(
    task: ProbeTask, numbers: Float, control: Control, folds: int, seed: int, penalty: float
) -> NumbersTrial:
    rng = np.random.default_rng(seed)
    scaled = numbers / numbers.std(axis=0)
    seen = (scaled, random_folds(np.zeros(task.n, np.int64), folds, rng))
    tasks = {"r2": seen}
    if task.types is not None:
        parts = min(folds, int(task.types.max()) + 1)
        tasks = {"r2": (scaled, type_folds(task.types, parts, rng)), "r2_seen": seen}
    if control != "none":
        # The control of a text is the numbers of another.
        others = control_labels(task, control, rng)
        tasks["control"] = (scaled[others], random_folds(np.zeros(task.n, np.int64), folds, rng))
    return NumbersTrial(tasks, penalty)


def _baselines(trial: _Trial | NumbersTrial, states: Any, count: int) -> dict[str, Float]:
    """Return the scores of baselines that read no states [example, raw metric]."""
    constant = MEAN if isinstance(trial, NumbersTrial) else MAJORITY
    result = {constant: trial.scores(np.zeros((count, 1)))}
    positions = _places(states, count)
    return result if positions is None else result | {POSITION: trial.scores(positions)}


def _outputs(values: Float, theta: Float) -> Float:
    return values @ theta[:, :-1].T + theta[:, -1]


def _places(states: Any, count: int) -> Float | None:
    """Return the positions of the states, from both ends [text, column]; None if they were not recorded."""
    positions, lengths = (getattr(states, name, None) for name in ("positions", "lengths"))
    if positions is None or lengths is None or len(positions) != count:
        return None
    columns = []
    for distances in (np.asarray(positions), np.asarray(lengths) - np.asarray(positions)):
        values = np.unique(distances)
        if len(values) <= _MOST_PLACES:
            columns.append((distances[:, None] == values).astype(np.float64) * np.sqrt(len(values)))
        else:
            columns.append(((distances - distances.mean()) / max(distances.std(), _LEAST))[:, None])
    return np.concatenate(columns, axis=1)


def _notes(task: ProbeTask, states: Any, control: Control, *, classes: bool) -> list[str]:
    notes = [str(note) for note in getattr(states, "notes", ())]
    smallest = int(np.bincount(task.labels).min())
    if classes and smallest < 10:  # noqa: PLR2004
        few = f"{smallest} text{'s' * (smallest > 1)}"
        notes.append(f"the smallest class has {few}: its accuracy is hardly determined")
    if task.types is not None and control == "type" and int(task.types.max()) + 1 == task.n:
        notes.append("every text is a type of its own: control labels cannot be learnt by heart")
    return notes


@dataclass(frozen=True)
class ProbeTask:
    """Labels of examples, as numbers.

    Attributes:
        labels: Index of the class of every example [example].
        classes: Names of the classes.
        types: Number of the type of every example [example], such as its cue word; None without types.
    """

    labels: Rows
    classes: tuple[str, ...]
    types: Rows | None

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.labels)


def probe_task(labels: Any, groups: Any, count: int, numbers: Any = None) -> ProbeTask:
    """Return labels and types of `count` examples as numbers; with `numbers`, labels are not classes.

    Raises:
        ValueError: If labels and examples differ in number, a label is missing, all are the same or no two;
            if there are fewer than two types.
    """
    names = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(names) != count:
        raise ValueError(f"labels has {len(names)} entries, and there are states of {count} texts.")
    missing = [at for at, label in enumerate(names) if label is None or label != label]  # noqa: PLR0124 - NaN
    if missing:
        raise ValueError(
            f"labels holds {len(missing):,} of {count:,} without a label (the first at {missing[0]}): leave "
            "these texts out, or derive their label, before their states are read."
        )
    classes = sorted(set(names), key=lambda label: (str(type(label)), label))
    if len(classes) < _TWO:
        raise ValueError(f"labels are all {classes[0]!r}; a probe needs two classes.")
    if len(classes) == count > _TWO and numbers is None:
        raise ValueError(
            f"labels are {count:,} different ones for {count:,} texts: each is a class of its own, and no "
            "text can be read by others. Make classes of measured numbers first, as value > median, or pass "
            "an array [text, 1] to predict them."
        )
    numbers = {label: number for number, label in enumerate(classes)}
    types = None
    if groups is not None:
        named = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
        if len(named) != count:
            raise ValueError(f"groups has {len(named)} entries, and there are states of {count} texts.")
        type_numbers = {name: number for number, name in enumerate(dict.fromkeys(named))}
        if len(type_numbers) < _TWO:
            raise ValueError("groups holds one type only; unseen types need at least two.")
        types = np.array([type_numbers[name] for name in named])
    return ProbeTask(np.array([numbers[label] for label in names]), tuple(map(str, classes)), types)


def control_labels(task: ProbeTask, control: Control, rng: np.random.Generator) -> Rows:
    """Return labels without information, drawn from the distribution of the true labels.

    "type" draws a label for every type, which a probe can only learn by heart (Hewitt and Liang 2019);
    "shuffle" exchanges labels among examples.

    Raises:
        ValueError: If `control` is unknown, or types are needed and not given.
    """
    require_choice("control", control, CONTROLS)
    if control == "shuffle":
        return rng.permutation(task.labels)
    if task.types is None:
        raise ValueError(
            "control='type' draws a label for every type and needs groups= (the word of every example, say); "
            "without types take control='shuffle'."
        )
    count = int(task.types.max()) + 1
    drawn = rng.choice(task.labels, count)
    if len(set(drawn.tolist())) == 1:  # a control of a single class would be learnt at once
        other_labels = task.labels[task.labels != drawn[0]]
        drawn[int(rng.integers(count))] = other_labels[int(rng.integers(len(other_labels)))]
    return drawn[task.types]


def random_folds(labels: Rows, folds: int, rng: np.random.Generator) -> Rows:
    """Return the fold of every example [example], with equal shares of every class."""
    result = np.zeros(len(labels), np.int64)
    start = 0
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        result[rows] = (np.arange(len(rows)) + start) % folds
        start += len(rows)
    return result


def type_folds(types: Rows, folds: int, rng: np.random.Generator) -> Rows:
    """Return the fold of every example [example]: each type in a single fold, folds of nearly equal size."""
    counts = np.bincount(types)
    order = rng.permutation(len(counts))
    order = order[np.argsort(-counts[order], kind="stable")]
    sizes = np.zeros(folds)
    fold_of = np.zeros(len(counts), np.int64)
    for name in order:
        fold_of[name] = int(sizes.argmin())
        sizes[fold_of[name]] += counts[name]
    return fold_of[types]


def blocks(n: int) -> list[int]:
    """Return where the blocks of an online code end: 0.1 to 100 % of the examples (Voita and Titov 2020)."""
    shares = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
    return sorted({max(1, round(share * n)) for share in shares})
