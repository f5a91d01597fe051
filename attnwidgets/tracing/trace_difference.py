"""The difference between two traces, of the same text or of two: in predictions and in attention.

Queries and keys of the two traces are aligned (`text/alignment.py`). Attention is compared in columns of the
alignment, as means over the queries of a column and sums over its keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnwidgets._selecting import spoken_range
from attnwidgets._tables import Table
from attnwidgets.tracing.anatomy.answer import ANSWER_SPAN
from attnwidgets.tracing.predictions import label_of, predicted_logits, predicted_values
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.row_selection import blocks
from attnwidgets.tracing.text.alignment import align

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.text.alignment import Alignment, By
    from attnwidgets.tracing.trace import Trace


SHOWN = 100
"""Number of outputs that a difference names, of the most probable ones and of those that moved most."""
SAID = 5
"""Number of changes of the text that its first line names."""
_WIDTH = 100  # characters of a line of its repr


class Moved(NamedTuple):
    """One possible output before and after.

    Attributes:
        label: The token or class.
        before: Its probability, 0 to 1; of a regression its number.
        after: The same in the other trace.
        id: Its number among tokens or classes.
    """

    label: str
    before: float
    after: float
    id: int


@dataclass(frozen=True, repr=False)
class Difference(Table):
    """The result of `trace.diff(other)`. For equal traces every number is 0.

    Attributes:
        title: What the model predicts: "class", "next token", ..., or "".
        predictions: The most probable outputs of both and those that moved most, by how far they moved.
        total_variation: Half the sum of |p - p'| over all outputs at the predicted position, 0 to 1; NaN
            without probabilities.
        largest_logit_change: The largest |difference| of any logit; NaN without logits. Of two texts, of the
            logits at the predicted positions.
        attention: How far attention rows moved, by stack [layer, head]: half the sum of |a - a'| over a
            row's keys, averaged over queries, 0 to 1. Of two texts, over the queries that both have; a key
            of a single text counts whole. Stacks of other sizes are left out.
        unpaired: The part of `attention` on keys of a single text [layer, head].
        alignments: By stack, how the queries and the keys of the two texts are aligned.
        interventions: Descriptions of the interventions in force in a single trace.
        warning: The parts that could not be compared, and why; "" without any.
    """

    title: str
    predictions: tuple[Moved, ...]
    total_variation: float
    largest_logit_change: float
    attention: dict[str, NDArray[np.float64]]
    unpaired: dict[str, NDArray[np.float64]]
    alignments: dict[str, tuple[Alignment, Alignment]]
    interventions: tuple[str, ...]
    warning: str = ""

    @property
    def alignment(self) -> Alignment:
        """How the tokens of the two traces are aligned: the queries of their first stack in common."""
        return next(iter(self.alignments.values()))[0]

    def _columns(self) -> Iterator[Columns]:
        """Yield label, before, after, id of outputs, those that moved most first."""
        yield {name: [getattr(output, name) for output in self.predictions] for name in Moved._fields}

    @property
    def flipped(self) -> bool:
        """Whether the most probable output differs; False for a regression, whose numbers do not compete."""
        if np.isnan(self.total_variation):
            return False
        before = max(self.predictions, key=lambda output: output.before)
        after = max(self.predictions, key=lambda output: output.after)
        return before.id != after.id

    def __repr__(self) -> str:
        changes = [
            f"{item or 'nothing'!r} for {two or 'nothing'!r}" for item, two in self.alignment.changes()
        ]
        more = ["..."] if len(changes) > SAID else []
        texts = ", ".join([*changes[:SAID], *more])
        head = "; ".join([*self.interventions, *([texts] if texts else [])]) or "the same interventions"
        form = ".4g" if np.isnan(self.total_variation) else ".1%"
        rows = [f"  {out.label!r}: {out.before:{form}} to {out.after:{form}}" for out in self.predictions[:5]]
        for stack, moved in self.attention.items():
            shares = " ".join(f"{share:.3f}" for share in np.nanmean(moved, axis=1))
            line = f"{stack} attention, share of a row that moved, by layer: {shares}"
            rows.append(fill(line, _WIDTH, initial_indent="  ", subsequent_indent="    "))
        warnings = [f"  {self.warning}"] if self.warning else []
        return "\n".join([f"{self.title or 'no prediction'} ({head}):", *rows, *warnings])


def difference(first: Trace, other: Trace) -> Difference:
    """Return the difference between two traces.

    Raises:
        ValueError: If they have no stack in common.
    """
    common = [stack for stack in first.stacks if stack in other.stacks]
    if not common:
        raise ValueError(
            f"other has the stacks {', '.join(other.stacks)}, this trace {', '.join(first.stacks)}: there is "
            "nothing to compare."
        )
    by = aligned_by(first, other)
    alignments = {stack: _alignments(first, other, stack, by) for stack in common}
    alike = [stack for stack in common if _heads(first, stack) == _heads(other, stack)]
    shares = {stack: _attention(first, other, stack, alignments[stack]) for stack in alike}
    missing = [
        f"attention of the stack {stack!r}: {_heads(first, stack)} and {_heads(other, stack)}"
        for stack in common
        if stack not in alike
    ]
    moved: tuple[Moved, ...] = ()
    variation = largest = float("nan")
    if predict(first) and predict(other):
        reason = why_other_outputs(first, other)
        if reason:
            missing.append(f"predictions: {reason}")
        else:
            is_one_text = not any(part.differing for both in alignments.values() for part in both)
            moved, variation, largest = _outputs(first, other, everywhere=is_one_text)
    elif first.answer.title == ANSWER_SPAN:
        missing.append("predictions: answers are parts of the text; see .predictions() of both")
    in_force = set(first.interventions) ^ set(other.interventions)
    return Difference(
        first.predictions_title,
        moved,
        variation,
        largest,
        {stack: both[0] for stack, both in shares.items()},
        {stack: both[1] for stack, both in shares.items()},
        alignments,
        tuple(
            description
            for description in (*first.interventions, *other.interventions)
            if description in in_force
        ),
        f"not compared: {'; '.join(missing)}" if missing else "",
    )


def aligned_by(first: Trace, other: Trace) -> By:
    """Return how the tokens of two traces are aligned: by character if their tokenizers differ."""
    first_reader, second_reader = (text_tokenizer(trace.tokenizer) for trace in (first, other))
    if first_reader is second_reader or first_reader is None or second_reader is None:
        return "element"
    return "element" if first_reader.get_vocab() == second_reader.get_vocab() else "character"


def predict(trace: Trace) -> bool:
    """Return whether a trace predicts tokens, classes or numbers, and has the logits that they come from."""
    return trace.answer.predicts and trace.logits is not None


def why_other_outputs(first: Trace, other: Trace) -> str:
    """Return why the outputs of two traces that predict cannot be compared; "" if they can."""
    if first.logits is None or other.logits is None:
        return "one of them has no logits"
    sizes = [trace.logits.shape for trace in (first, other) if trace.logits is not None]
    kinds = ["classes" if len(size) == 1 else "tokens" for size in sizes]
    counts = [size[-1] for size in sizes]
    if kinds[0] != kinds[1] or counts[0] != counts[1]:
        return f"{counts[0]} {kinds[0]} and {counts[1]} {kinds[1]}"
    if kinds[0] == "tokens":
        return "" if aligned_by(first, other) == "element" else "the tokens of two tokenizers"
    if first.answer.is_numbers != other.answer.is_numbers:
        return "probabilities and numbers"
    names = [[label_of(trace, number) for number in range(counts[0])] for trace in (first, other)]
    return "" if names[0] == names[1] else "classes with other names"


def _alignments(first: Trace, other: Trace, stack: str, by: By) -> tuple[Alignment, Alignment]:
    """Return the alignments of the queries and of the keys of a stack, which may be the same."""
    (query, key), (other_query, other_key) = first.axes(stack), other.axes(stack)
    queries = align(query, other_query, by=by)
    is_one = query is key and other_query is other_key
    return queries, queries if is_one else align(key, other_key, by=by)


def _heads(trace: Trace, stack: str) -> str:
    return f"{trace.n_heads(stack)} heads in layers {spoken_range(trace.layers(stack))}"


def _outputs(first: Trace, other: Trace, *, everywhere: bool) -> tuple[tuple[Moved, ...], float, float]:
    """Return the outputs by how far they moved, half the sum of that, and the largest change of a logit.

    Numbers of a regression have no total variation: NaN.

    Args:
        first: A trace that predicts.
        other: Another trace, with the same outputs.
        everywhere: Whether logits of all positions are compared, not only where the models predict.
    """
    logits = [trace.logits for trace in (first, other) if trace.logits is not None]
    before, after = (
        predicted_values(trace, trace_logits).numpy()
        for trace, trace_logits in zip((first, other), logits, strict=True)
    )
    gap = np.abs(after - before)
    if not everywhere or logits[0].shape != logits[1].shape:
        logits = [
            predicted_logits(trace, trace_logits)
            for trace, trace_logits in zip((first, other), logits, strict=True)
        ]
    largest = float((logits[0].double() - logits[1].double()).abs().max())
    labels = {output.id: output.name for trace in (first, other) for output in trace.predictions(SHOWN)}
    for number in np.argsort(-gap, kind="stable")[:SHOWN].tolist():
        labels.setdefault(number, label_of(first, number))
    moved = [
        Moved(label, float(before[number]), float(after[number]), number) for number, label in labels.items()
    ]
    # Of two classes both move as far, up to rounding, which is not to decide which of them comes first.
    moved.sort(key=lambda output: (-round(abs(output.after - output.before), 6), output.id))
    variation = float("nan") if first.answer.is_numbers else float(gap.sum() / 2)
    return tuple(moved), variation, largest


def _attention(
    first: Trace, other: Trace, stack: str, alignments: tuple[Alignment, Alignment]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far rows moved [layer, head], and how far on keys of a single text.

    Both are NaN for heads that a layer does not have, and where the texts have no query in common.
    """
    queries, keys = alignments
    paired = [(column.first, column.second) for column in queries.columns if column.first and column.second]
    alone = np.array([not column.first or not column.second for column in keys.columns], dtype=bool)
    shares = np.full((2, first.n_layers(stack), first.n_heads(stack)), np.nan)
    for index, layer in enumerate(first.layers(stack) if paired else ()):
        row_bytes = 8 * first.n_heads(stack, layer) * len(keys)
        moved = []
        for some in blocks(len(paired), row_bytes):
            before, after = (
                _by_column(trace, layer, stack, [row[side] for row in paired[some]], keys.groups(side))
                for side, trace in enumerate((first, other))
            )
            gap = np.abs(before - after)
            moved.append(np.stack([gap.sum(-1), gap[..., alone].sum(-1)]))
        means = np.concatenate(moved, axis=-1).mean(-1) / 2
        shares[:, index, : means.shape[1]] = means
    return shares[0], shares[1]


def _by_column(
    trace: Trace, layer: int, stack: str, queries: Sequence[tuple[int, ...]], keys: Sequence[tuple[int, ...]]
) -> NDArray[np.float64]:
    """Return weights [head, column of queries, column of keys]: means over queries, sums over keys.

    Args:
        trace: The trace of either text.
        layer: Number of the layer.
        stack: Name of the stack.
        queries: The queries in each of some columns.
        keys: The keys in every column.
    """
    chosen = [query for column in queries for query in column]
    values = np.asarray(trace.attention_rows(layer, None, chosen, stack), dtype=np.float64)
    # The columns' groups follow each other, so that those of the keys are all keys in order.
    sizes, counts = (np.array([len(group) for group in groups]) for groups in (keys, queries))
    if (sizes != 1).any():
        summed = np.zeros((*values.shape[:-1], len(keys)))
        summed[..., sizes > 0] = np.add.reduceat(values, (sizes.cumsum() - sizes)[sizes > 0], axis=-1)
        values = summed
    if (counts != 1).any():
        values = np.add.reduceat(values, counts.cumsum() - counts, axis=-2) / counts[:, None]
    return values
