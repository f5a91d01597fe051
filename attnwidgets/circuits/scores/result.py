"""Why: a score as pairs of a part of the query and a part of the key, with their margins and contrasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import at_most
from attnwidgets._tables import Table, cells
from attnwidgets.circuits.scores.features import APART, Described, described_of
from attnwidgets.circuits.scores.other_texts import in_other_texts
from attnwidgets.circuits.scores.removal import Removal, remove
from attnwidgets.circuits.scores.saved import SavedCell, described_why, restored_why
from attnwidgets.circuits.scores.shares import Paired, Share
from attnwidgets.explanations.viewable import Viewable, bundle_of
from attnwidgets.tracing.algebra.residual_parts import Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.circuits.scores.other_texts import OtherTexts
    from attnwidgets.explanations.results.arrays import Array
    from attnwidgets.sae.corpus_statistics.stats import FeatureStats
    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.algebra.residual_parts import StateParts

    Float = NDArray[np.float64]

_MANY = 10
"""How many times the total the sizes of pairs may sum to before a sentence says that they cancel."""
_READ = 3  # parts that a sentence names


class ContentAndPosition(NamedTuple):
    """A score split by the content and the position of its tokens.

    Attributes:
        content: The term that depends on the tokens alone.
        position: The term that depends on their positions alone.
        both: The term that depends on the content of one token and the position of the other.
    """

    content: float
    position: float
    both: float


@dataclass(frozen=True, repr=False)
class Why(Paired, Table, Viewable):
    """A score of attention as the sum over pairs of a part of the query's state and a part of the key's.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        query: Index of the token that reads.
        key: Index of the token that is read.
        words: Both tokens.
        foil: The contrast of the key: "others", "words", "row", the index of a token, or None.
        foil_weights: How much of each key's score is subtracted [key]; they sum to one; zeros without a foil.
        by: The kind of parts: "component", "token", "word" or "feature".
        attention: The recorded weight.
        score: The score of query and key as the softmax reads it; -inf is not split.
        parts: The names of the parts.
        pairs: The shares of a part of the query and a part of the key [query part, key part], float64.
        alone: The shares of the key's parts in the score itself, without a foil [part]: the loss of
            the key without a part, while the foil's keys stay.
        given: Terms outside of the pairs: "position bias" and "soft cap".
        warning: A caveat for the reader, or "".
        written: The writer of each part.
        is_grouped: Whether parts are groups, by `to`.
        sae: The SAE whose features are parts, or None.
        stats: Its statistics, by which features are called, or None.
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
    _cell: Cell | SavedCell
    _states: StateParts | None
    is_grouped: bool = False
    sae: SAE | None = None
    stats: FeatureStats | None = None
    _compared: list[OtherTexts] = field(default_factory=list)  # with other texts, the last time

    @property
    def cell(self) -> Cell:
        """How the head makes this query and these keys.

        Raises:
            ValueError: If the result was loaded from a file, which has no model.
        """
        if isinstance(self._cell, SavedCell):
            raise ValueError(  # noqa: TRY004 - of a file, not of an argument
                "this result was loaded from a file, without its model, and can only be read; "
                "aw.why(trace, ...) splits the score again."
            )
        return self._cell

    @property
    def total(self) -> float:
        """The sum of all parts: the score of the key less that of its foil.

        With `foil="others"` it is the log-odds of the weight and how undecided the row is otherwise: log(A /
        (rest of the row)) plus the entropy of the others, in nats. With a token it is the logarithm of the
        ratio of both weights.
        """
        return float(self.pairs.sum()) + sum(self.given.values())

    @property
    def sizes(self) -> tuple[float, float]:
        """The sum of positive and that of negative pairs: how much of them cancels."""
        return float(self.pairs[self.pairs > 0].sum()), float(self.pairs[self.pairs < 0].sum())

    @property
    def place(self) -> ContentAndPosition | None:
        """The total split by the content and the position of the tokens.

        With rotations by position, keys are moved: content is the change with another key at the same place,
        position that with the same key at another place, each the mean over the order of exchanges. With
        embeddings of positions they are parts, of which pairs are made. A position bias belongs to position;
        a soft cap to none of them. None if positions enter the states in another way.
        """
        if isinstance(self._cell, SavedCell):
            return None if self._cell.place is None else ContentAndPosition(*self._cell.place)
        return _place_of(self)

    @property
    def described(self) -> Described | None:
        """How much of the total the features of an SAE describe; None for other parts.

        The three numbers sum to the total less `given`.
        """
        return described_of(self)

    def to(self, groups: str | int | Mapping[str, str]) -> Why:
        """Return the same score by groups of parts; sums are exact.

        Args:
            groups: "kind" (input, heads, MLPs, biases; of an SAE: features, biases, error), a number of
                layers, whose heads and whose MLPs become a group each, or the group of each part by its
                name, where parts that are left out stay.

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
            _compared=list(self._compared),
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
        """Return the attention after parts are removed from the query or the key.

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
        cell = self.cell
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
        return remove(cell, self._states, self.parts, names, side, n_random=n_random, seed=seed)

    def _largest(self, count: int, side: str) -> tuple[str, ...]:
        """Return the parts of a side, but biases and the error, with the largest shares above zero."""
        shares = self.alone if side == "key" else self.asks
        order = [
            index
            for index in np.argsort(-shares, kind="stable").tolist()
            if shares[index] > 0 and self.written[index].kind not in APART
        ]
        return tuple(self.parts[index] for index in at_most(order, count))

    def in_other_texts(self, texts: Any = None, k: int = 8) -> OtherTexts:
        """Return the tokens of other texts that this query would read, and those that would read this key.

        The states of the tokens of other texts, at the input of this layer, are put in the place of the key,
        and then of the query. Everything else stays: the place, with its rotation and position bias, the
        other keys of the row, soft cap and sink. The scores are exact for these states. A state that holds
        its position, as with embeddings of positions, keeps it.

        Special tokens are left out, and of a decoder's texts the first four. States are computed at the
        first call for a model and these texts, for all layers, and remembered with the model, the largest
        part in a temporary file; the next call takes a fraction of a second.

        Args:
            texts: Strings, or objects with `.text`; cut where the model reads no more. By default the demo's
                sentences and some paragraphs of its book, about 5,000 tokens of English.
            k: Tokens in each list.

        Returns:
            OtherTexts: `.keys`, `.queries` and `.keys_of_mean`, and how much of the tokens this key and this
            query are above. The mean query is the mean over the tokens of these texts: softmax removes the
            terms shared by all keys, so that its ranking shows the tokens that the head reads in general.

        Raises:
            ValueError: If `k` is below 1, texts are empty, the tokenizer cannot spell them, or the query
                reads one token only.
            TypeError: If an input is not a text.
            UnsupportedModelError: If the model reads no texts.

        A result that was loaded from a file returns the lists that were saved with it.

        Source: max-activating examples of a unit (Bills et al. 2023, Language models can explain neurons in
        language models), of a score here.

        Example:
            >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
            >>> why = aw.why(aw.trace(model, tokenizer, "fadebcfadeb"), 11, 6, layer=1, head=0)
            >>> other = why.in_other_texts(["hgbachgba", "cbdhcbdh", "ebfgebf"], k=3)
            >>> [(token.before[-1], token.token) for token in other.keys]
            [('b', 'a'), ('b', 'd'), ('b', 'f')]
        """
        at_most((), k)
        if isinstance(self._cell, SavedCell) and texts is None and self._compared:
            return self._compared[0].first(k)
        self._compared[:] = [in_other_texts(self.cell, texts, k)]
        return self._compared[0]

    def save(self, path: str | Path) -> Path:
        """Write to `path`, for `aw.load`: a `.safetensors` file, or a folder for a path without suffix.

        The file holds the numbers, the labels, and the last result of `in_other_texts`, if there is one. A
        loaded result has neither trace nor model: it can be read, summed in groups and written, but is not
        shown in a view, and nothing is removed from it. Other suffixes give files for reading: `.html`,
        `.pdf`, `.svg`, `.png` and `.csv`.

        Raises:
            ValueError: If the suffix is that of another table.
            FileNotFoundError: If the folder to write into does not exist.
        """
        from attnwidgets.explanations.results.archive import save

        return save(self, path)

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays."""
        return described_why(self, self._cell, self._compared[0] if self._compared else None)

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Why:
        """Return the score of a description."""
        return cls(**restored_why(described, arrays))

    def describe(self) -> str:
        """Return sentences that name the query, the key, the foil, and the parts with the largest shares."""
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
        described = self.described
        if described is not None:
            lines.append(
                f"Pairs of two features make {described.features:+.2f}, pairs with the decoder's bias or the "
                f"constant {described.constant:+.2f}, and pairs with the error {described.error:+.2f}."
            )
        above, below = self.sizes
        if above - below > _MANY * abs(self.total):
            lines.append(f"Single pairs say little: they sum to {above:+.1f} and {below:+.1f}, which cancel.")
        return " ".join(lines)

    def _columns(self) -> Iterator[Columns]:
        """Yield query part, key part, share."""
        yield cells({"query_part": self.parts, "key_part": self.parts}, {"share": self.pairs})

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the view, where a kernel can show it, and text."""
        if isinstance(self._cell, SavedCell):
            return {"text/plain": repr(self)}
        return bundle_of(self, **options)

    def __repr__(self) -> str:
        return f"<Why by {self.by}: {self.describe()}{' ' + self.warning if self.warning else ''}>"


def _is_rest(share: Share) -> bool:
    """Return whether a share is the sum of those that were not named."""
    return (share.query or share.key).endswith((" other", " others"))


def _said_foil(why: Why) -> str:
    if why.foil is None:
        return "Compared with nothing,"
    if isinstance(why.foil, int):
        return f"Rather than {why._cell.say(why.foil)},"  # noqa: SLF001 - same module
    return {
        "others": "Rather than the other tokens, by their attention,",
        "words": "Rather than the other words, by their attention,",
        "row": "Rather than the mean of the row,",
    }[why.foil]


_KINDS = {
    "input": "input", "head": "heads", "MLP": "MLPs", "bias": "biases", "constant": "biases",
    "feature": "features",
}  # fmt: skip


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
