"""The rows, pairs and sentences of a score in a WhyView.

The parts of query and key are ranked by their share of the score; the `MOST` largest of a side have a row
each. The others share a row, as do biases, and the error of an SAE, so that the rows of a side sum to the
pairs of the score. Most thresholds are shares of the largest part (`_NOTABLE` and the constants below it).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.circuits.scores.features import ERROR, FEATURE, FeatureParts
from attnwidgets.circuits.scores.why import words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.circuits.scores.removal import Removal
    from attnwidgets.circuits.scores.result import Why

    Float = NDArray[np.float64]

MOST = 6
"""Parts of a side that have a row; the others are summed in a single row."""

_NAMED = 3  # parts that the sentence names
_NOTABLE = 0.15  # of the largest part: smaller parts are not named in the sentence
_BANDS = 4  # groups of layers that the grid shows
_LEAST = 1e-3  # of the largest part: smaller parts have no row
_ROUNDING = 1e-6  # of the largest part: others of this size together have none either
_FAINT = 0.04  # of the largest cell: groups whose cells are all smaller are summed
_CANCELS = 10  # how often the total the sizes of pairs may be before it is said
_CLEAR = 2  # ratio of content and position from which the larger is called most
_REMOVED = 3
_DIGITS = 7
_MOST_DIGITS = 5  # decimals of attention
_CONSTANT = "constant"
SAME = "same for every token"
SCALED = "decoder bias and constant"
"""The same parts with an SAE that normalises each token by itself."""
LACKS = "not described (error)"


@dataclass(frozen=True)
class Row:
    """A row of the parts of the query, or of the parts of the key.

    Attributes:
        name: The part; several are "226 others".
        value: Its share of the score, in nats.
        kind: "part", "rest" (all that have no row), "constant" (biases and shifts of norms) or "error"
            (the part that an SAE does not reconstruct).
        members: The indices of its parts.
        read: The token that the head of this part mostly read, or "".
        tokens: The range of its tokens, (start, stop) without `stop`, of parts that are tokens.
        head: Its layer and head, of a part that a head wrote.
        feature: Its number, of a feature.
        cancels: The sums of positive and negative shares in it, if it is several.
    """

    name: str
    value: float
    kind: str
    members: tuple[int, ...]
    read: str = ""
    tokens: tuple[int, int] | None = None
    head: tuple[int, int] | None = None
    feature: int | None = None
    cancels: tuple[float, float] | None = None

    def described(self) -> dict[str, Any]:
        """Return the `WhyRow` of why.ts."""
        return {
            "name": self.name,
            "value": rounded(self.value),
            "kind": self.kind,
            "read": self.read,
            "tokens": self.tokens,
            "head": self.head,
            "feature": self.feature,
            "cancels": self.cancels and [rounded(value) for value in self.cancels],
        }


@dataclass(frozen=True)
class ShownWhy:
    """A score as a WhyView shows it.

    Args:
        why: The score by the parts that are listed.
        components: The same score by component; that by feature has no other.
    """

    why: Why
    components: Why

    @property
    def words(self) -> tuple[str, str]:
        """Query and key in quotes."""
        return in_quotes(self.why.words)

    def rows(self, of: str) -> list[Row]:
        """Return the rows of a side, "asks" or "offers", the largest value first; they sum to its pairs."""
        return self._sides[of]

    @cached_property
    def _sides(self) -> dict[str, list[Row]]:
        return {of: self._rows(of) for of in ("asks", "offers")}

    def _rows(self, of: str) -> list[Row]:
        why = self.why
        shares = why.asks if of == "asks" else why.offers
        kinds = [part.kind for part in why.written]
        apart = {
            kind: tuple(index for index, other in enumerate(kinds) if other == kind)
            for kind in (_CONSTANT, ERROR)
        }
        ranked = [
            index
            for index in np.argsort(-np.abs(shares), kind="stable").tolist()
            if kinds[index] not in apart
        ]
        sizes, largest = np.abs(shares), np.abs(shares).max(initial=0.0)
        # A row for a single other part would take no less room than the part itself.
        most = MOST + (len(ranked) == MOST + 1)
        named = [index for index in ranked[:most] if sizes[index] > _LEAST * largest]
        rest = [index for index in ranked[len(named) :] if shares[index]]
        rows = [
            self._part(of, index, float(shares[index])) for index in sorted(named, key=lambda at: -shares[at])
        ]
        if sizes[rest].sum() > _ROUNDING * largest:
            values = shares[rest]
            above, below = float(values[values > 0].sum()), float(values[values < 0].sum())
            noun = f" {FEATURE}" if why.by == FEATURE else ""
            name = f"{len(rest):,} other{noun}{'s' if len(rest) > 1 else ''}"
            rows.append(Row(name, float(values.sum()), "rest", tuple(rest), cancels=(above, below)))
        for kind, name in ((_CONSTANT, self._same), (ERROR, LACKS)):
            members = apart[kind]
            if members and sizes[list(members)].max() > _ROUNDING * largest:
                rows.append(Row(name, float(shares[list(members)].sum()), kind, members))
        return rows

    @property
    def _same(self) -> str:
        """Name of the parts that biases and shifts of norms add."""
        return SCALED if self.why.sae is not None and self.why.sae.per_token else SAME

    def _part(self, of: str, index: int, value: float) -> Row:
        why, cell = self.why, self.why.cell
        written, name = why.written[index], why.parts[index]
        if written.kind == "head" and written.layer is not None:
            head = int(name.rpartition(".")[2])
            token = cell.query if of == "asks" else cell.key
            weights = np.asarray(cell.trace.attention_rows(written.layer, [head], [token], cell.stack))[0, 0]
            read = _quoted(cell.labels[1][int(weights.argmax())])
            return Row(name, value, "part", (index,), read, head=(written.layer, head))
        if written.kind == FEATURE:
            number, label = _feature(name)
            return Row(label, value, "part", (index,), feature=number)
        tokens = self._tokens.get(name)
        if tokens is None:
            return Row(name, value, "part", (index,))
        label = name.rpartition(" [")[0]
        several = sum(other.rpartition(" [")[0] == label for other in why.parts) > 1
        return Row(name if several else label, value, "part", (index,), tokens=tokens)

    @property
    def _tokens(self) -> dict[str, tuple[int, int]]:
        """The tokens of each part that is a token or a word."""
        if self.why.by not in ("token", "word"):
            return {}
        cell = self.why.cell
        names = [f"{label.strip(' ␣▁')} [{number}]" for number, label in enumerate(cell.labels[0])]
        groups = words_of(cell) if self.why.by == "word" else {}
        spans: dict[str, tuple[int, int]] = {}
        for token, name in enumerate(names):
            group = groups.get(name, name)
            spans[group] = spans.get(group, (token, token))[0], token + 1
        return spans

    def pairs(self, asks: Sequence[Row], offers: Sequence[Row]) -> Float:
        """Return the shares of rows [row of the query, row of the key]; they sum to each row's value."""
        every: Float = np.array(
            [[self.why.pairs[np.ix_(ask.members, offer.members)].sum() for offer in offers] for ask in asks]
        )
        return every.reshape(len(asks), len(offers))

    def said(self) -> list[tuple[str, bool]]:
        """Return the sentence above the lists, in pieces, those that are stressed with True."""
        (query, key), against = self.words, self.why.total < 0
        sides = [self._named(of, -1 if against else 1) for of in ("asks", "offers")]
        if against:
            asks, offers = (self._stressed(side) or [("nothing in particular", False)] for side in sides)
            return [
                (f"{query} looks past {key}: most against it are ", False),
                *asks,
                (f" of {query} and ", False),
                *offers,
                (f" of {key}.", False),
            ]
        asks, offers = (self._stressed(side) or [("what every token has", False)] for side in sides)
        return [(f"{query} asks with ", False), *asks, (f"; {key} offers ", False), *offers, (".", False)]

    def _stressed(self, names: Sequence[str]) -> list[tuple[str, bool]]:
        """Return names as pieces of a sentence: "a, b and c"; those of features have commas themselves."""
        between, last = (", then ",) * 2 if self.why.by == FEATURE else (", ", " and ")
        pieces: list[tuple[str, bool]] = []
        for number, name in enumerate(names):
            if number:
                pieces.append((last if number == len(names) - 1 else between, False))
            pieces.append((name, True))
        return pieces

    def _named(self, of: str, sign: int) -> list[str]:
        rows = [row for row in self.rows(of) if row.kind == "part" and sign * row.value > 0]
        rows.sort(key=lambda row: -abs(row.value))
        inputs = {part.name for part in self.why.written if part.kind == "input"}
        names = {row.name: f"its {row.name}" if row.name in inputs else row.name for row in rows}
        return [
            f"{row.name}, which read {row.read}"
            if row.read and sign > 0 and len(rows) == 1
            else names[row.name]
            for row in rows[:_NAMED]
            if abs(row.value) >= _NOTABLE * abs(rows[0].value)
        ]

    def more(self) -> str:
        """Return the text below the sentence: shares of features, of content and position, and cancelling."""
        why, (_, key) = self.why, self.words
        content_split, lines = why.place, []
        described = why.described
        if described is not None:
            same = f"what is the {SAME}" if self._same == SAME else f"the {SCALED}"
            lines.append(
                f"Features × features {signed(described.features)} of {signed(float(why.pairs.sum()))}; "
                f"{signed(described.error)} comes with what the features do not describe, "
                f"{signed(described.constant)} with {same}."
            )
        if content_split is not None:
            content, position = content_split.content, content_split.position
            both = f", of both {signed(content_split.both)}" if abs(content_split.both) >= 0.005 else ""  # noqa: PLR2004 - two digits
            numbers = f"of content {signed(content)}, of position {signed(position)}{both}"
            if abs(content) > _CLEAR * abs(position):
                lines.append(f"Most of it is what {key} is, not where it stands: {numbers}.")
            elif abs(position) > _CLEAR * abs(content):
                lines.append(f"Most of it is where {key} stands, not what it is: {numbers}.")
            else:
                lines.append(f"It is what {key} is and where it stands: {numbers}.")
        above, below = why.sizes
        if above - below > _CANCELS * abs(why.total):
            lines.append(
                f"Single pairs sum to {signed(above)} and {signed(below)}, which cancel: read the sums."
            )
        return " ".join(lines)

    def sums(self) -> str:
        """Return the sum of the lists, in words."""
        why, (_, key) = self.why, self.words
        weights = why.foil_weights[why.foil_weights > 0]
        if why.foil in ("others", "words"):
            entropy = -float(weights @ np.log(weights))
            says = (
                f"the log-odds of {key} ({signed(why.total - entropy)}) and how undecided the others are "
                f"({signed(entropy)})"
            )
        elif why.foil == "row":
            says = f"the log of the weight of {key}, less the mean log of the row"
        elif why.foil is None:
            says = "the score itself, of which softmax removes what all keys have alike"
        else:
            foil = _quoted(why.cell.labels[1][int(why.foil)])
            says = f"the log of the weight of {key} over that of {foil}"
        total, cancels = signed(why.total), self._cancelled()
        if not why.given:
            return f"Both lists sum to {total}: {says}.{cancels}"
        given = " and ".join(f"{signed(value)} of {name}" for name, value in why.given.items())
        pairs = signed(float(why.pairs.sum()))
        return f"Both lists sum to {pairs}; with {given} that is {total}: {says}.{cancels}"

    def about(self) -> str:
        """Return in words how well an SAE describes this text; "" without one."""
        why, states = self.why, self.why._states  # noqa: SLF001 - of a result that this view split
        if why.sae is None or not isinstance(states, FeatureParts):
            return ""
        special = why.cell.trace.axes(why.cell.stack)[0].units["token"].special
        words = [token for token, apart in enumerate(special) if not apart] or list(range(len(special)))
        active = float((states.activations[words] != 0).sum(-1).float().mean())
        named = "" if why.stats is None else " Their names are the tokens on which they fire most."
        return (
            f"{why.sae.d_sae:,} features of {why.sae.site}, {active:.3g} active on a token; they describe "
            f"{states.explained(words):.0%} of the variance.{named}"
        )

    def _cancelled(self) -> str:
        """Return the shares that cancel in the parts without a row, in words."""
        rests = [
            f"{signed(row.cancels[0])} and {signed(row.cancels[1])} in what {word} {of}"
            for word, of in zip(self.words, ("asks", "offers"), strict=True)
            for row in self.rows(of)
            if row.cancels is not None and all(row.cancels)
        ]
        return f" Of the others cancel {', '.join(rests)}." if rests else ""

    def removals(self) -> list[Removal]:
        """Return attention without the largest parts of the key, and of the query."""
        every = []
        for side in ("key", "query"):
            for count in range(_REMOVED, 0, -1):
                try:
                    every.append(self.components.without(count, side))
                except ValueError:  # too few parts are left to draw from, or none speaks for the key
                    continue
                break
        return every

    def grid(self) -> tuple[tuple[str, ...], Float]:
        """Return groups of components, and their shares [group of the query, group of the key].

        There are none of a score by feature.
        """
        if self.why.by == FEATURE:
            return (), np.zeros((0, 0))
        written = [part.layer for part in self.components.written if part.kind in ("head", "MLP")]
        layers = 1 + max((layer for layer in written if layer is not None), default=-1)
        grouped = self.components if layers == 0 else self.components.to(-(-layers // _BANDS))
        least = _FAINT * np.abs(grouped.pairs).max(initial=0.0)
        faint = [
            name
            for name, row, column in zip(grouped.parts, grouped.pairs, grouped.pairs.T, strict=True)
            if max(np.abs(row).max(), np.abs(column).max()) < least or not least
        ]
        if faint:
            name = faint[0] if len(faint) == 1 else f"{len(faint)} others"
            grouped = grouped.to(dict.fromkeys(faint, name))
            order = sorted(range(len(grouped.parts)), key=lambda at: grouped.parts[at] == name)
            return tuple(grouped.parts[at] for at in order), grouped.pairs[np.ix_(order, order)]
        return grouped.parts, grouped.pairs

    def removal_words(self) -> Iterator[str]:
        """Yield a sentence for each removal."""
        for removal in self.removals():
            word = self.words[removal.side == "key"]
            count = "one" if len(removal.parts) == 1 else str(len(removal.parts))
            parts = _together(map(called, removal.parts))
            digits = decimals(removal.before)
            after, before = f"{removal.after:.{digits}f}", f"{removal.before:.{digits}f}"
            yield (
                f"Without {parts} in {word} attention is {after} instead of "
                f"{before}; without {count} at random {removal.random.mean():.{digits}f}."
            )

    def described(self) -> dict[str, Any]:
        """Return the `ShownWhy` of why.ts."""
        why = self.why
        asks, offers = self.rows("asks"), self.rows("offers")
        names, values = self.grid()
        return {
            "words": list(self.words),
            "attention": why.attention,
            "total": why.total,
            "said": [list(piece) for piece in self.said()],
            "more": self.more(),
            "sums": self.sums(),
            "about": self.about(),
            "warning": why.warning,
            "asks": [row.described() for row in asks],
            "offers": [row.described() for row in offers],
            "pairs": _rounded_rows(self.pairs(asks, offers)),
            "grid": {"names": list(names), "values": _rounded_rows(values)},
            "removals": [
                {
                    "side": removal.side,
                    "parts": [called(part) for part in removal.parts],
                    "before": rounded(removal.before),
                    "after": rounded(removal.after),
                    "random": rounded(float(removal.random.mean())),
                    "predicted": None if removal.is_predicted else rounded(removal.predicted),
                }
                for removal in self.removals()
            ],
        }


def called(part: str) -> str:
    """Return the name of a part as it is shown: that of a feature without its number, if it has another."""
    return _feature(part)[1] if part.startswith(f"{FEATURE} ") else part


def _together(names: Iterable[str]) -> str:
    """Return names in a row; those of features have commas themselves."""
    every = list(names)
    return ("; " if any("," in name for name in every) else ", ").join(every)


def _feature(part: str) -> tuple[int, str]:
    """Return the number and the name of a feature, from the name of its part."""
    number, _, name = part.removeprefix(f"{FEATURE} ").partition(" (")
    return int(number), name.removesuffix(")") or part


def decimals(weight: float) -> int:
    """Return the number of decimals by which changes of a weight are told apart."""
    return 2 if weight <= 0 else max(2, min(_MOST_DIGITS, 1 - math.floor(math.log10(weight))))


def signed(value: float) -> str:
    """Return a number with its sign and two decimals."""
    return f"{value:+.2f}".replace("-", "−")


def rounded(value: float) -> float:
    """Return a number with the digits that are sent."""
    return float(f"{value:.{_DIGITS}g}")


def _rounded_rows(values: Float) -> list[list[float]]:
    return [[rounded(value) for value in row] for row in values.tolist()]


def in_quotes(words: tuple[str, str]) -> tuple[str, str]:
    """Return query and key in quotes."""
    query, key = (_quoted(word[1:-1]) for word in words)
    return query, key


def _quoted(label: str) -> str:
    return f"“{label.strip(' ␣▁')}”"
