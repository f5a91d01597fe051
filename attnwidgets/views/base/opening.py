"""Where a view opens: the head with the most content words, the clearest pattern, or the fewest patches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.block_mixers import mixers_of
from attnwidgets.explanations.results.description import READING, axis_words
from attnwidgets.explanations.results.verbalise import quoted
from attnwidgets.tracing.media.patches import PADDING
from attnwidgets.views.wire.reader import LAYER_VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.text.units import Unit

    Float = NDArray[np.floating]
    Bool = NDArray[np.bool_]

MOST_WEIGHTS = 2**26
"""Attention weights of a map above which heads are compared by some of their rows."""

SAMPLED_WEIGHTS = 2**25
"""Weights that are then read, at most."""

_SAMPLED, _FEWEST = 64, 8  # rows of tokens that are read, and elements that must be among them
_LETTERS = 4
"""Letters from which a word counts as a content word, in scripts with upper and lower case."""

_NEAR = 2
"""Distance below which elements are neighbours."""

_CLEAR = 0.3
"""Weight from which a head counts as attending to a content word."""

_FEW = (2, 4)
"""How many weights a divided row names, at least and at most."""

_NAMED = 0.1
"""Weight from which a divided row names an element."""

_TOGETHER = 0.8
"""Weight that the named elements of a divided row have together, at least."""

_MOSTLY = 0.5
"""Mean weight on the first token from which the other tokens count as attending to it."""

_RIGHT_TO_LEFT = re.compile("“[^”]*[\u0590-\u08ff][^”]*”")
"""Quotes that would turn around the numbers next to them, unless they are isolated."""

_LEAST = 8  # patches, of which fewer cannot be few


class Opening(NamedTuple):
    """Where a view opens, if nobody chose anything: `Opening` of wire.ts.

    Attributes:
        layer: Original layer number.
        head: Original head number; None without a head axis.
        unit: The unit that `query` and `pair` count.
        query: Index of the last content element, see `last_content`; -1 if there is none.
        pair: The strongest pair of content elements, (query, key), of the head; None if there is none.
        words: The pattern of the head: "reads the token before"; "" if it was not searched for.
        sentence: Its map in words: "“is” attends to “France” (0.90)."; "" if it was not searched for.
        value: The value by which the head was chosen, 0 to 1; None if it was not searched for.
        note: From how many queries the head was chosen, or why it is the first; "" if all were read.
    """

    layer: int
    head: int | None
    unit: str
    query: int
    pair: tuple[int, int] | None = None
    words: str = ""
    sentence: str = ""
    value: float | None = None
    note: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the Opening of wire.ts."""
        sentence = _RIGHT_TO_LEFT.sub("\u2068\\g<0>\u2069", self.sentence)
        return self._asdict() | {"pair": self.pair and list(self.pair), "sentence": sentence}


def opening_of(shown: Any, unit: str, layer: int | None = None, head: int | str | None = None) -> Opening:
    """Return where a view of an explanation opens. The same explanation always opens the same.

    Only layers that no model has to be run for are read, and of those only the cells that patterns need.

    Args:
        shown: A MixingMap or Attributions.
        unit: The unit it is read in.
        layer: A layer that was chosen; no head is then searched for.
        head: The same for a head.
    """
    if isinstance(shown, Attributions):
        return Opening(0, None, unit, -1)
    seen = shown.to(unit).query_unit
    first = Opening(
        shown.layers[0], shown.heads and shown.heads[0], unit, last_content(seen.labels, seen.special)
    )
    is_chosen = layer is not None or head is not None
    pictured = grid_unit(shown)
    if pictured is not None and len(pictured.labels) == len(seen.labels):
        query = first_query(pictured)
        first = first._replace(query=query)
        ready = not (is_chosen or shown.on_demand or shown.heads is None or shown.known("signed"))
        result = focused_head(shown, pictured, query) if ready and shown.knows_rows else None
        if result is not None:
            words = f"reads few adjacent patches from {pictured.labels[query]}"
            return first._replace(
                layer=result.layer, head=result.head, words=words, sentence=f"It {words}.", value=result.score
            )
    # Patterns are of queries that read keys.
    fixed = is_chosen or shown.heads is None or shown.known("signed") or axis_words(shown) != READING
    if fixed:
        return first
    return _on_content_words(shown, first) or _searched(shown, first)


