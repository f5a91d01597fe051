"""Comparing with the authors' numbers: one quantity of one file, the call that gives it, and how closely."""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.explanation import Explanation
from tests.explanations.mixing.against_authors import classified_traces, decoder_traces, numbers, traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

EXACT = 1e-9
# A reference that is stored in float32: half a unit of a number's last digit, relative to it.
ROUNDED = 6e-8


@dataclass(frozen=True)
class Comparison:
    """One quantity of one reference file, and the call that gives it.

    Args:
        file: Name of the file, without its precision.
        quantity: Part of the keys after the input's name.
        ours: The call, for people.
        compute: Takes a trace and returns a map, attributions or an array; if `asks`, also takes a function
            that gives another quantity of the file for the same input: the authors' question.
        single: By how much results of float32 models may differ.
        double: By how much results of float64 models may differ.
        relative: Whether differences are relative, number by number, rather than absolute.
        why: The reason why the tolerances are not smaller; "" for single precision.
        layer: Which layer is compared; None for all.
        slow: Whether it is compared by the script alone.
    """

    file: str
    quantity: str
    ours: str
    compute: Callable[..., Any]
    single: float
    double: float
    relative: bool = False
    why: str = ""
    layer: int | None = None
    slow: bool = False
    asks: bool = False

    def off(self, given: dict[str, Any], expected: Any) -> float:
        """Return the largest difference over all inputs that the file has.

        Args:
            given: Traces by their names.
            expected: The file.
        """
        worst = -1.0
        for name, trace in given.items():
            key = f"{name}/{self.quantity}"
            if key not in expected:
                continue
            theirs = expected[key].astype(np.float64)
            beside = functools.partial(_beside, expected, name)
            ours = self._ours(trace, beside)
            assert ours.shape == theirs.shape, key
            apart = np.abs(ours - theirs)
            worst = max(worst, float((apart / np.abs(theirs) if self.relative else apart).max()))
        assert worst >= 0, f"{self.file} has no {self.quantity}"
        return worst

    def _ours(self, trace: Any, beside: Callable[[str], np.ndarray]) -> np.ndarray:
        computed = _computed.setdefault(trace, {})
        if self.ours not in computed:
            computed[self.ours] = plain(self.compute(trace, beside) if self.asks else self.compute(trace))
        result = computed[self.ours]
        return result if self.layer is None else result[self.layer]


# The same call is compared with several files.
_computed: weakref.WeakKeyDictionary[Any, dict[str, np.ndarray]] = weakref.WeakKeyDictionary()


def _beside(expected: Any, name: str, quantity: str) -> np.ndarray:
    result: np.ndarray = expected[f"{name}/{quantity}"]
    return result


def plain(values: Any) -> np.ndarray:
    """Return the numbers of an explanation, a tensor or an array, as they come but for their type."""
    if isinstance(values, Explanation):
        values = values.values
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)


def models(shared: Path, dtype: str) -> Callable[[str], dict[str, Any]]:
    """Return a function that gives the traces of a file, each made once."""

    @functools.cache
    def of(model: str) -> dict[str, Any]:
        if model in ("minilm", "decompx"):
            return (traces if model == "minilm" else classified_traces)(shared, dtype)
        return decoder_traces(shared, model, dtype)

    def model_of(file: str) -> str:
        if file.startswith("tiny"):
            return "_".join(file.split("_")[:2])
        return "decompx" if file.startswith("decompx") else "minilm"

    return lambda file: of(model_of(file))


def measured(
    comparisons: Iterable[Comparison], shared: Path, dtype: str
) -> Iterator[tuple[Comparison, float]]:
    """Yield comparisons with by how much each is off, for models of a precision."""
    given = models(shared, dtype)
    for comparison in comparisons:
        yield comparison, comparison.off(given(comparison.file), numbers(shared, comparison.file))


HEADS = (
    "file",
    "quantity",
    "call",
    "float32 within",
    "float64 within",
    "float32 measured",
    "float64 measured",
    "what limits it",
)


def row(comparison: Comparison, single: float, double: float) -> str:
    """Return a comparison as a line of the table in docs/accuracy.md."""
    measured_here = (f"{off:.1e}" if off else "0" for off in (single, double))
    return f"{stated(comparison)} {' | '.join(measured_here)} | {comparison.why} |"


def stated(comparison: Comparison) -> str:
    """Return the part of that line which no machine changes."""
    relative = " *rel*" if comparison.relative else ""
    bounds = (
        f"{bound:.0e}{relative}".replace("e-0", "e-") for bound in (comparison.single, comparison.double)
    )
    call = comparison.ours if comparison.layer is None else f"{comparison.ours}.layer({comparison.layer})"
    cells = (comparison.file, comparison.quantity, f"`{call}`", *bounds)
    return f"| {' | '.join(cells)} |"
