"""An explanation in one or two sentences: its strongest elements are searched for and put into a template.

Feldhus et al. 2023, Saliency Map Verbalization (template and search). Everything in the sentences is computed
from the values: which elements, their share of everything that speaks for the target, rounded as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.block_mixers import head_words, mixers_of
from attnwidgets.explanations.results.description import READING, axis_words
from attnwidgets.tracing.text.display import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.description import AxisWords
    from attnwidgets.explanations.results.mixing_map import MixingMap

    Float = NDArray[np.float64]

SPANS = 3
"""Most spans that a sentence names."""
ENOUGH = 0.5
"""Share that they should reach together."""
SINK_NAME = "no token (sink)"
"""Name of the part of a row that no key receives."""
_LONGEST = 48  # characters of a quotation
_FEWEST = 2  # words, of which the strongest can be named


@dataclass(frozen=True)
class Span:
    """Consecutive elements and their share.

    Attributes:
        first: Number of the first element.
        stop: The number after the last.
        share: Their share of the sum, 0 to 1.
    """

    first: int
    stop: int
    share: float


def spans_of(values: Float, *, most: int = SPANS, enough: float = ENOUGH) -> tuple[Span, ...]:
    """Return the fewest highest elements that reach a share of the sum, as spans, greatest first.

    If that takes more than `most` spans, they reach less.

    Args:
        values: [element]; values below zero count as zero.
        most: Largest number of spans.
        enough: Share of the sum to reach.
    """
    positive = np.maximum(values, 0)
    total = positive.sum()
    if not total > 0:
        return ()
    chosen = np.zeros(len(positive), dtype=bool)
    for element in np.argsort(-positive, kind="stable"):
        if not positive[element] > 0 or positive[chosen].sum() >= enough * total:
            break
        chosen[element] = True
        if len(runs(chosen)) > most:
            chosen[element] = False
            break
    spans = [Span(first, stop, float(positive[first:stop].sum() / total)) for first, stop in runs(chosen)]
    return tuple(sorted(spans, key=lambda span: -span.share))


def in_words(explanation: Any) -> str:
    """Return an explanation in one or two sentences.

    Args:
        explanation: Attributions, or a MixingMap of a single layer and head (or their mean).

    Raises:
        TypeError: For tables of scores or statistics.
    """
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.mixing_map import MixingMap

    if isinstance(explanation, Attributions):
        return _attributions(explanation)
    if isinstance(explanation, MixingMap):
        return _map(explanation)
    raise TypeError(
        f"a {type(explanation).__name__} cannot be described in words; Attributions and MixingMaps can."
    )


def _attributions(shown: Attributions) -> str:
    if len(shown.shape) > 1:
        parts = [_attributions(shown.select(number)) for number in range(min(SPANS, shown.shape[0]))]
        more = shown.shape[0] - len(parts)
        return " ".join([*parts, *([f"And {more} more target{'s' * (more > 1)}."] if more else [])])
    target, unit = shown.targets[0].strip(), shown.unit.replace("_", " ")
    return row_words(_name(shown), shown.values, shown.labels, target=target, foil=shown.foil, unit=unit)


def row_words(
    name: str,
    row: NDArray[np.floating],
    labels: Sequence[str],
    *,
    target: str = "",
    foil: str | None = None,
    unit: str = "token",
) -> str:
    """Return a row of attributions in words; its twin is in `js/src/views/base/verbalise.ts`.

    Args:
        name: Beginning of the sentences.
        row: [element]; NaN where no value is shown.
        labels: Labels of the elements.
        target: Label of the explained target.
        foil: Label of the alternative that the target is contrasted with.
        unit: Name of an element.
    """
    values = np.nan_to_num(np.asarray(row, dtype=np.float64))
    about = f" for {quoted([target], [target])}" if target else ""
    if foil:
        about += f" rather than {quoted([foil], [foil])}"
    n = len(values)
    if not values.any():
        return f"{name}: no {unit} has any part in it{about}."
    if n > 1 and (values == values[0]).all():
        return f"{name}: every {unit} has the same part{about}, so that none stands out."
    with_sign = bool((values < 0).any())
    speaks = "speaks most" if with_sign else "matters most"
    sentences = []
    spans = spans_of(values)
    if spans:
        of = f"of what speaks{about}" if with_sign else "of the whole"
        together = sum(span.share for span in spans)
        listing = _listing(spans, labels)
        first = f"{name}: {listing[0]} {speaks}{about} ({_percent(spans[0].share)} {of})"
        if len(spans) > 1:
            first += f", then {' and '.join(listing[1:])}; together {_percent(together)}"
        sentences.append(f"{first}.")
        if together < ENOUGH:
            rest = int((values > 0).sum()) - sum(span.stop - span.first for span in spans)
            sentences.append(f"The rest lies on {rest} other {unit}{'s' * (rest != 1)}.")
    against = spans_of(-values, most=1)
    if against:
        whole, weight = np.abs(values).sum(), np.maximum(-values, 0).sum()
        best = against[0]
        strongest = f"{quoted(labels[best.first : best.stop], labels)} ({_percent(best.share)} of that)"
        if spans:
            share = _percent(float(weight / whole))
            sentences.append(f"Against it speaks {share} of all weight, most of it {strongest}.")
        else:
            sentences.append(f"{name}: all{about} speaks against it, most of it {strongest}.")
    return " ".join(sentences)


def place_words(shown: Any, layer: int, head: int | str, base: int = 0) -> str:
    """Return "layer 3, head 2", both counted from `base`; in models of several mixers with its kind.

    Its twin is in `js/src/views/base/verbalise.ts`.

    Args:
        shown: The map.
        layer: Number of the layer.
        head: Number of the head, a reduction over heads, or "-" for a map without heads.
        base: The first number.
    """
    mixers = mixers_of(shown).get(layer)
    where = f"layer {layer + base}"
    if mixers is None:
        return ", ".join(filter(None, (where, head_words(head, base))))
    return f"{', '.join(filter(None, (where, mixers.words(head, base))))} ({mixers.kind(head)})"


def _map(shown: MixingMap) -> str:
    layers, heads, name = shown.layers, shown.heads, _name(shown)
    if len(layers) > 1 or (heads is not None and len(heads) > 1):
        count = f"{len(layers)} layer{'s' * (len(layers) > 1)}"
        if heads is not None:
            count += f" of {len(heads)} head{'s' * (len(heads) > 1)}"
        return f"{name}: {count}, {len(shown.query_labels)} by {len(shown.key_labels)} {shown.unit}s."
    matrix = np.array(shown.layer(layers[0]), dtype=np.float64).reshape(shown.shape[-2:])
    special = np.array(shown.query_unit.special, dtype=bool)
    rest = (1.0 - matrix.sum(axis=1)).clip(0.0, 1.0)
    matrix[special & ~special.all()] = np.nan  # as in a view, whose rows are of the text
    sink = float(rest[~special | special.all()].mean()) if shown.sink else None
    where = f" in {place_words(shown, layers[0], '-' if heads is None else heads[0])}"
    return matrix_words(
        f"{name}{where}",
        matrix,
        shown.query_labels,
        shown.key_labels,
        shares=shown.sink,
        sink=sink,
        words=axis_words(shown),
    )


def findings_of(shown: Attributions) -> list[str]:
    """Return for every target the words that speak for it most: "“good” speaks for “yes” (0.52 of 0.73)".

    These are the word with the largest value and up to two others with at least half of it; whole words where
    the text has them, without special tokens. The last number is the target's score, for methods that
    conserve it.
    """
    whole = shown.to("word") if "word" in shown.available_units() else shown
    if (
        len(whole.labels) - sum(whole.source_unit.special) < _FEWEST
    ):  # tokens of a single word, as letters are
        whole = shown
    unit = whole.axis.units[whole.unit]
    values = np.nan_to_num(np.atleast_2d(whole.values)) * ~np.array(unit.special, dtype=bool)
    scores: Any = np.full(len(values), np.nan)
    if whole.residual is not None:
        scores = np.atleast_2d(whole.values).sum(axis=-1) + np.asarray(whole.residual)
    findings = []
    for row, label, score in zip(values, whole.targets, scores, strict=True):
        target, _, row_foil = label.strip().partition(" − ")
        foil = row_foil or shown.foil
        about = f" for {quoted([target], [target])}" if target else ""
        about += f" rather than {quoted([foil], [foil])}" if foil else ""
        order = [int(index) for index in np.argsort(-row, kind="stable")[:SPANS]]
        most = [index for index in order if row[index] > 0 and row[index] >= ENOUGH * row[order[0]]]
        if not most:
            findings.append(f"No {whole.unit} speaks{about}." if row.any() else "")
            continue
        named = list(dict.fromkeys(quoted(unit.labels[index : index + 1], unit.labels) for index in most))
        is_one = len(named) == 1  # a word may occur several times
        words = _enumeration(named)
        numbers = _enumeration([_number(row[index]) for index in most])
        numbers += f" of {_number(score)}" if score > row[order[0]] else ""
        verb = ("matters most" if is_one else "matter most") if np.isnan(score) else f"speak{'s' * is_one}"
        findings.append(f"{words} {verb}{about} ({numbers}).")
    return findings


def _enumeration(words: Sequence[str]) -> str:
    """Return "a", "a and b" or "a, b and c"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _number(value: float) -> str:
    """Return a value with two decimals, or with three digits from 10 on."""
    return (f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}").replace("-", "−")  # noqa: PLR2004


