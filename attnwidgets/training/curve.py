"""Numbers over the steps of a run, and verdicts of claims over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._tables import Table, cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns

    Float = NDArray[np.float64]

FEWEST = 5
"""Steps below which nothing is said to appear: the step would say more of the gaps than of training."""

_RETURNED = 0.1
"""The share of its range by which a curve must end away from where it began, to be half way anywhere."""

_LISTED = 5


class Appeared(NamedTuple):
    """The first step at half way between the first and the last value of a curve.

    Attributes:
        step: The step.
        before: The checkpoint before it, at which the curve was not yet half way.
        after: The checkpoint after it; None if it is the last.
    """

    step: int
    before: int
    after: int | None


@dataclass(frozen=True, repr=False)
class Curve(Table):
    """A number of a model at every checkpoint of a run.

    Attributes:
        name: The name of the measure.
        steps: The steps [step].
        values: The numbers [step, ...]; NaN at steps whose weights are not finite.
        axes: Labels of the further axes of `values`, by name: "layer", "head", "offset",
            "earlier layer", "earlier head".
        meaning: The definition, in words.
    """

    kind = "curve"
    name: str
    steps: tuple[int, ...]
    values: Float = field(compare=False)
    axes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    meaning: str = ""

    def at(self, *labels: int) -> Curve:
        """Return the curve of a single head, of a head and an offset, or of a pair of heads.

        Args:
            *labels: A label of every axis but the steps: layer, head, offset; or layer, head, earlier layer,
                earlier head.

        Raises:
            ValueError: If a label is unknown, or their number is not that of the axes.
        """
        if len(labels) != len(self.axes):
            raise ValueError(f"{self.name}: give {', '.join(self.axes) or 'no label'}, not {labels}.")
        index = []
        for label, (axis, choices) in zip(labels, self.axes.items(), strict=True):
            if label not in choices:
                raise ValueError(f"{axis} {label!r} is not one of {', '.join(map(str, choices))}.")
            index.append(choices.index(label))
        head = ".".join(map(str, labels[:2]))
        if "earlier head" in self.axes:
            head, offset = f"{head} after {labels[2]}.{labels[3]}", ""
        else:
            offset = "".join(f" {label:+d}" for label in labels[2:])
        values = np.moveaxis(self.values, 0, -1)[tuple(index)]
        return Curve(f"{self.name}{offset}, head {head}", self.steps, values, {}, self.meaning)

    @property
    def strongest(self) -> tuple[int, ...]:
        """The labels of the largest value at the last step, by axis: layer, head, ... ."""
        last = self.values[self._finite()[-1]]
        index = np.unravel_index(int(np.nanargmax(last)), last.shape)
        return tuple(labels[at] for at, labels in zip(index, self.axes.values(), strict=True))

    @property
    def appeared(self) -> Appeared | None:
        """The first step at half way between the first and the last value, with the steps around it.

        None where there are fewer than five steps, or where the two values differ by less than a tenth of the
        curve's range: it has come back.

        Raises:
            ValueError: If the curve is of several heads: choose with `.at(layer, head)`.
        """
        steps, beyond = self._halves()
        if len(steps) < FEWEST or not beyond.any():
            return None
        at = int(np.argmax(beyond))
        return Appeared(steps[at], steps[at - 1], steps[at + 1] if at + 1 < len(steps) else None)

    @property
    def steepest(self) -> int:
        """The step at the end of the steepest change from its first towards its last value.

        Raises:
            ValueError: If the curve is of several heads: choose with `.at(layer, head)`.
        """
        self._require_one_number()
        index = self._finite()
        if len(index) == 1:
            return self.steps[index[0]]
        steps, values = np.asarray(self.steps)[index], self.values[index]
        slopes = np.diff(values) / np.diff(steps) * (1 if values[-1] >= values[0] else -1)
        return int(steps[1 + int(np.argmax(slopes))])

    def describe(self) -> str:
        """Return when the curve is half way, in a sentence or two."""
        self._require_one_number()
        steps, beyond = self._halves()
        first, last = self.values[self._finite()][[0, -1]]
        ends = f"{self.name}: {first:.3f} at step {steps[0]:,}, {last:.3f} at step {steps[-1]:,}"
        if not beyond.any():
            return f"{ends}." + (" It ends about where it began." if last != first else "")
        at = int(np.argmax(beyond))
        if len(steps) < FEWEST:
            return (
                f"{ends}. Checkpoints of {len(steps)} steps: it is at half or beyond at step {steps[at]:,}, "
                f"and short of half at {steps[at - 1]:,}."
            )
        said = f"{ends}; first at half way at step {steps[at]:,}, after {steps[at - 1]:,}"
        if at + 1 < len(steps):
            said += f" and before {steps[at + 1]:,}"
        back = [step for step, is_beyond in zip(steps[at:], beyond[at:], strict=True) if not is_beyond]
        again = ", ".join(f"{step:,}" for step in back[:_LISTED]) + (", ..." if len(back) > _LISTED else "")
        return f"{said}." + (f" Short of half again at step {again}." if back else "")

    def _halves(self) -> tuple[list[int], NDArray[np.bool_]]:
        """Return the steps that have a number, and at which of them the curve is half way or beyond."""
        self._require_one_number()
        index = self._finite()
        values = self.values[index]
        rise = values[-1] - values[0]
        beyond = (values - values[0]) * np.sign(rise) >= abs(rise) / 2
        return [self.steps[at] for at in index], beyond & (abs(rise) > _RETURNED * np.ptp(values))

    def _finite(self) -> NDArray[np.intp]:
        """Return the indices of steps with numbers."""
        is_finite = np.isfinite(self.values.reshape(len(self.steps), -1)).any(axis=1)
        if not is_finite.any():
            raise ValueError(f"{self.name}: there is a number at none of the steps.")
        return np.flatnonzero(is_finite)

    def _require_one_number(self) -> None:
        if self.values.ndim > 1:
            example = ", ".join(self.axes) or "..."
            raise ValueError(f"{self.name} is of several heads; choose a curve: .at({example}).")

    def _columns(self) -> Iterator[Columns]:
        """Yield a row for every step, layer, head, ... ."""
        yield cells({"step": self.steps, **self.axes}, {"value": self.values})

    def __repr__(self) -> str:
        if self.values.ndim == 1:
            return self.describe()
        shape = " x ".join(f"{len(labels)} {name}s" for name, labels in self.axes.items())
        meaning = f" ({self.meaning})" if self.meaning else ""
        return f"{self.name}{meaning}: {len(self.steps)} steps x {shape}; .at({', '.join(self.axes)})"


@dataclass(frozen=True, repr=False)
class ClaimsByStep(Table):
    """Verdicts of claims at every checkpoint of a run.

    Attributes:
        steps: The steps [step].
        verdicts: "holds", "fails" or "undecided" at every step by claim; "gap" where weights are not finite.
        differences: By how much the head exceeds its control, by claim [step].
    """

    kind = "claims"
    steps: tuple[int, ...]
    verdicts: Mapping[str, tuple[str, ...]]
    differences: Mapping[str, tuple[float, ...]] = field(compare=False)

    def when(self, claim: str) -> str:
        """Return when a claim holds, in words: from a step on, or at which steps.

        Args:
            claim: The sentence.

        Raises:
            ValueError: If it was not checked.
        """
        if claim not in self.verdicts:
            near = suggest(claim, self.verdicts)
            raise ValueError(f"claim {claim!r} is not one of {', '.join(map(repr, self.verdicts))}.{near}")
        checked = [
            (step, verdict)
            for step, verdict in zip(self.steps, self.verdicts[claim], strict=True)
            if verdict != "gap"
        ]
        holds = [step for step, verdict in checked if verdict == "holds"]
        if not holds:
            return f"holds at none of {len(checked)} steps"
        if len(holds) == len(checked):
            return "holds at every step"
        if [step for step, _ in checked[-len(holds) :]] == holds:
            before, verdict = checked[-len(holds) - 1]
            return f"holds from step {holds[0]:,} on ({verdict} at {before:,})"
        return f"holds at {len(holds)} of {len(checked)} steps: {', '.join(f'{step:,}' for step in holds)}"

    def _columns(self) -> Iterator[Columns]:
        """Yield a row for every claim and step."""
        for claim, verdicts in self.verdicts.items():
            yield {
                "claim": [claim] * len(self.steps),
                "step": list(self.steps),
                "verdict": list(verdicts),
                "difference": list(self.differences[claim]),
            }

    def __repr__(self) -> str:
        return "\n".join(f"{claim}: {self.when(claim)}" for claim in self.verdicts)
