"""FeatureStats: what every feature of an SAE does on a corpus, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import position
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, read_only
from attnwidgets.sae.corpus_statistics.file_checks import require_whole
from attnwidgets.sae.corpus_statistics.summary import (
    Companion,
    Example,
    FeatureSummary,
    Interval,
    LogitEffect,
    Neighbour,
)
from attnwidgets.sae.corpus_statistics.tally import BINS, INTERVALS
from attnwidgets.sae.corpus_statistics.top_examples import NONE
from attnwidgets.tracing.text.display import display, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.explanations.results.tables import Columns


class FeatureStats(Explanation):
    """Statistics of features over a corpus; values are densities [feature]. Made by `aw.feature_stats`.

    Args:
        arrays: What a `Tally` counted (its whole state, so that statistics can be merged), and what the
            directions say; see `_ARRAYS`.
        facts: d_sae, tokens, texts, paired_tokens, before (tokens of a context before its own), pieces
            (spelling of token ids), special (ids), scheme (how pieces spell text) and about (what the counts
            depend on, see `attnwidgets.sae.dependencies`).
        names: What the reader calls features; `rename` and the table of `aw.FeatureTable` write here.
        method, provenance, warning: see `Explanation`.
    """

    kind = "FeatureStats"
    facts: Mapping[str, Any]
    names: dict[int, str]
    _arrays: dict[str, NDArray[Any]]
    _places: dict[int, int]

    def __init__(
        self,
        arrays: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        names: Mapping[int, str] | None = None,
        method: str = "feature_stats",
        unit: str = "feature",
        **common: Any,
    ) -> None:
        if missing := [name for name in _ARRAYS if name not in arrays]:
            raise ValueError(f"arrays lacks {missing[0]!r}; statistics are made by aw.feature_stats.")
        self._set_common(unit=unit, method=method, **common)
        kept = {name: np.asarray(array) for name, array in arrays.items()}
        self._set(
            facts=dict(facts),
            names={int(number): str(name) for number, name in (names or {}).items()},
            _arrays=kept,
            _places={int(number): place for place, number in enumerate(kept["features"])},
        )

    @classmethod
    def merge(cls, parts: Iterable[FeatureStats | str | Path]) -> FeatureStats:
        """Return statistics of parts of a corpus as those of the whole.

        Parts are counted anywhere, by the same call on other texts, and saved: by the tasks of an array job,
        say. Where each begins with a shard of the whole (every 1,000 texts, or sooner where these have more
        than 2^20 characters) and torch computes in as many threads, the result is that of one call, bit for
        bit. Else activations may differ in the last digits, since the model reads other texts in one batch.
        Texts are numbered through the parts in their order. Of features that fire along, all pairs are
        counted only while fewer than 2^25 are met.

        Args:
            parts: In the order of the corpus. Files are opened one by one, so that memory does not grow.

        Raises:
            ValueError: Where a part is of another SAE, model, tokenizer, site, features or options, which are
                named; was saved by an earlier version; or there is none.
            TypeError: Where a part is something else.
        """
        from attnwidgets.sae.corpus_statistics.assembling import merged

        return merged(parts)

    # What every explanation has.

    @property
    def shape(self) -> tuple[int, ...]:
        """How many features were looked at."""
        return (len(self._arrays["features"]),)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("feature",)."""
        return ("feature",)

    @property
    def values(self) -> Array:
        """Densities: the share of tokens on which a feature fires [feature] (float32)."""
        return self.density

    @property
    def features(self) -> tuple[int, ...]:
        """The features that were looked at."""
        return tuple(int(number) for number in self._arrays["features"])

    @property
    def tokens(self) -> int:
        """How many tokens were counted; special ones are not."""
        return int(self.facts["tokens"])

    @property
    def d_sae(self) -> int:
        """How many features the SAE has."""
        return int(self.facts["d_sae"])

    @property
    def density(self) -> Array:
        """The share of tokens on which a feature fires [feature] (float32)."""
        return read_only((self._arrays["count"] / max(self.tokens, 1)).astype(np.float32))

    @property
    def maxima(self) -> Array:
        """Largest activations [d_sae] (float32); NaN for features that were not looked at."""
        found = np.full(self.d_sae, np.nan, dtype=np.float32)
        found[self._arrays["features"]] = self._arrays["maxima"]
        return read_only(found)

    @property
    def dead(self) -> tuple[int, ...]:
        """Features that fired on no token."""
        return tuple(int(number) for number in self._arrays["features"][self._arrays["count"] == 0])

    # One feature.

    def feature(self, feature: int) -> FeatureSummary:
        """Return everything that is known of a feature.

        Raises:
            IndexError: Where it was not looked at.
        """
        number = self.features[position(feature, self.features, "feature")]
        place = self._places[number]
        a = self._arrays
        count = int(a["count"][place])
        top = 2.0 ** int(a["exponent"][place]) if count else 1.0
        return FeatureSummary(
            feature=number,
            name=self.names.get(number, ""),
            count=count,
            density=count / max(self.tokens, 1),
            maximum=float(a["maxima"][place]),
            mean=float(a["total"][place]) / max(count, 1),
            edges=tuple(top * edge / BINS for edge in range(BINS + 1)),
            histogram=tuple(int(n) for n in a["histogram"][place]),
            top=self._examples("top", place),
            intervals=self._intervals(place, top, count),
            promoted=self._effects("promoted", place),
            suppressed=self._effects("suppressed", place),
            neighbours=tuple(
                Neighbour(int(other), float(cosine))
                for other, cosine in zip(a["near"][place], a["near.cosine"][place], strict=True)
                if other != NONE
            ),
            companions=self._companions(place, count),
        )

    def _intervals(self, place: int, top: float, count: int) -> tuple[Interval, ...]:
        counts = self._arrays["histogram"][place].reshape(INTERVALS, -1).sum(-1)
        return tuple(
            Interval(
                top * part / INTERVALS,
                top * (part + 1) / INTERVALS,
                int(counts[part]),
                int(counts[part]) / count,
                self._examples("drawn", place * INTERVALS + part),
            )
            for part in reversed(range(INTERVALS))
            if counts[part]
        )

    def _examples(self, which: str, row: int) -> tuple[Example, ...]:
        fields = {name: self._arrays[f"{which}.{name}"][row] for name in _EXAMPLE}
        slots = np.flatnonzero(fields["text"] != NONE)
        return tuple(self._example({name: field[slot] for name, field in fields.items()}) for slot in slots)

    def _example(self, fields: Mapping[str, Any]) -> Example:
        there = np.flatnonzero(fields["ids"] != NONE)
        ids = tuple(int(number) for number in fields["ids"][there])
        return Example(
            activation=float(fields["value"]),
            tokens=self._spelled(ids),
            activations=tuple(float(value) for value in fields["activations"][there]),
            at=int(np.flatnonzero(there == self.facts["before"])[0]),
            ids=ids,
            text=int(fields["text"]),
            place=int(fields["place"]),
        )

    def _spelled(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Return display strings of consecutive tokens."""
        numbers = list(ids)
        special = set(self.facts["special"])
        pieces = [self.facts["pieces"][str(number)] for number in numbers]
        scheme = self.facts["scheme"]
        return display(pieces_of(pieces, [number in special for number in numbers], scheme), scheme)

    def _effects(self, which: str, place: int) -> tuple[LogitEffect, ...]:
        if which not in self._arrays:
            return ()
        ids, effects = self._arrays[which][place], self._arrays[f"{which}.effect"][place]
        return tuple(
            LogitEffect(self._spelled([int(number)])[0], float(effect), int(number))
            for number, effect in zip(ids, effects, strict=True)
        )

    def _companions(self, place: int, count: int) -> tuple[Companion, ...]:
        a = self._arrays
        found = []
        for other, together in zip(a["along"][place], a["along.count"][place], strict=True):
            if other == NONE:
                continue
            theirs = int(a["paired.count"][self._places[int(other)]])
            own = int(a["paired.count"][place])
            both = int(together)
            found.append(Companion(int(other), both / own, both / (own + theirs - both)))
        return tuple(found) if count else ()

    # All of them.

    def named(self, names: Mapping[int, str]) -> FeatureStats:
        """Return the same statistics with names for features; an empty name takes one away.

        Raises:
            IndexError: Where there is no such feature.
        """
        changed = {self.features[position(n, self.features, "feature")]: name for n, name in names.items()}
        kept = {number: name for number, name in {**self.names, **changed}.items() if name}
        return FeatureStats(self._arrays, self.facts, names=kept, **self._common())

    def rename(self, names: Mapping[int, str]) -> None:
        """Name features here, in all views of these statistics and in what is saved of them from now on.

        Names are a reader's notes, and the only thing that changes; `named` leaves these as they are. An
        empty name takes one away.

        Raises:
            IndexError: Where there is no such feature; nothing is changed then.
        """
        changed = self.named(names).names
        self.names.clear()
        self.names.update(changed)

    def loudest(self, k: int) -> tuple[int, ...]:
        """Return the `k` features with the largest activations, the largest first; dead ones are left out."""
        maxima = np.where(self._arrays["count"] > 0, self._arrays["maxima"], -np.inf)
        order = np.argsort(-maxima, kind="stable")[:k]
        return tuple(int(self._arrays["features"][place]) for place in order if maxima[place] > -np.inf)

    def strongest_tokens(self) -> list[str | None]:
        """Return, for every feature, the token on which it fires most; None where it is dead."""
        a = self._arrays
        ids = a["top.ids"][:, 0, self.facts["before"]]
        spelled = {
            int(number): self._spelled([int(number)])[0] for number in np.unique(ids) if number != NONE
        }
        alive = a["top.text"][:, 0] != NONE
        return [spelled[int(number)] if there else None for number, there in zip(ids, alive, strict=True)]

    def _columns(self) -> Iterator[Columns]:
        """Yield one feature a row: feature, name, density, count, mean, maximum, token (of its maximum)."""
        a = self._arrays
        counts = np.maximum(a["count"], 1)
        yield {
            "feature": a["features"],
            "name": [self.names.get(number, "") for number in self.features],
            "density": self.density,
            "count": a["count"],
            "mean": a["total"] / counts,
            "maximum": a["maxima"],
            "token": [token or "" for token in self.strongest_tokens()],
        }

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays."""
        names = {str(number): name for number, name in self.names.items()}
        return self._describe_common() | {"facts": dict(self.facts), "names": names}, dict(self._arrays)

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the statistics that `to_description` described."""
        names = {int(number): name for number, name in described["names"].items()}
        require_whole(arrays, described["facts"])
        return cls(arrays, described["facts"], names=names, **restore_common(described))

    def plot(self, **_: Any) -> Figure:
        """Return a matplotlib figure of how dense features are: a histogram of log10 densities."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 2.5), layout="constrained")
        axes = figure.subplots()
        alive = self.density[self.density > 0]
        axes.hist(np.log10(alive), bins=50)
        axes.set_xlabel("log10 of the share of tokens on which a feature fires")
        axes.set_ylabel("features")
        axes.set_title(f"{len(alive)} of {self.shape[0]} features fired on {self.tokens:,} tokens")
        return figure

    def _png(self) -> dict[str, Any]:
        import base64
        import io

        stream = io.BytesIO()
        self.plot().savefig(stream, format="png", dpi=100)
        return {"image/png": base64.b64encode(stream.getvalue()).decode("ascii")}


_EXAMPLE = ("value", "text", "place", "ids", "activations")
_ARRAYS = (
    *("features", "count", "total", "maxima", "exponent", "histogram"),
    *(f"{which}.{name}" for which in ("top", "drawn") for name in _EXAMPLE),
    *("near", "near.cosine", "along", "along.count", "paired.count"),
)
