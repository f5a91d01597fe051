"""The SAE features that a view looks at, and what its browser side may ask about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from attnwidgets.sae.corpus_statistics.stats import FeatureStats
from attnwidgets.sae.feature_activations import FeatureActivations
from attnwidgets.views.features.payloads import activations_of, columns_of, page_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from attnwidgets.explanations import Attributions
    from attnwidgets.views.base.view import View
    from attnwidgets.views.features.payloads import Answer

_HELD = 50  # features that a page holds where none are named


@dataclass(frozen=True)
class Looked:
    """One SAE: what it says of a text, of a corpus, or of both.

    Attributes:
        activations: On the tokens of a text.
        stats: Over a corpus.
        layer: The block it belongs to, where that is known.
    """

    activations: FeatureActivations | None
    stats: FeatureStats | None
    layer: int | None

    @property
    def d_sae(self) -> int:
        """Number of features."""
        known = self.activations or self.stats
        return 0 if known is None else known.d_sae

    def describe(self) -> dict[str, Any]:
        """Return what the browser is told; `Sae` of features.ts."""
        names = {} if self.stats is None else self.stats.names
        return {
            "layer": self.layer,
            "features": self.d_sae,
            "site": site_of(self.activations or self.stats),
            "stack": "" if self.activations is None else self.activations.stack,
            "onText": self.activations is not None,
            "skipsFirst": self.activations is not None and self.activations.skips_first,
            "counted": self.stats is not None,
            "names": {str(number): name for number, name in names.items()},
        }


class Features:
    """What a view of features looks at.

    Args:
        view: The view's name, for errors.
        shown: FeatureActivations or FeatureStats, or a list of either (of one text, an SAE each).
        stats: The statistics that belong to activations, in the same order.
        page: Features that a page without a kernel holds beside the one that is selected; by default those
            that are named, then those that fire most in the text, or most strongly.

    Raises:
        TypeError: Something else is given.
        ValueError: There are more statistics than activations, of another SAE, or activations of several
            texts.
        IndexError: A feature of `page` is not there.
    """

    def __init__(self, view: str, shown: Any, stats: Any = None, page: Iterable[int] | None = None) -> None:
        given = _listed(shown)
        if not given or not all(isinstance(one, FeatureActivations | FeatureStats) for one in given):
            raise TypeError(
                f"{view}() shows what aw.sae_features or aw.feature_stats returned, not "
                f"{type(given[0] if given else shown).__name__}."
            )
        texts = [one for one in given if isinstance(one, FeatureActivations)]
        if len({one.trace_id for one in texts}) > 1:
            raise ValueError(f"{view}() shows features of one text; make a view of each.")
        beside = _listed(stats)
        if not all(isinstance(one, FeatureStats) for one in beside):
            raise TypeError(
                f"{view}(stats=...) takes what aw.feature_stats returned, not {type(beside[0]).__name__}."
            )
        if len(beside) > len(texts):
            raise ValueError(
                f"{view}(stats=...) has {len(beside)} of them for {len(texts)} SAEs: one for each, "
                "in their order."
            )
        self.saes = tuple(_looked(view, one, beside, place) for place, one in enumerate(given))
        self.page = None if page is None else [int(number) for number in page]
        for number in self.page or ():
            if not 0 <= number < self.saes[0].d_sae:
                raise IndexError(
                    f"{view}(page=...): there is no feature {number}; the features are 0 to "
                    f"{self.saes[0].d_sae - 1}."
                )

    @property
    def first(self) -> int:
        """The feature that a view opens with: of a text the strongest, else the first with a name."""
        ranked = self.ranked(self.saes[0])
        return ranked[0] if ranked else 0

    def main(self, feature: int | None) -> Attributions:
        """Return the numbers by which a view is known: a feature on the text, or where it fires most."""
        look = self.saes[0]
        number = self.first if feature is None else feature
        if look.activations is not None:
            return look.activations.feature(number)
        if look.stats is None:
            raise AssertionError
        return _where(look.stats, number)

    def ranked(self, look: Looked) -> list[int]:
        """Return features in the order in which a reader may look at them, the most telling first."""
        if look.activations is not None:
            return [fired.feature for fired in look.activations.ranked(_HELD)]
        if look.stats is None:
            return []
        return [
            *look.stats.names,
            *(number for number in look.stats.loudest(_HELD) if number not in look.stats.names),
        ]

    def describe(self) -> list[dict[str, Any]]:
        """Return the SAEs as the browser is told of them."""
        return [look.describe() for look in self.saes]

    @classmethod
    def on_trace(cls, view: str, trace: Any, given: Any, stats: Any) -> Features:
        """Return features on a trace: activations as they are; SAEs are read on it first.

        Raises:
            ValueError: The activations are of another text.
        """
        from attnwidgets.sae.features import sae_features

        read = [
            one if isinstance(one, FeatureActivations) else sae_features(trace, one) for one in _listed(given)
        ]
        for one in read:
            if one.trace_id != getattr(trace, "id", getattr(trace, "trace_id", "")):
                raise ValueError(
                    f"{view}(features=...) are of another text; aw.sae_features(trace, sae) reads them."
                )
        return cls(view, read, stats)

    def topics(self, view: View, *, table: bool, panel: bool, strip: bool) -> dict[str, Handler]:
        """Return what the browser side of a view may ask; answers hold the feature that it has selected."""
        found: dict[str, Handler] = {}

        def selected() -> list[int]:
            feature = view.selection.feature
            return [] if feature is None else [int(feature)]

        if any(look.activations is not None for look in self.saes):
            found["activations"] = Handler(
                lambda of, unit: self._activations(of, unit, selected()),
                for_page=self._units if strip else None,
            )
        if any(look.stats is not None for look in self.saes):
            found["columns"] = Handler(self._columns, for_page=self._counted if table else None)
            found["feature"] = Handler(
                self._page, for_page=(lambda: self._pages(selected())) if panel else None
            )
            found["name"] = Handler(self._name)
        return found

    def _activations(self, of: int, unit: str, selected: Sequence[int]) -> Answer:
        found = self.saes[of].activations
        if found is None:
            raise LookupError("this SAE was not read on a text.")
        return activations_of(found, str(unit), selected)

    def _stats(self, of: int) -> FeatureStats:
        found = self.saes[of].stats
        if found is None:
            raise LookupError("there are no statistics of this SAE; aw.feature_stats counts them.")
        return found

    def _columns(self, of: int) -> Answer:
        return columns_of(self._stats(of))

    def _page(self, of: int, feature: int) -> Answer:
        return page_of(self._stats(of), int(feature))

    def _name(self, of: int, feature: int, name: str) -> Answer:
        stats = self._stats(of)
        stats.rename({int(feature): str(name)})
        for view, (features, _) in list(_LOOKING.items()):
            if any(look.stats is stats for look in features.saes):
                _tell(view)
        return {}, []

    # What a page without a kernel holds, in the order of the browser's arguments.

    def _units(self) -> Iterator[Mapping[str, Any]]:
        for of, look in enumerate(self.saes):
            for unit in () if look.activations is None else look.activations.available_units():
                yield {"of": of, "unit": unit}

    def _counted(self) -> Iterator[Mapping[str, Any]]:
        yield from ({"of": of} for of, look in enumerate(self.saes) if look.stats is not None)

    def _pages(self, selected: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        for of, look in enumerate(self.saes):
            if look.stats is not None:
                wanted = self.page if self.page is not None and of == 0 else self.ranked(look)
                held = set(look.stats.features)
                for number in dict.fromkeys([*selected, *wanted]):
                    if number in held:
                        yield {"of": of, "feature": number}


# Views that show features, and what else they tell the browser: they are told when features get names.
_LOOKING: WeakKeyDictionary[View, tuple[Features, Mapping[str, Any]]] = WeakKeyDictionary()


def look_at(view: View, features: Features, feature: int | None, **options: Any) -> None:
    """Have a view show features, and go to one.

    Args:
        view: Which.
        features: What it shows.
        feature: Where its selection goes; None leaves it, or takes the first to look at.
        **options: What else its browser side is told.

    Raises:
        IndexError: There is no such feature.
    """
    _LOOKING[view] = features, options
    _tell(view)
    view.selection.d_sae = max(look.d_sae for look in features.saes)
    if feature is not None or view.selection.feature is None:
        view.selection.feature = features.first if feature is None else feature


def _tell(view: View) -> None:
    if view.comm is not None:
        features, options = _LOOKING[view]
        view.add_options(saes=features.describe(), **options)


def site_of(explanation: Any) -> str:
    """Return the site that features were read at, as their provenance says."""
    if explanation is None:
        return ""
    return str(explanation.provenance["options"].get("site", ""))


def _where(stats: FeatureStats, feature: int) -> Attributions:
    """Return a feature's activations on the tokens around the one where it fires most."""
    from attnwidgets.explanations import Attributions

    top = stats.feature(feature).top
    tokens = top[0].tokens if top else ("",)
    return Attributions(
        top[0].activations if top else [0.0],
        axis=tokens,
        target=f"feature {feature}",
        method="feature",
        trace_id=stats.trace_id,
        provenance={**stats.provenance, "title": f"feature {feature} where it fires most"},
        warning=stats.warning,
    )


def _listed(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]


def _looked(view: str, shown: Any, beside: Sequence[FeatureStats], place: int) -> Looked:
    layer = shown.provenance["options"].get("layer")
    if isinstance(shown, FeatureStats):
        return Looked(None, shown, layer)
    stats = beside[place] if place < len(beside) else None
    if stats is not None and stats.d_sae != shown.d_sae:
        raise ValueError(
            f"{view}(stats=...): the statistics are of an SAE with {stats.d_sae} features, and the "
            f"activations of one with {shown.d_sae}."
        )
    return Looked(shown, stats, layer)
