"""How far a ranking survives the choices that a method leaves open: an interval of ranks for every token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.examples.explained_input import require_single
from attnwidgets.evaluate.metrics.option_grid import HEADS, choices_of, combinations
from attnwidgets.explanations.registry.registry import explain, methods
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.attributions import Attributions

    Float = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Robustness:
    """Intervals of ranks over several versions of an explanation.

    `aw.TokenStrip(found)` shows the first version, with hatching where the ranking does not survive.

    Attributes:
        labels: The elements.
        names: What the versions are called.
        ranks: 1 for the highest value [version, element]; equal values share their mean rank.
        low: The best rank of every element [element].
        high: The worst [element].
        versions: The versions themselves, the one with the published options first.
        refused: Versions that this input does not have, with the reason.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    ranks: Float
    versions: tuple[Attributions, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def low(self) -> Float:
        """The best rank of every element [element]."""
        return self.ranks.min(axis=0)

    @property
    def high(self) -> Float:
        """The worst rank of every element [element]."""
        return self.ranks.max(axis=0)

    @property
    def unsettled(self) -> NDArray[np.bool_]:
        """Which elements are above some other one in one version and below it in another [element]."""
        above = self.ranks[:, :, None] < self.ranks[:, None, :]
        return (above.any(axis=0) & above.any(axis=0).T).any(axis=1)

    def undecided(self, k: int) -> NDArray[np.bool_]:
        """Return which elements are among the first `k` in some versions and not in others [element].

        Raises:
            ValueError: Where k is not 1 to the number of elements.
        """
        if not 1 <= k <= len(self.labels):
            raise ValueError(f"k must be 1 to {len(self.labels)}, not {k}.")
        return (self.low <= k) & (self.high > k)

    def survives(self, first: int, second: int) -> bool:
        """Return whether one element is ranked above another in every version."""
        return bool((self.ranks[:, first] < self.ranks[:, second]).all())

    def __repr__(self) -> str:
        rows = [
            f"{label!r}: rank {low:g} to {high:g}"
            for label, low, high in zip(self.labels, self.low, self.high, strict=True)
        ]
        return "\n".join([f"{len(self.names)} versions: {'; '.join(self.names)}", *rows])


@forceable
def robustness(
    versions: Any,
    method: str | None = None,
    *,
    choices: Any = "all",
    target: Any = None,
    unit: str | None = None,
    layer: int | None = None,
    how: str = "row",
    query: int | str | None = None,
) -> Robustness:
    """Return the interval of every element's rank over versions of an explanation.

    Reduction, residual, order, baseline: where a paper leaves a choice, each that can be defended is one::

        found = aw.evaluate.robustness(trace, "rollout")        # all that rollout leaves open
        aw.TokenStrip(found)                                    # hatched where the ranking does not survive
        aw.evaluate.robustness({"l2": aw.saliency(trace), "l1": aw.saliency(trace, reduce="l1")})

    Args:
        versions: A trace; or Attributions of one input in one unit, by name, two or more.
        method: With a trace, a name in `aw.methods()`.
        choices: What is varied: "all" that is known to be open in the method (`evaluate.choices.CHOICES`),
            names of its options, or a mapping from options to their values; "heads" is how the heads of a map
            become one. Every combination is a version.
        target: What is explained, for methods that have a target.
        unit: The unit to rank; None: tokens.
        layer: Of a map with several; None: the last.
        how: How a map becomes a vector, as in `MixingMap.to_attributions`.
        query: Whose row is read by how="row", as there; None: that of the prediction, the last token where
            nothing looks ahead, else the first.

    Returns:
        A Robustness: `.low`, `.high`, `.unsettled`, `.undecided(k)`, `.survives(a, b)`.

    Raises:
        ValueError: For fewer than two versions, elements that differ, or choices that are not open; the
            message names those that are.
        TypeError: Where one is no Attributions.
    """
    refused: dict[str, str] = {}
    if method is not None:
        given = {} if target is None else {"target": target}
        read = {"layer": layer, "how": how, "query": query, "unit": unit}
        versions, refused = _versions(versions, method, choices, given, read)
    elif not hasattr(versions, "items"):
        raise TypeError(
            "name the method whose choices are tried, robustness(trace, 'rollout'), or give versions."
        )
    if len(versions) < 2 and method is None:  # noqa: PLR2004 - one alone has no interval
        raise ValueError(f"versions has {len(versions)}; two or more show what a choice changes.")
    found = {str(name): require_single(one, str(name)) for name, one in versions.items()}
    first = next(iter(found.values()))
    for name, one in found.items():
        if one.labels != first.labels:
            count = f"{len(one.labels)} {one.unit}s"
            raise ValueError(f"version {name!r} is of other elements ({count}) than the first.")
    from scipy.stats import rankdata

    table = np.stack([rankdata(-np.asarray(one.values, dtype=np.float64)) for one in found.values()])
    return Robustness(tuple(first.labels), tuple(found), table, tuple(found.values()), refused)


def _versions(
    trace: Any, method: str, choices: Any, given: Mapping[str, Any], read: Mapping[str, Any]
) -> tuple[dict[str, Attributions], dict[str, str]]:
    """Return what a method says with every combination of choices, and why others cannot be had."""
    every = list(combinations(choices_of(method, choices)))
    found: dict[str, Attributions] = {}
    refused: dict[str, str] = {}
    failure: Exception | None = None
    entry = methods()[method]
    for name, options in progress(every, desc=f"{method}: choices"):
        heads = options.get(HEADS, "mean")
        taken = {option: value for option, value in options.items() if option != HEADS}
        named = given if "target" in entry.options else {}
        try:
            one = explain(trace, method, **taken, **named)
            found[name] = _vector(one, heads, **read)
        except (ValueError, LookupError) as error:
            refused[name], failure = str(error), error
    if not found and failure is not None:
        raise failure
    return found, refused


def _vector(
    one: Any, heads: Any, *, layer: int | None, how: Any, query: int | str | None, unit: str | None
) -> Attributions:
    """Return an explanation as one row of attributions."""
    found = one
    if isinstance(one, MixingMap):
        single = one.select(layer=one.layers[-1] if layer is None else layer)
        single = single if single.heads is None else single.reduce("head", heads)
        single = single if unit is None else single.to(unit)
        if how == "row" and query is None:
            query = "last" if single.causal else "first"
        found = single.to_attributions(how, query=query)
    return found if unit is None else found.to(unit)