def _on_content_words(shown: MixingMap, first: Opening) -> Opening | None:
    """Return the opening at the head whose rows attend to content words most, of a text with a prediction.

    Of a model that predicts the next token, the row that predicts it is compared, less the weight that other
    rows give to the same word or at the same distance: a head that always attends to the token before says
    little about this word. Of other models, all rows of content are; neighbours of a token do not count.
    """
    title = "" if shown.predictions is None else shown.predictions.title
    is_missing = shown.on_demand and set(shown.computed_layers) != set(shown.layers)
    if not title or is_missing or len(shown.query) * len(shown.key) > LAYER_VALUES:
        return None
    is_next, count = title == "next token" and shown.causal, _sampled(shown, first.unit)
    if count is not None and (count < _FEWEST or not is_next):
        return None
    seen = shown.to(first.unit)
    keys, special = seen.key_labels, np.array(seen.key_unit.special, dtype=bool)
    content = np.array([_is_content(label) for label in keys]) & ~special
    if seen.query_labels != keys or not content.any():
        return None
    rows = np.arange(len(keys))
    if count is not None:
        rows = np.unique(np.linspace(0, len(keys) - 1, count, dtype=int))
    best: tuple[float, int, int, int, int, Float] | None = None  # score, layer, head, query, key, matrix
    for layer in seen.layers:
        read = seen.layer(layer) if count is None else seen.rows(layer, None, rows)
        weights = np.nan_to_num(np.asarray(read)).reshape(-1, len(rows), len(keys))
        if is_next:
            score, head, query, key = _of_last_row(weights, rows, content)
        else:
            score, head, query, key = _of_all_rows(weights, content, special)
        if best is None or score > best[0]:
            best = score, layer, head, query, key, weights[head]
    if best is None or best[0] < _CLEAR:
        return None
    score, layer, head, query, key, matrix = best
    return first._replace(
        layer=layer,
        head=(seen.heads or (0,))[head],
        query=query,
        pair=(query, key),
        words="reads content words",
        sentence=_sentence(matrix, keys, special, query, key, seen.unit, is_next=is_next),
        value=score,
        note=_note_of(count, len(keys)),
    )


def divided_row(shown: MixingMap, first: Opening, *, all_heads: bool) -> Opening | None:
    """Return the opening at the row that divides its attention most evenly among few content elements.

    Two to four of them have a weight of 0.1 or more each, and 0.8 together. None without such a row, and
    where nothing is searched: in long texts, and while layers are not computed.

    Args:
        shown: A map of several heads.
        first: Where the view opens otherwise.
        all_heads: Whether every head is searched; otherwise only that of `first`.
    """
    is_missing = shown.on_demand and set(shown.computed_layers) != set(shown.layers)
    is_long = len(shown.query) * len(shown.key) > LAYER_VALUES or _sampled(shown, first.unit) is not None
    if shown.heads is None or is_missing or is_long:
        return None
    seen = shown.to(first.unit)
    apart = np.logical_or.outer(*(np.array(side.special, bool) for side in (seen.query_unit, seen.key_unit)))
    best: tuple[float, int, int, int] | None = None  # score, layer, head, query
    for layer in seen.layers if all_heads else (first.layer,):
        weights = np.nan_to_num(np.asarray(seen.layer(layer), dtype=np.float64))
        named = np.sort(np.where((weights >= _NAMED) & ~apart, weights, 0.0), axis=-1)
        together, count = named.sum(-1), (named > 0).sum(-1)
        is_divided = (together >= _TOGETHER) & (count >= _FEW[0]) & (count <= _FEW[1])
        scores = np.where(is_divided, named[..., -2:].min(-1) * together, 0.0)
        if not all_heads:
            scores[np.array(shown.heads) != first.head] = 0.0
        head, query = divmod(int(scores.argmax()), scores.shape[1])
        if scores[head, query] > (best[0] if best else 0.0):
            best = float(scores[head, query]), layer, head, query
    if best is None:
        return None
    score, layer, head, query = best
    values = np.asarray(seen.layer(layer)[head, query], dtype=np.float64)
    row = np.where(apart[query], 0.0, np.nan_to_num(values))
    keys = [int(key) for key in np.argsort(-row, kind="stable") if row[key] >= _NAMED]
    reader = quoted(seen.query_labels[query : query + 1], seen.query_labels)
    words = [f"{quoted(seen.key_labels[key : key + 1], seen.key_labels)} ({row[key]:.2f})" for key in keys]
    return first._replace(
        layer=layer,
        head=shown.heads[head],
        query=query,
        pair=(query, keys[0]),
        words=f"attends to few {first.unit}s",
        sentence=f"{reader} attends to {', '.join(words[:-1])} and {words[-1]}.",
        value=score,
        note="",
    )


