"""The SAE features that a view shows, and the handlers of requests about them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from attnwidgets.sae.corpus_statistics.stats import FeatureStats
from attnwidgets.sae.feature_activations import FeatureActivations
from attnwidgets.views.features.payloads import activations_of, columns_of, page_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.explanations import Attributions
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer

_HELD = 50  # features in a page if none are named


@dataclass(frozen=True)
class ShownSae:
    """An SAE in a view: its features on a text, over a corpus, or both.

    Attributes:
        source: Activations on a text, or statistics over a corpus.
        stats: Statistics over a corpus: those that go with activations, or the source itself.
    """

    source: FeatureActivations | FeatureStats
    stats: FeatureStats | None

    @property
    def activations(self) -> FeatureActivations | None:
        """Activations on the tokens of a text, if there are any."""
        return self.source if isinstance(self.source, FeatureActivations) else None

    @property
    def d_sae(self) -> int:
        """Number of features."""
        return self.source.d_sae

    def check_feature(self, feature: int, argument: str = "") -> int:
        """Return the number of a feature.

        Args:
            feature: The number.
            argument: Beginning of the message.

        Raises:
            IndexError: The feature is out of range.
        """
        number = int(feature)
        if not 0 <= number < self.d_sae:
            raise IndexError(
                f"{argument}feature {number} is out of range: the features are 0 to {self.d_sae - 1}."
            )
        return number

    def ranked(self) -> list[int]:
        """Return the features to show first: the strongest in the text, or the named and the loudest."""
        if isinstance(self.source, FeatureActivations):
            return [fired.feature for fired in self.source.ranked(_HELD)]
        return list(dict.fromkeys([*self.source.names, *self.source.loudest(_HELD)]))

    def describe(self) -> dict[str, Any]:
        """Return the SAE for the browser: `Sae` of features.ts."""
        options, activations = self.source.provenance["options"], self.activations
        names = {} if self.stats is None else self.stats.names
        return {
            "layer": options.get("layer"),
            "features": self.d_sae,
            "site": str(options.get("site", "")),
            "stack": "" if activations is None else activations.stack,
            "onText": activations is not None,
            "skipsFirst": activations is not None and activations.skips_first,
            "counted": self.stats is not None,
            "names": {str(number): name for number, name in names.items()},
        }


class ShownFeatures:
    """The features that a view shows: those of an SAE, or of several SAEs of a model.

    Args:
        view: The view's name, for errors.
        shown: FeatureActivations or FeatureStats, or a list of either (of the same text, each by another
            SAE).
        stats: The statistics that go with activations, in the same order.
        page: Features that a page without a kernel holds, besides the selected one; by default those with
            names, and those that fire most in the text, or most strongly.

    Raises:
        TypeError: An argument has another type.
        ValueError: There are more statistics than activations, they are of another SAE, or activations are of
            several texts.
        IndexError: A feature of `page` is out of range.
    """

    def __init__(self, view: str, shown: Any, stats: Any = None, page: Iterable[int] | None = None) -> None:
        sources, counts = _listed(shown), _listed(stats)
        if not sources or not all(isinstance(item, FeatureActivations | FeatureStats) for item in sources):
            raise TypeError(
                f"{view}() shows the result of aw.sae_features or aw.feature_stats, not "
                f"{type(sources[0] if sources else shown).__name__}."
            )
        texts = [item for item in sources if isinstance(item, FeatureActivations)]
        if len({item.trace_id for item in texts}) > 1:
            raise ValueError(f"{view}() shows features of one text; make a view of each.")
        if not all(isinstance(item, FeatureStats) for item in counts):
            raise TypeError(
                f"{view}(stats=...) takes the result of aw.feature_stats, not {type(counts[0]).__name__}."
            )
        if len(counts) > len(texts):
            raise ValueError(
                f"{view}(stats=...) has {len(counts)} statistics for {len(texts)} SAEs: give one for each, "
                "in the same order."
            )
        self.saes = tuple(
            _shown_sae(view, source, counts[index] if index < len(counts) else None)
            for index, source in enumerate(sources)
        )
        argument = f"{view}(page=...): "
        self.page = None if page is None else [self.saes[0].check_feature(n, argument) for n in page]

    @classmethod
    def on_trace(cls, view: str, trace: Any, given: Any, stats: Any) -> ShownFeatures:
        """Return features on a trace: activations as given; SAEs are run on the trace first.

        Raises:
            ValueError: The activations are of another text.
        """
        from attnwidgets.sae.features import sae_features

        activations = [
            item if isinstance(item, FeatureActivations) else sae_features(trace, item)
            for item in _listed(given)
        ]
        for item in activations:
            if item.trace_id != getattr(trace, "id", getattr(trace, "trace_id", "")):
                raise ValueError(
                    f"{view}(features=...) are of another text; aw.sae_features(trace, sae) returns those of "
                    "this one."
                )
        return cls(view, activations, stats)

    @property
    def first(self) -> int:
        """The feature that a view opens with: the strongest in the text, else the first with a name."""
        return next(iter(self.saes[0].ranked()), 0)

    def main(self, feature: int | None) -> Attributions:
        """Return the numbers that identify a view: a feature on the text, or where it fires most."""
        source, number = self.saes[0].source, self.first if feature is None else feature
        return (
            source.feature(number) if isinstance(source, FeatureActivations) else _strongest(source, number)
        )

    def describe(self) -> list[dict[str, Any]]:
        """Return the SAEs for the browser."""
        return [sae.describe() for sae in self.saes]

    def handlers(self, view: View, *, table: bool, panel: bool, strip: bool) -> dict[str, Handler]:
        """Return the handlers of a view of features. In every request, `of` is the index of the SAE.

        - "activations" (of, unit): see `activations_of`; it includes the view's selected feature.
        - "columns" (of): see `columns_of`.
        - "feature" (of, feature): see `page_of`.
        - "name" (of, feature, name): names a feature in all views of its statistics; the answer is empty.

        Args:
            view: The view.
            table: Whether it opens with "columns", and a page holds them.
            panel: Whether it opens with "feature", and a page holds some.
            strip: Whether it opens with "activations", and a page holds them in every unit.
        """

        def selected() -> list[int]:
            feature = view.selection.feature
            return [] if feature is None else [int(feature)]

        handlers: dict[str, Handler] = {}
        if any(sae.activations is not None for sae in self.saes):
            handlers["activations"] = Handler(
                lambda of, unit: activations_of(self._activations(of), str(unit), selected()),
                for_page=self._units if strip else None,
            )
        if any(sae.stats is not None for sae in self.saes):
            handlers |= {
                "columns": Handler(
                    lambda of: columns_of(self._stats(of)), for_page=self._counted if table else None
                ),
                "feature": Handler(
                    lambda of, feature: page_of(self._stats(of), int(feature)),
                    for_page=(lambda: self._pages(selected())) if panel else None,
                ),
                "name": Handler(self._name),
            }
        return handlers

    def _activations(self, of: int) -> FeatureActivations:
        activations = self.saes[of].activations
        if activations is None:
            raise LookupError("this SAE was not run on a text.")
        return activations

    def _stats(self, of: int) -> FeatureStats:
        stats = self.saes[of].stats
        if stats is None:
            raise LookupError("statistics of this SAE are missing; aw.feature_stats computes them.")
        return stats

    def _name(self, of: int, feature: int, name: str) -> Answer:
        stats = self._stats(of)
        stats.rename({int(feature): str(name)})
        for view, (features, _) in list(_VIEWS.items()):
            if any(sae.stats is stats for sae in features.saes):
                _send_options(view)
        return {}, []

    # Requests that a page without a kernel answers, with arguments in the browser's order.

    def _units(self) -> Iterator[Mapping[str, Any]]:
        for of, sae in enumerate(self.saes):
            for unit in () if sae.activations is None else sae.activations.available_units():
                yield {"of": of, "unit": unit}

    def _counted(self) -> Iterator[Mapping[str, Any]]:
        yield from ({"of": of} for of, sae in enumerate(self.saes) if sae.stats is not None)

    def _pages(self, selected: list[int]) -> Iterator[Mapping[str, Any]]:
        for of, sae in enumerate(self.saes):
            if sae.stats is not None:
                numbers = self.page if self.page is not None and of == 0 else sae.ranked()
                available = set(sae.stats.features)
                yield from (
                    {"of": of, "feature": n} for n in dict.fromkeys([*selected, *numbers]) if n in available
                )


# Views that show features, with their other options: they are updated when features get names.
_VIEWS: WeakKeyDictionary[View, tuple[ShownFeatures, Mapping[str, Any]]] = WeakKeyDictionary()


def show_features(view: View, features: ShownFeatures, feature: int | None, **options: Any) -> None:
    """Have a view show features, and select a feature.

    Args:
        view: The view.
        features: The features.
        feature: The feature to select; None leaves the selection, or selects the first.
        **options: Further options for the view's browser side.

    Raises:
        IndexError: The feature is out of range.
    """
    _VIEWS[view] = features, options
    _send_options(view)
    view.selection.d_sae = max(sae.d_sae for sae in features.saes)
    if feature is not None or view.selection.feature is None:
        view.selection.feature = features.first if feature is None else feature


def _send_options(view: View) -> None:
    if view.comm is not None:
        features, options = _VIEWS[view]
        view.add_options(saes=features.describe(), **options)


def _strongest(stats: FeatureStats, feature: int) -> Attributions:
    """Return a feature's activations on the tokens around its strongest activation."""
    from attnwidgets.explanations import Attributions

    top = stats.feature(feature).top
    return Attributions(
        top[0].activations if top else [0.0],
        axis=top[0].tokens if top else ("",),
        target=f"feature {feature}",
        method="feature",
        trace_id=stats.trace_id,
        provenance={**stats.provenance, "title": f"feature {feature} where it fires most"},
        warning=stats.warning,
    )


def sae_read_by(cell: Cell, given: Any, stats: Any) -> dict[str, Any]:
    """Return the SAE, of those that a view was given, whose states a head reads, and its statistics.

    Args:
        cell: A cell of the head.
        given: SAEs, or activations, which do not hold theirs.
        stats: Statistics of them, in the same order.

    Returns:
        dict: "sae" and "stats", options of a `WhyView`; empty if none is read.
    """
    from attnwidgets.circuits.scores.features import feature_parts

    counts = _listed(stats)
    for number, sae in enumerate(_listed(given)):
        if isinstance(sae, FeatureActivations):
            continue
        counted = counts[number] if number < len(counts) else None
        with suppress(ValueError):
            feature_parts(cell, sae, counted)
            return {"sae": sae, "stats": counted}
    return {}


def _listed(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]


def _shown_sae(view: str, source: FeatureActivations | FeatureStats, stats: FeatureStats | None) -> ShownSae:
    if isinstance(source, FeatureStats):
        return ShownSae(source, source)
    if stats is not None and stats.d_sae != source.d_sae:
        raise ValueError(
            f"{view}(stats=...): the statistics are of an SAE with {stats.d_sae} features, and the "
            f"activations of one with {source.d_sae}."
        )
    return ShownSae(source, stats)
