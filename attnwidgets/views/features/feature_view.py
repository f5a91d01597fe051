"""The views of SAE features: a text coloured by a feature, a table, and the panel of a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View
from attnwidgets.views.features.features import ShownFeatures, show_features

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.sae.corpus_statistics.stats import FeatureStats
    from attnwidgets.sae.feature_activations import FeatureActivations
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Handler

_WITH_STATISTICS = 540  # CSS pixels of a strip next to the statistics of the feature


class FeatureView(View):
    """A view of the features of an SAE, or of several SAEs of a model.

    Views of a trace, and views of the same statistics, share a `Selection`; `selection.feature` is the
    feature that all of them show. `aw.link` joins views of a text with views of a corpus.

    Args:
        shown: The result of `aw.sae_features` or `aw.feature_stats`, or a list of results, each of another
            SAE; the layer slider then chooses among them.
        stats: The result of `aw.feature_stats` for the same SAEs, in addition to activations on a text.
        feature: Feature that the shared selection moves to; None: the most telling feature.
        page: Features included in a page without a kernel (`aw.to_html`), besides the feature that is
            selected when it is written; by default 50, those with names first.
        **options: The options of every view.

    Raises:
        TypeError, ValueError: `shown` or `stats` has another type, or they belong to different SAEs.
        IndexError: The feature is out of range; the message names the range.
    """

    NEEDS = Needs(("features",))
    _PARTS_SHOWN: ClassVar[Mapping[str, bool]] = {"table": False, "panel": False, "strip": False}

    def __init__(
        self,
        shown: Any,
        *,
        stats: Any = None,
        feature: int | None = None,
        page: Iterable[int] | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        self._features = ShownFeatures(self._VIEW, shown, stats, page)
        super().__init__(self._features.main(feature), **options)
        show_features(self, self._features, feature, **self._feature_options())

    def _feature_options(self) -> dict[str, Any]:
        """Return the options that the browser gets besides the SAEs."""
        return {}

    @property
    def stats(self) -> tuple[FeatureStats, ...]:
        """The statistics of the view, with the names typed by the reader: `view.stats[0].save(path)`."""
        return tuple(sae.stats for sae in self._features.saes if sae.stats is not None)

    @property
    def activations(self) -> tuple[FeatureActivations, ...]:
        """The activations on the text, for each SAE that was run on it."""
        return tuple(sae.activations for sae in self._features.saes if sae.activations is not None)

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"activation": self._activation_paths, "density": self._density_paths}

    def _activation_paths(self, sae: int, feature: int, token: int, unit: str) -> Iterator[Path]:
        activations = self._features.saes[sae].activations
        if activations is None:
            raise LookupError("this SAE was not run on a text.")
        to = "" if unit == activations.unit else f".to({str(unit)!r})"
        tail = f"{to}.feature({int(feature)}).value({int(token)})"
        yield activations, tail
        yield self, f".activations[{self.activations.index(activations)}]{tail}"

    def _density_paths(self, sae: int, feature: int) -> Iterator[Path]:
        stats = self._features.saes[sae].stats
        if stats is None:
            raise LookupError("statistics of this SAE are missing.")
        tail = f".feature({int(feature)}).density"
        yield stats, tail
        yield self, f".stats[{self.stats.index(stats)}]{tail}"

    def _handlers(self) -> Mapping[str, Handler]:
        return self._features.handlers(self, **self._PARTS_SHOWN)


class FeaturePanel(FeatureView):
    """A feature of an SAE: where it fires, how often, which tokens it promotes, and its nearest features.

    It shows a histogram of the feature's activations, its density, the contexts in which it fires most and
    some from every interval of its activations, the tokens whose logits it raises and lowers (if the model
    has an unembedding), the features with the nearest directions, and those that fire together with it.
    Another feature, by number, from a list or from a linked view, is loaded when it is selected. A name typed
    here is stored with the statistics.

    Args:
        shown: The result of `aw.feature_stats`, or a list of results, each of another SAE.
    """

    _VIEW = "FeaturePanel"
    NEEDS = Needs(typed_texts=False)
    _HEIGHT = 520
    _PARTS_SHOWN: ClassVar = {"table": False, "panel": True, "strip": False}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.features import panel_sheet

        return panel_sheet(self, theme)


class FeatureStrip(FeatureView):
    """A text coloured by a feature of an SAE, and the features that fire on each of its tokens.

    Features are tabs above the text, each with its activation on the token under the pointer, or its largest.
    Below are the features that fire most on that token; click a feature to add it as a tab. With SAEs of
    several layers, the layer slider chooses among them. With `stats=`, all statistics of the
    feature stand next to them.

    Args:
        shown: The result of `aw.sae_features`, or a list of them for several layers.
        tabs: Features shown as tabs at first; by default the five with the largest activations in the text.
    """

    _VIEW = "FeatureStrip"
    NEEDS = Needs(typed_texts=False)
    _HEIGHT = 440
    _PARTS_SHOWN: ClassVar = {"table": False, "panel": True, "strip": True}

    def __init__(
        self,
        shown: Any,
        *,
        tabs: Sequence[int] | None = None,
        stats: Any = None,
        feature: int | None = None,
        page: Iterable[int] | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        if stats is not None:
            options.setdefault("height", _WITH_STATISTICS)
        self._tabs = None if tabs is None else [int(number) for number in tabs]
        super().__init__(shown, stats=stats, feature=feature, page=page, **options)

    def _feature_options(self) -> dict[str, Any]:
        sae = self._features.saes[0]
        if sae.activations is None:
            raise TypeError(
                "FeatureStrip() shows features on a text, which aw.sae_features(trace, sae) returns; for "
                "statistics use aw.FeatureTable or aw.FeaturePanel."
            )
        return {} if self._tabs is None else {"tabs": [sae.check_feature(n, "tabs: ") for n in self._tabs]}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.features import strip_sheet

        return strip_sheet(self, theme)


class FeatureTable(FeatureView):
    """The features of an SAE as a table, to search, sort, name and choose from.

    For statistics it lists every feature with its density, its largest activation and the token on which it
    fires most. For activations on a text (with `stats=` also those columns) it lists the features that fire
    there, by their activation on the token that is pinned or under the pointer. Names are edited in the table
    and stored with the statistics: `table.stats[0].save(path)`.
    """

    _VIEW = "FeatureTable"
    NEEDS = Needs(typed_texts=False)
    _HEIGHT = 440
    _PARTS_SHOWN: ClassVar = {"table": True, "panel": False, "strip": True}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.features import table_sheet

        return table_sheet(self, theme)