def _of_last_row(weights: Float, rows: NDArray[np.intp], content: Bool) -> tuple[float, int, int, int]:
    """Return the score, head, query and key of the last row that attends to a content word most.

    Args:
        weights: [head, row, key].
        rows: The queries that were read [row], in order, up to the last.
        content: [key].
    """
    last = len(content) - 1
    candidates = content.copy()
    candidates[[0, last]] = False
    row = np.where(candidates, weights[:, -1], 0.0)
    keys = row.argmax(axis=-1)
    scores = row.max(axis=-1)
    for head, key in enumerate(keys):
        # Early rows have little choice but the first token.
        later, after = (np.flatnonzero((rows > query) & (rows < last)) for query in (last - key, key))
        at_distance = weights[head, later, rows[later] - (last - key)]
        to_word = weights[head, after, key]
        scores[head] -= max((others.mean() for others in (at_distance, to_word) if len(others)), default=0.0)
    head = int(scores.argmax())
    return float(scores[head]), head, last, int(keys[head])


def _of_all_rows(weights: Float, content: Bool, special: Bool) -> tuple[float, int, int, int]:
    """Return the score, head, query and key of the rows that attend to content words most.

    Args:
        weights: [head, query, key].
        content: [key].
        special: [key].
    """
    near = np.abs(np.subtract.outer(np.arange(len(special)), np.arange(len(special)))) < _NEAR
    shown = np.where(content & ~near & ~special[:, None], weights, 0.0)
    scores = shown.max(axis=-1)[:, ~special].mean(axis=-1)
    head = int(scores.argmax())
    key = int(shown[head].sum(axis=0).argmax())
    return float(scores[head]), head, int(shown[head, :, key].argmax()), key


def _sentence(
    matrix: Float,
    labels: Sequence[str],
    special: Bool,
    query: int,
    key: int,
    unit: str,
    *,
    is_next: bool,
) -> str:
    """Return a sentence about a head's map [query, key], by the pair of elements that it opens on.

    With `is_next`, the last row is that of `query`, and some of the rows before may be left out.
    """
    reader, word = (quoted(labels[element : element + 1], labels) for element in (query, key))
    pair = f"{reader} attends to {word} ({matrix[-1 if is_next else query, key]:.2f})"
    if is_next:
        rest = matrix[1:-1, 0]
        is_resting = len(rest) > 0 and rest.mean() >= _MOSTLY
        return f"{pair}; the other {unit}s attend mostly to the first." if is_resting else f"{pair}."
    rows = np.flatnonzero(~special)
    most = int((matrix[rows].argmax(axis=-1) == key).sum())
    return f"{most} of {len(rows)} {unit}s attend most to {word}, {reader} with {matrix[query, key]:.2f}."


def _is_content(label: str) -> bool:
    """Return whether a label is a content word: of four letters, or of letters without case (漢字)."""
    letters = [sign for sign in label if sign.isalpha()]
    return len(letters) >= _LETTERS or any(sign.lower() == sign.upper() for sign in letters)


def _searched(shown: MixingMap, first: Opening) -> Opening:
    """Return the opening at the head with the strongest pattern; `first` with the reason if there is none."""
    unit, queries = first.unit, _sampled(shown, first.unit)
    if queries is not None and queries < _FEWEST:
        return first._replace(note="the first head: this text is too long to search all heads")
    if shown.on_demand and set(shown.computed_layers) != set(shown.layers):
        return first._replace(note="the first head: not all layers are computed yet")
    from attnwidgets.statistics.patterns import PATTERNS, patterns_of

    among = [pattern for pattern in PATTERNS if pattern.outside]
    try:
        strongest = patterns_of(shown, unit, among, queries).strongest()
    except ValueError:  # negative values, which only reading reveals
        strongest = None
    if strongest is None:
        return first._replace(note="the first head: no pattern applies to this text")
    pattern, (at, number, value) = strongest
    is_long = len(shown.query) * len(shown.key) > LAYER_VALUES  # no such matrix is read whole
    pair = None if is_long else _strongest_pair(shown.select(layer=at, head=number).to(unit), at)
    words = pattern.words.replace("token", unit)
    mixers = mixers_of(shown).get(at)
    name = "layer" if mixers is not None and number is not None and mixers.is_headless(number) else "head"
    sentence = f"This {name} {words}: {value:.2f} of a row on average."
    note = _note_of(queries, len(shown.to(unit).query_unit))
    return first._replace(
        layer=at, head=number, pair=pair, words=words, sentence=sentence, value=value, note=note
    )


def _note_of(read: int | None, queries: int) -> str:
    """Return from how many queries a head was chosen; "" from all."""
    return "" if read is None else f"chosen from {read} of {queries:,} queries"


