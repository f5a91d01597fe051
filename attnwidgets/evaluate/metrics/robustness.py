"""Robustness: how far a ranking survives the options that a method leaves open, as intervals of ranks.

`CHOICES` lists, by method, the options that a paper leaves open with their defensible values. Every
combination gives a version of the explanation, reduced to a vector (`_vector`); `Robustness` holds the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets._tables import Table
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import require_single
from attnwidgets.explanations.registry.registry import explain, methods
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnwidgets._tables import Columns
    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.explanations.results.attributions import Attributions

_BASELINES = ("pad", "mask", "mean")  # zeros are far from any input that a model has seen
_DISTANCES = ("l1", "l2")
_ORDERS = ("output_first", "input_first")
_WEIGHTS = (0.5, 0.8)  # as published; about the share that Kobayashi et al. 2021 measured by norms
HEADS = "heads"
"""For a map whose method does not reduce its heads: their reduction."""

CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "alti": {"distance": _DISTANCES, "after": ("norm1", "norm2")},
    "alti_logit": {"distance": _DISTANCES, "initial": ("own", "apart"), "biases": ("shared", "apart")},
    "attention": {HEADS: ("mean", "max")},
    "attention_flow": {"head_reduce": ("mean", "max"), "residual_weight": _WEIGHTS},
    "attention_norm": {"variant": ("attn", "res", "res_ln", "enc")},
    "chefer": {"rule": ("iccv2021", "cvpr2021"), "head_reduce": ("mean", "sum"), "order": _ORDERS},
    "decompx": {"bias": ("absdot", "abssim", "norm"), "activation": ("zero_origin", "linear_approximation")},
    "deeplift": {"baseline": _BASELINES},
    "globenc": {"normalize": ("none", "row")},
    "input_x_gradient": {"reduce": ("sum", "l2", "l1")},
    "integrated_gradients": {"baseline": _BASELINES, "reduce": ("sum", "l2")},
    "lrp": {"rule": ("attnlrp", "cp_lrp"), "bias": ("absorb", "ignore")},
    "occlusion": {"baseline": _BASELINES},
    "rollout": {"head_reduce": ("mean", "max"), "residual_weight": _WEIGHTS, "order": _ORDERS},
    "saliency": {"reduce": ("l2", "l1")},
    "shapley_sampling": {"baseline": _BASELINES},
    "value_zeroing": {"distance": ("cosine", "euclidean"), "reduce": ("mean", "max")},
}
"""By method and option, the values that can be defended, the published value first."""


@dataclass(frozen=True, repr=False)
class Robustness(Table):
    """Intervals of ranks over several versions of an explanation.

    `aw.TokenStrip(robustness)` shows the first version, hatched where the ranking does not survive.

    Attributes:
        labels: The elements.
        names: Names of the versions.
        ranks: 1 for the highest value [version, element]; equal values share their mean rank.
        low: The best rank of every element [element].
        high: The worst rank of every element [element].
        versions: The versions themselves, that with the published options first.
        refused: Versions that cannot be computed for this input, with the reason.
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
    def unsettled(self) -> Bools:
        """Elements that rank above another element in a version and below it in another version [element]."""
        above = self.ranks[:, :, None] < self.ranks[:, None, :]
        return (above.any(axis=0) & above.any(axis=0).T).any(axis=1)

    def _columns(self) -> Iterator[Columns]:
        """Yield element, low, high, unsettled."""
        yield {"element": self.labels, "low": self.low, "high": self.high, "unsettled": self.unsettled}

    def undecided(self, k: int) -> Bools:
        """Return a mask of the elements that are among the first `k` in some versions only [element].

        Args:
            k: 1 to the number of elements.

        Raises:
            ValueError: If k is out of range.
        """
        if not 1 <= k <= len(self.labels):
            raise ValueError(f"k must be 1 to {len(self.labels)}, not {k}.")
        return (self.low <= k) & (self.high > k)

    def survives(self, first: int, second: int) -> bool:
        """Return whether element number `first` ranks above number `second` in every version."""
        return bool((self.ranks[:, first] < self.ranks[:, second]).all())

    def __repr__(self) -> str:
        rows = [
            f"{label!r}: rank {low:g} to {high:g}"
            for label, low, high in zip(self.labels, self.low, self.high, strict=True)
        ]
        return "\n".join([f"{len(self.names)} versions: {'; '.join(self.names)}", *rows])