def matrix_words(
    begin: str,
    matrix: NDArray[np.floating],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    shares: bool = False,
    sink: float | None = None,
    words: AxisWords = READING,
) -> str:
    """Return a matrix in words: the key that is read most, and the three strongest relations to other keys.

    Its twin is in `js/src/views/base/verbalise.ts`.

    Args:
        begin: Beginning of the sentences.
        matrix: [query, key]; NaN where no value is shown.
        queries: Names of the rows.
        keys: Names of the columns.
        shares: Whether values are shares of a row already (of which some may be left out); otherwise rows
            are divided by the sum of their magnitudes.
        sink: The share of a row that goes to no key, on average; None without a sink.
        words: Words for the relation of rows to columns.
    """
    sizes = np.nan_to_num(np.abs(np.asarray(matrix, dtype=np.float64)))
    totals = sizes.sum(axis=1, keepdims=True)
    rows = sizes if shares else np.divide(sizes, totals, out=np.zeros_like(sizes), where=totals > 0)
    if not rows.any():
        return f"{begin}: nothing is shown."
    received = rows.sum(axis=0) / (totals > 0).sum()
    top = int(received.argmax())
    share = _percent(float(received[top]))
    received_most = f"{words.back.rpartition(' ')[0]} most"  # "is read by" without its "by"
    sentences = [
        f"{begin}: {quoted(keys[top : top + 1], keys)} {received_most}, {share} of a row on average."
    ]
    others = rows.copy()
    others[:, top] = 0
    if len(queries) == len(keys):
        np.fill_diagonal(others, 0)
    order = np.argsort(-others, axis=None, kind="stable")[:SPANS]
    relations: list[str] = []
    for query, key in np.stack(np.unravel_index(order, others.shape), axis=-1):
        if not others[query, key] > 0:
            break
        reader, read = quoted(queries[query : query + 1], queries), quoted(keys[key : key + 1], keys)
        percent, relation = _percent(float(others[query, key])), f"{reader} {words.verb} {read}"
        relations.append(f"{relation} ({percent})" if relations else f"{relation} most, {percent} of its row")
    if relations:
        rest = f"; then {' and '.join(relations[1:])}" if relations[1:] else ""
        sentences.append(f"Apart from that, {relations[0]}{rest}.")
    if sink is not None:
        sentences.append(f"{_percent(sink)} of a row goes to {SINK_NAME} on average.")
    return " ".join(sentences)


def _name(explanation: Any) -> str:
    title = str(explanation.provenance.get("title") or explanation.method).replace("_", " ")
    return title[:1].upper() + title[1:]


def _listing(spans: Sequence[Span], labels: Sequence[str]) -> list[str]:
    """Return spans as text, all after the first with their share."""
    texts = [quoted(labels[span.first : span.stop], labels) for span in spans]
    return [
        f"{text} ({_percent(span.share)})" if number else text
        for number, (text, span) in enumerate(zip(texts, spans, strict=True))
    ]


def quoted(labels: Sequence[str], every: Sequence[str]) -> str:
    """Return consecutive labels as text in quotes."""
    text = joined(labels, every)
    return f"“{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}”"


def _percent(share: float) -> str:
    """Return a share in percent; a share above zero is never printed as 0%."""
    if 0 < share < 0.005:  # noqa: PLR2004 - half a percent
        return "less than 1%"
    return f"{share:.0%}"


def runs(chosen: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return runs of chosen elements as (first, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    return [(int(first), int(stop)) for first, stop in edges.reshape(-1, 2)]