def _sampled(shown: MixingMap, unit: str) -> int | None:
    """Return how many queries are read, evenly spaced, if all would be too many; None: all."""
    of_row = len(shown.layers) * len(shown.heads or ()) * len(shown.key)
    if of_row * len(shown.query) <= MOST_WEIGHTS:
        return None
    if not shown.knows_rows and unit != shown.unit:
        return 0  # a whole layer would be summed by words
    tokens = min(_SAMPLED, SAMPLED_WEIGHTS // max(1, of_row))
    special = shown.to(unit).query_unit.special
    # A word takes the rows of all its pieces.
    return min(tokens * len(special) // len(shown.query), len(special) - sum(special))


def last_content(labels: Sequence[str], special: Sequence[int | bool]) -> int:
    """Return the index of the last element with a letter or digit that is not special.

    Without letters and digits, as among patches or signs, it is the last that is not special; of special
    elements alone the last, and -1 of none. A name in brackets ("[SIL]") is not a word.
    """
    content = [index for index, flag in enumerate(special) if not flag]
    worded = [
        index
        for index in content
        if any(sign.isalnum() for sign in labels[index])
        and not (labels[index].startswith("[") and labels[index].endswith("]"))
    ]
    return max(worded, default=max(content, default=len(labels) - 1))


def _strongest_pair(shown: MixingMap, layer: int) -> tuple[int, int] | None:
    """Return the pair of different content elements with the largest weight; of equal pairs the first."""
    values = np.nan_to_num(np.array(shown.layer(layer)[0], dtype=np.float64))
    values[np.array(shown.query_unit.special, dtype=bool)] = -1.0
    values[:, np.array(shown.key_unit.special, dtype=bool)] = -1.0
    if shown.query == shown.key:
        np.fill_diagonal(values, -1.0)
        if shown.causal:
            values[np.triu_indices(len(values), 1)] = -1.0
    query, key = np.unravel_index(int(values.argmax()), values.shape)
    return (int(query), int(key)) if values[query, key] >= 0 else None


class FocusedHead(NamedTuple):
    """A head, by the numbers of its layer and itself, and the score that chose it, 0 to 1."""

    layer: int
    head: int
    score: float


def grid_unit(shown: MixingMap) -> Unit | None:
    """Return the unit in which a map is between the patches of a picture; None if it is of something else.

    All its other elements are special: a text with a picture in it opens as a text does.
    """
    if shown.query != shown.key:
        return None
    units = [unit for unit in shown.key.units.values() if unit.grid is not None and unit.cells is not None]
    return next(
        (
            unit
            for unit in units
            if all(
                (cell is None) == bool(flag)
                for cell, flag in zip(unit.cells or (), unit.special, strict=True)
            )
        ),
        None,
    )


def first_query(unit: Unit) -> int:
    """Return the first token that is neither a patch nor padding, else the patch in the middle."""
    apart = (position for position, special in enumerate(unit.special) if special)
    first = next((position for position in apart if unit.labels[position] != PADDING), None)
    if first is not None:
        return first
    rows, columns = unit.grid or (1, 1)
    return list(unit.cells or ()).index(rows // 2 * columns + columns // 2)


def focused_head(shown: MixingMap, unit: Unit, query: int) -> FocusedHead | None:
    """Return the head in which an element reads few patches that lie together; None with too few patches.

    The score of a head is the product of the share that patches get, of how far the entropy of their map is
    below its largest, and of the correlation of neighbouring patches (Moran's I, not below zero).
    """
    rows, columns = unit.grid or (0, 0)
    if rows * columns < _LEAST or min(rows, columns) < 2:  # noqa: PLR2004 - neighbours on both axes
        return None
    cells = {cell: element for element, cell in enumerate(unit.cells or ()) if cell is not None}
    order = [cells[cell] for cell in range(rows * columns)]
    best: FocusedHead | None = None
    for layer in shown.layers:
        weights = np.asarray(shown.rows(layer, None, [query]), dtype=np.float64)[:, 0, order]
        for head, score in enumerate(_scores(np.nan_to_num(weights).reshape(-1, rows, columns))):
            if score > 0 and (best is None or score > best.score):
                best = FocusedHead(layer, (shown.heads or (0,))[head], float(score))
    return best


def _scores(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score of maps [head, row, column]."""
    mass = maps.sum(axis=(1, 2))
    shares = maps / np.where(mass > 0, mass, 1.0)[:, None, None]
    logs = np.log(np.where(shares > 0, shares, 1.0))
    entropy = -(shares * logs).sum(axis=(1, 2)) / np.log(maps[0].size)
    off = shares - shares.mean(axis=(1, 2), keepdims=True)
    variance = (off**2).sum(axis=(1, 2))
    near = (off[:, 1:] * off[:, :-1]).sum(axis=(1, 2)) + (off[:, :, 1:] * off[:, :, :-1]).sum(axis=(1, 2))
    together = np.clip(near / 2 / np.where(variance > 0, variance, 1.0), 0.0, 1.0)
    scores: NDArray[np.float64] = mass * (1 - entropy) * together
    return scores