@forceable
@documented
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

    Reduction, residual weight, order, baseline: where a paper leaves a choice open, each value that can be
    defended gives a version::

        ranks = aw.evaluate.robustness(trace, "rollout")        # all options that rollout leaves open
        aw.TokenStrip(ranks)                                    # hatched where the ranking does not survive
        aw.evaluate.robustness({"l2": aw.saliency(trace), "l1": aw.saliency(trace, reduce="l1")})

    Args:
        versions: A trace; or a mapping from names to two or more Attributions of an input in the same unit.
        method: With a trace, a name in `aw.methods()`.
        choices: The options that vary: "all" open options of the method
            (`attnwidgets.evaluate.metrics.robustness.CHOICES`), names of its options, or a mapping from
            options to their values; "heads" is the reduction of a map's heads. Every combination is a
            version.
        target: The explained target, for methods that have a target.
        unit: The unit to rank; None for tokens.
        layer: The layer of a map with several; None for the last.
        how: How a map becomes a vector, as in `MixingMap.to_attributions`.
        query: The query whose row how="row" reads; None for the prediction's: the last token in a causal map,
            else the first.
        force: {force}

    Returns:
        A Robustness: `.low`, `.high`, `.unsettled`, `.undecided(k)`, `.survives(a, b)`.

    Raises:
        ValueError: If there are fewer than two versions, their elements differ, or choices are not open; the
            message lists the open options.
        TypeError: If a version is not Attributions, or neither a method nor a mapping is given.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "A fine film.")
        >>> aw.evaluate.robustness(trace, "rollout", choices=["head_reduce"]).names
        ("head_reduce='mean'", "head_reduce='max'")
    """
    from scipy.stats import rankdata

    refused: dict[str, str] = {}
    if method is not None:
        explained = {} if target is None else {"target": target}
        options = {"layer": layer, "how": how, "query": query, "unit": unit}
        versions, refused = _versions(versions, method, choices, explained, options)
    elif not hasattr(versions, "items"):
        raise TypeError(
            "name the method whose choices are tried, robustness(trace, 'rollout'), or give a mapping of "
            "versions."
        )
    elif len(versions) < 2:  # noqa: PLR2004 - a single version has no interval
        raise ValueError(f"versions has {len(versions)}; two or more show what a choice changes.")
    singles = {str(name): require_single(version, str(name)) for name, version in versions.items()}
    first = next(iter(singles.values()))
    for name, version in singles.items():
        if version.labels != first.labels:
            count = f"{len(version.labels)} {version.unit}s"
            raise ValueError(f"version {name!r} is of other elements ({count}) than the first.")
    ranks = [rankdata(-np.asarray(version.values, dtype=np.float64)) for version in singles.values()]
    return Robustness(tuple(first.labels), tuple(singles), np.stack(ranks), tuple(singles.values()), refused)


def _versions(
    trace: Any, method: str, choices: Any, explained: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[dict[str, Attributions], dict[str, str]]:
    """Return the explanations by every combination of choices, and why others cannot be computed."""
    versions: dict[str, Attributions] = {}
    refused: dict[str, str] = {}
    failure: Exception | None = None
    explained = explained if "target" in methods()[method].options else {}
    for name, chosen in progress(list(combinations(choices_of(method, choices))), desc=f"{method}: choices"):
        heads = chosen.pop(HEADS, "mean")
        try:
            versions[name] = vector_of(explain(trace, method, **chosen, **explained), heads, **options)
        except (ValueError, LookupError) as error:
            refused[name], failure = str(error), error
    if not versions and failure is not None:
        raise failure
    return versions, refused


def vector_of(
    explanation: Any, heads: Any, *, layer: int | None, how: Any, query: int | str | None, unit: str | None
) -> Attributions:
    """Return an explanation as a vector of attributions."""
    if isinstance(explanation, MixingMap):
        single = explanation.select(layer=explanation.layers[-1] if layer is None else layer)
        single = single if single.heads is None else single.reduce("head", heads)
        single = single if unit is None else single.to(unit)
        if how == "row" and query is None:
            query = "last" if single.causal else "first"
        explanation = single.to_attributions(how, query=query)
    return explanation if unit is None else explanation.to(unit)


def choices_of(name: str, choices: Any) -> dict[str, tuple[Any, ...]]:
    """Return the open options of a method, with their values.

    Args:
        name: A method.
        choices: "all"; names of options; or a mapping from options to values.

    Raises:
        ValueError: If no option of the method is open, or an option is unknown; the message lists what is
            open.
    """
    open_options = dict(CHOICES.get(name, {}))
    allowed = {*methods()[name].options, HEADS}
    if isinstance(choices, str) and choices == "all":
        if not open_options:
            raise ValueError(
                f"{name!r} has no known open options; give choices={{option: values}}. "
                f"Methods that have some: {listed(sorted(CHOICES))}."
            )
        return open_options
    if hasattr(choices, "items"):
        chosen = {str(option): tuple(values) for option, values in choices.items()}
    else:
        allowed = set(open_options)
        chosen = {
            option: open_options.get(option, ())
            for option in ([choices] if isinstance(choices, str) else choices)
        }
    for option in chosen:
        if option not in allowed:
            listed_options = listed(sorted(allowed)) or "nothing"
            near = suggest(str(option), allowed)
            raise ValueError(
                f"choices: {option!r} is not open in {name!r}; choose from {listed_options}.{near}"
            )
    return chosen


def combinations(values: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every combination of choices as its name and its options, the published combination first."""
    for combined in product(*values.values()):
        options = dict(zip(values, combined, strict=True))
        yield ", ".join(f"{option}={value!r}" for option, value in options.items()), options
