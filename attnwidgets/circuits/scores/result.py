"""Why: a score as pairs of a part of the query and a part of the key, and what follows from the pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._notebook import running_shell
from attnwidgets._selecting import at_most
from attnwidgets._tables import Table, cells
from attnwidgets.circuits.scores.removal import Removal, remove
from attnwidgets.circuits.scores.shares import Share, ranked_shares
from attnwidgets.explanations.viewable import Viewable
from attnwidgets.tracing.algebra.residual_parts import Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.tracing.algebra.residual_parts import StateParts

    Float = NDArray[np.float64]

_MANY = 10
"""How many times the total the sizes of pairs may sum to before a sentence says that they cancel."""
_READ = 3  # parts that a sentence names


class ContentAndPosition(NamedTuple):
    """A score by what its tokens are and where they stand.

    Attributes:
        content: What depends on the tokens alone.
        position: What depends on their positions alone.
        both: What depends on the content of one and the position of the other.
    """

    content: float
    position: float
    both: float


@dataclass(frozen=True, repr=False)
class Why(Table, Viewable):
    """A score of attention as the sum over pairs of a part of the query's state and a part of the key's.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        query: Index of the token that reads.
        key: Index of the token that is read.
        words: Both tokens.
        foil: What the key is compared with: "others", "words", "row", the index of a token, or None.
        foil_weights: How much of each key's score is subtracted [key]; they sum to one; zeros without a foil.
        by: What parts are: "component", "token", "word", or the name of an SAE.
        attention: The recorded weight.
        score: The score of query and key as the softmax reads it; -inf is not split.
        parts: The names of the parts.
        pairs: The shares of a part of the query and a part of the key [query part, key part], float64.
        alone: The shares of the key's parts in the score itself, without a foil [part]: what a key
            loses with a part, while the foil's keys stay.
        given: What no pair makes: "position bias", and "soft cap", which is what a cap takes.
        warning: What a reader must know, or "".
        written: What wrote each part.
        cell: How the head makes this query and these keys.
        is_grouped: Whether parts are groups, by `to`.
    """

    kind: ClassVar[str] = "Why"
    viewed_by: ClassVar[str] = "circuits.why_view:WhyView"

    layer: int
    head: int
    query: int
    key: int
    words: tuple[str, str]
    foil: int | str | None
    foil_weights: Float
    by: str
    attention: float
    score: float
    parts: tuple[str, ...]
    pairs: Float
    alone: Float
    given: Mapping[str, float]
    warning: str
    written: tuple[Written, ...]
    cell: Cell
    _states: StateParts | None
    is_grouped: bool = False

    @property
    def total(self) -> float:
        """What the parts sum to: the score of the key less that of its foil.

        With `foil="others"` it is the log-odds of the weight and how undecided the row is otherwise: log(A /
        (rest of the row)) plus the entropy of the others, in nats. With a token it is the logarithm of the
        ratio of both weights.
        """
        return float(self.pairs.sum()) + sum(self.given.values())

    @property
    def asks(self) -> Float:
        """The shares of the query's parts [part]: what they make with the whole key."""
        asks: Float = self.pairs.sum(1)
        return asks

    @property
    def offers(self) -> Float:
        """The shares of the key's parts [part]: what they make with the whole query."""
        offers: Float = self.pairs.sum(0)
        return offers

    @property
    def sizes(self) -> tuple[float, float]:
        """The sum of positive and that of negative pairs: how much of them cancels."""
        return float(self.pairs[self.pairs > 0].sum()), float(self.pairs[self.pairs < 0].sum())

    @property
    def place(self) -> ContentAndPosition | None:
        """How much of the total comes from what the tokens are, and how much from where they stand.

        With rotations by position, keys are moved: content is what another key makes at the same place,
        position what the same key makes at another place, each the mean over which is exchanged first. With
        embeddings of positions they are parts, of which pairs are made. A position bias belongs to position;
        a soft cap to none of them. None if positions enter the states in another way.
        """
        return _place_of(self)

    def top(self, k: int | None = 6, of: str = "pairs") -> list[Share]:
        """Return the largest shares by size, and the sum of all others as the last.

        Args:
            k: How many are named; None: all.
            of: "pairs", "asks" (the query's parts) or "offers" (the key's parts).

        Raises:
            ValueError: If `k` is below 1, or `of` is something else.
        """
        return ranked_shares((self.parts, self.parts), self.pairs, k, of)

    def to(self, groups: str | int | Mapping[str, str]) -> Why:
        """Return the same score by groups of parts; sums are exact.

        Args:
            groups: "kind" (input, heads, MLPs, biases), a number of layers, whose heads and whose MLPs become
                a group each, or the group of each part by its name, where parts that are left out stay.

        Raises:
            ValueError: If a part is unknown, or these parts have no layers.
        """
        labels = group_labels(self.written, self.parts, groups)
        names = tuple(dict.fromkeys(labels))
        member = np.array([[label == name for label in labels] for name in names], dtype=np.float64)
        kinds = {label: part.kind for label, part in zip(labels, self.written, strict=True)}
        written = tuple(Written(name, kinds[name]) for name in names)
        pairs = member @ self.pairs @ member.T
        return replace(
            self,
            parts=names,
            pairs=pairs,
            alone=member @ self.alone,
            written=written,
            _states=None,
            is_grouped=True,
        )

    def without(
        self, parts: str | Sequence[str] | int = 3, side: str = "key", *, n_random: int = 20, seed: int = 0
    ) -> Removal:
        """Return what attention does when parts are removed from the query or the key.

        They are taken out of the state that the head reads, and the norm divides by the deviation that is
        left; everything before the head stays. As many other parts, at random, are removed for comparison.

        Args:
            parts: Names of parts, or how many: those with the largest shares above zero.
            side: "key", where the other keys stay, or "query".
            n_random: How many times others are drawn.
            seed: Seed of the draws.

        Raises:
            ValueError: If a part is unknown or grouped, none has a share above zero, or too few are left.
        """
        require_choice("side", side, ("key", "query"))
        if self._states is None:
            raise ValueError("parts of a group cannot be removed together by its name; name them one by one.")
        names = (
            self._largest(parts, side)
            if isinstance(parts, int)
            else (parts,)
            if isinstance(parts, str)
            else tuple(parts)
        )
        for name in names:
            require_choice("parts", name, self.parts[:-1])
        return remove(self.cell, self._states, self.parts, names, side, n_random=n_random, seed=seed)

    def _largest(self, count: int, side: str) -> tuple[str, ...]:
        """Return the parts of a side, but that of biases, with the largest shares above zero."""
        shares = (self.alone if side == "key" else self.asks)[:-1]
        order = [index for index in np.argsort(-shares, kind="stable").tolist() if shares[index] > 0]
        return tuple(self.parts[index] for index in at_most(order, count))

    def describe(self) -> str:
        """Return in sentences what reads what, rather than what, and which parts make it so."""
        reads, read = self.words
        lines = [
            (
                f"{reads} reads {read} with {self.attention:.3g} in head {self.layer}.{self.head}. "
                f"{_said_foil(self)} its score is {self.total:+.2f}."
            )
        ]
        for word, verb, of in ((reads, "asks with", "asks"), (read, "offers", "offers")):
            shares = self.top(_READ, of)
            named = [share for share in shares if not _is_rest(share)]
            listed = ", ".join(f"{share.query or share.key} {share.value:+.2f}" for share in named)
            rest = "".join(
                f" ({share.query or share.key} {share.value:+.2f})" for share in shares[len(named) :]
            )
            lines.append(f"{word} {verb} {listed}{rest}.")
        lines += [f"{name.capitalize()} {value:+.2f}." for name, value in self.given.items()]
        above, below = self.sizes
        if above - below > _MANY * abs(self.total):
            lines.append(f"Single pairs say little: they sum to {above:+.1f} and {below:+.1f}, which cancel.")
        return " ".join(lines)

    def _columns(self) -> Iterator[Columns]:
        """Yield query part, key part, share."""
        yield cells({"query_part": self.parts, "key_part": self.parts}, {"share": self.pairs})

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the view, where a kernel can show it, and text."""
        if not hasattr(running_shell(), "kernel"):
            return {"text/plain": repr(self)}
        return self.view()._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return f"<Why by {self.by}: {self.describe()}{' ' + self.warning if self.warning else ''}>"


def _is_rest(share: Share) -> bool:
    """Return whether a share is the sum of those that were not named."""
    return (share.query or share.key).endswith((" other", " others"))


def _said_foil(why: Why) -> str:
    if why.foil is None:
        return "Compared with nothing,"
    if isinstance(why.foil, int):
        return f"Rather than {why.cell.say(why.foil)},"
    return {
        "others": "Rather than the other tokens, by their attention,",
        "words": "Rather than the other words, by their attention,",
        "row": "Rather than the mean of the row,",
    }[why.foil]


_KINDS = {"input": "input", "head": "heads", "MLP": "MLPs", "bias": "biases", "constant": "biases"}


def group_labels(
    written: Sequence[Written], parts: Sequence[str], groups: str | int | Mapping[str, str]
) -> list[str]:
    """Return the group of each part."""
    if isinstance(groups, Mapping):
        for name in groups:
            require_choice("groups", name, tuple(parts))
        return [groups.get(name, name) for name in parts]
    if isinstance(groups, str):
        require_choice("groups", groups, ("kind",))
        return [_KINDS.get(part.kind, part.name) for part in written]
    if isinstance(groups, bool) or groups < 1:
        raise ValueError(f"groups must be a number of layers, 1 or more, not {groups!r}.")
    layers = [part.layer for part in written if part.kind in ("head", "MLP") and part.layer is not None]
    if not layers and any(part.kind not in ("input", "constant") for part in written):
        raise ValueError('groups counts layers, which these parts do not have; split by="component".')
    return [_band(part, groups, max(layers, default=0)) for part in written]


def _band(part: Written, size: int, last: int) -> str:
    kind = _KINDS.get(part.kind, part.name)
    if part.kind not in ("head", "MLP") or part.layer is None:
        return part.name if part.kind == "input" else kind
    start = part.layer // size * size
    end = min(start + size - 1, last)
    return f"{kind} {start}" if start == end else f"{kind} {start}–{end}"


def _place_of(why: Why) -> ContentAndPosition | None:
    cell, weights = why.cell, why.foil_weights
    bias = why.given.get("position bias", 0.0)
    rotation = cell.reader.rotation
    if rotation is None:
        at = {"position": 0.0, "content": 0.0, "both": 0.0}
        is_position = np.array([name == "position" for name in why.parts])
        if not is_position.any() and not bias:
            return None
        ask, offer = is_position[:, None], is_position[None]
        at["position"] = float(why.pairs[ask & offer].sum()) + bias
        at["content"] = float(why.pairs[~ask & ~offer].sum())
        at["both"] = float(why.pairs[ask ^ offer].sum())
        return ContentAndPosition(at["content"], at["position"], at["both"])
    if why.foil is None:
        return None
    states, reader, key = cell.reader.states, cell.reader, cell.key
    count = len(states)
    every = reader.unturned("key", states)
    query = cell.query_vector * cell.row.scaling
    there = (rotation(every, range(count)) @ query).numpy()  # every key where it is
    here = (rotation(every, [key] * count) @ query).numpy()  # every key in the place of this one
    moved = (rotation(every[[key] * count], range(count)) @ query).numpy()  # this key in every place
    content = float(weights @ ((there[key] - here) + (moved - there))) / 2
    position = float(weights @ ((there[key] - moved) + (here - there))) / 2
    return ContentAndPosition(content, position + bias, 0.0)
