"""The task of a probe: checked labels and types, control labels, and cross-validation folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

Control = Literal["type", "shuffle", "none"]
CONTROLS: tuple[Control, ...] = ("type", "shuffle", "none")
_TWO = 2


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


def probe_task(labels: Any, groups: Any, count: int) -> ProbeTask:
    """Return labels and types of `count` examples as numbers.

    Raises:
        ValueError: If there is not one label for every example, one is missing, all are the same or no two;
            if there are fewer than two types.
    """
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(given) != count:
        raise ValueError(f"labels has {len(given)} entries, and there are states of {count} texts.")
    missing = [at for at, label in enumerate(given) if label is None or label != label]  # noqa: PLR0124 - NaN
    if missing:
        raise ValueError(
            f"labels holds {len(missing):,} of {count:,} without a label (the first at {missing[0]}): leave "
            "these texts out, or derive their label, before their states are read."
        )
    classes = sorted(set(given), key=lambda label: (str(type(label)), label))
    if len(classes) < _TWO:
        raise ValueError(f"labels are all {classes[0]!r}; a probe needs two classes.")
    if len(classes) == count > _TWO:
        raise ValueError(
            f"labels are {count:,} different ones for {count:,} texts: each is a class of its own, and no "
            "text can be read by others. Make classes of measured numbers first, as value > median."
        )
    numbers = {label: number for number, label in enumerate(classes)}
    types = None
    if groups is not None:
        named = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
        if len(named) != count:
            raise ValueError(f"groups has {len(named)} entries, and there are states of {count} texts.")
        known = {name: number for number, name in enumerate(dict.fromkeys(named))}
        if len(known) < _TWO:
            raise ValueError("groups holds one type only; unseen types need at least two.")
        types = np.array([known[name] for name in named])
    return ProbeTask(np.array([numbers[label] for label in given]), tuple(map(str, classes)), types)


def control_labels(task: ProbeTask, control: Control, rng: np.random.Generator) -> Rows:
    """Return labels that say nothing, drawn from the distribution of the true ones.

    "type" draws one label for every type, which a probe can only learn by heart (Hewitt and Liang 2019);
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
    if len(set(drawn.tolist())) == 1:  # a control of one class would be learnt at once
        others = task.labels[task.labels != drawn[0]]
        drawn[int(rng.integers(count))] = others[int(rng.integers(len(others)))]
    return drawn[task.types]


def random_folds(labels: Rows, folds: int, rng: np.random.Generator) -> Rows:
    """Return the fold of every example [example], with equal shares of every class."""
    found = np.zeros(len(labels), np.int64)
    start = 0
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        found[rows] = (np.arange(len(rows)) + start) % folds
        start += len(rows)
    return found


def type_folds(types: Rows, folds: int, rng: np.random.Generator) -> Rows:
    """Return the fold of every example [example], a type in one fold only, folds of nearly equal size."""
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
