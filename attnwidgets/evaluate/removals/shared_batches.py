"""Removals from several inputs in shared batches, with variants of similar length side by side."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.evaluate.removals.removal import (
    EMBEDDED,
    KINDS,
    Answers,
    call_options,
    id_of,
    read_answers,
    require_operator,
)
from attnwidgets.explanations.targets.resolve import head_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from attnwidgets.evaluate.arrays import Bools, Indices
    from attnwidgets.evaluate.removals.removal import ElementRemoval

_SIMPLE = frozenset({"input_ids", "attention_mask", "token_type_ids"})


@dataclass(frozen=True)
class PackedVariants:
    """The distinct variants of an input, as rows of ids.

    Attributes:
        removal: The removal.
        variants: Index of the distinct variant of each variant [variant].
        gone: Tokens removed [distinct variant, token].
        chosen: Distinct variants that can be read [row].
        inputs: The model's inputs [row, ...].
        lengths: Tokens left in every row [row].
    """

    removal: ElementRemoval
    variants: Indices
    gone: Bools
    chosen: Indices
    inputs: Mapping[str, Tensor]
    lengths: Indices


def answer_all(questions: Sequence[tuple[ElementRemoval, Bools]], batch_size: int) -> list[Answers]:
    """Return the answers to removals from inputs of a model; see `ElementRemoval.answering`.

    Removals of ids share batches. Removals on embeddings, and inputs other than the ids of a single text, run
    separately.

    Args:
        questions: Removals, with masks of the elements that they remove [variant, element].
        batch_size: Rows per forward pass.

    Raises:
        ValueError: If an operator is impossible.
    """
    answers: dict[int, Answers] = {}
    packed: dict[int, PackedVariants] = {}
    for number, (removal, removed) in enumerate(questions):
        if _shares(removal):
            require_operator(removal.trace, removal.operator, removal.target, removal.stack)
            packed[number] = pack(removal, removed)
        else:
            with removal.answering(batch_size=batch_size, watched=False) as ask:
                answers[number] = ask(removed)
    if packed:
        answers |= _answer(packed, batch_size)
    return [answers[number] for number in range(len(questions))]


def _shares(removal: ElementRemoval) -> bool:
    """Return whether variants of an input can share batches with those of others."""
    from attnwidgets.tracing.anatomy.forward import forward_parameters
    from attnwidgets.tracing.recording.borrow import lacks_padding, unwrap

    trace = removal.trace
    return (
        trace.model is not None
        and removal.operator not in EMBEDDED
        and removal.target.index is not None
        and {"input_ids"} <= set(trace.inputs) <= _SIMPLE
        and "attention_mask" in forward_parameters(unwrap(trace.model))
        and not lacks_padding(unwrap(trace.model))
    )


def pack(removal: ElementRemoval, removed: Bools) -> PackedVariants:
    """Return the variants of an input [variant, element] as rows of ids."""
    import torch

    gone, variants = removal.distinct(removed)
    chosen = np.flatnonzero(removal.readable(gone))
    inputs = dict(removal.inputs(gone[chosen])) if len(chosen) else {}
    if inputs:
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    whole = np.full(len(chosen), gone.shape[1])
    lengths = (~gone[chosen]).sum(axis=1) if removal.operator == "delete" else whole
    return PackedVariants(removal, variants, gone, chosen, inputs, lengths)


def _answer(packed: Mapping[int, PackedVariants], batch_size: int) -> dict[int, Answers]:
    """Run all rows, the shortest first, and return the answers of each input."""
    import torch

    from attnwidgets.tracing.pass_memory import room_for_pass, together
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap
    from attnwidgets.tracing.rerun_trace import require_same_model

    first = next(iter(packed.values())).removal.trace
    model = unwrap(first.model)
    for pack in packed.values():
        require_same_model(pack.removal.trace, "removal")
    rows = sorted(
        (int(length), number, row)
        for number, pack in packed.items()
        for row, length in enumerate(pack.lengths)
    )
    tables = {number: np.full((KINDS, len(pack.gone)), np.nan) for number, pack in packed.items()}
    fill = {"input_ids": id_of(first, "pad") or 0}
    longest = max(packed.values(), key=lambda pack: pack.gone.shape[1]).removal.trace
    batch_size = together(model, longest, batch_size, graph=False)
    with borrowed(model) as twin, room_for_pass(model, longest, "removal"):
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            width = batch[-1][0]
            names = sorted({name for _, number, _ in batch for name in packed[number].inputs})
            inputs = {
                name: torch.stack(
                    [
                        _row(packed[number].inputs[name][row], width, fill.get(name, 0))
                        for _, number, row in batch
                    ]
                )
                for name in names
            }
            logits = head_of(twin(**inputs, **call_options(model)))
            for number in dict.fromkeys(number for _, number, _ in batch):
                pack = packed[number]
                batch_rows = [index for index, (_, other, _) in enumerate(batch) if other == number]
                chosen = pack.chosen[[batch[index][2] for index in batch_rows]]
                outputs = SimpleNamespace(logits=logits[batch_rows])
                answers = read_answers(
                    outputs, pack.removal.target, pack.removal.rows_read(pack.gone[chosen])
                )
                tables[number][:, chosen] = answers.table()
    return {number: Answers.of(tables[number]).part(pack.variants) for number, pack in packed.items()}


def _row(values: Tensor, width: int, fill: int) -> Tensor:
    """Return a row of ids cut or padded to a width."""
    import torch

    return torch.nn.functional.pad(values[:width], (0, max(0, width - len(values))), value=fill)
