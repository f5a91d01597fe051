"""Questions about several inputs in shared batches: what is left of them, of like length side by side."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.removals.removal import (
    KINDS,
    Answers,
    id_of,
    inputs_without,
    read_answers,
    readable,
    reads_at,
    removing,
    require_operator,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Bools = NDArray[np.bool_]

_SIMPLE = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_EMBEDDED = ("zero", "mean")


@dataclass(frozen=True)
class Question:
    """What is removed from one input.

    Attributes:
        trace: The input.
        operator: How it is removed.
        target: What is read.
        unit: The elements.
        stack: Whose they are.
        removed: [variant, element].
    """

    trace: Trace
    operator: Operator
    target: Target
    unit: Unit
    stack: str
    removed: Bools


@dataclass
class _Packed:
    """The variants of one question that differ, as rows of ids."""

    question: Question
    where: NDArray[np.intp]
    gone: Bools
    chosen: NDArray[np.intp]
    inputs: dict[str, Tensor]
    lengths: NDArray[np.intp]


def answer_all(questions: Sequence[Question], batch_size: int) -> list[Answers]:
    """Return the answers to questions about one model's inputs; the same as `removing` has for each.

    Questions about ids share batches; those about embeddings, and inputs that are more than the ids of one
    text, are asked one by one.

    Raises:
        ValueError: For an operator that is not possible.
    """
    found: dict[int, Answers] = {}
    packed: dict[int, _Packed] = {}
    for number, one in enumerate(questions):
        if _shares(one):
            require_operator(one.trace, one.operator, one.target, one.stack)
            packed[number] = pack(one)
            continue
        with removing(
            one.trace, one.operator, one.target, unit=one.unit, stack=one.stack, batch_size=batch_size,
            watched=False,
        ) as ask:  # fmt: skip
            found[number] = ask(one.removed)
    if packed:
        found |= _answer(packed, batch_size)
    return [found[number] for number in range(len(questions))]


def _shares(one: Question) -> bool:
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.recorder import forward_parameters

    return (
        one.trace.model is not None
        and one.operator not in _EMBEDDED
        and one.target.index is not None
        and set(one.trace.inputs) <= _SIMPLE
        and "input_ids" in one.trace.inputs
        and "attention_mask" in forward_parameters(unwrap(one.trace.model))
    )


def pack(one: Question) -> _Packed:
    """Return the variants of a question as rows of ids."""
    import torch

    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.recorder import forward_parameters

    distinct, where = np.unique(np.asarray(one.removed, dtype=bool), axis=0, return_inverse=True)
    gone = (distinct @ one.unit.membership(len(one.trace.axes(one.stack)[0]))) > 0
    chosen = np.flatnonzero(readable(one.trace, one.operator, one.target, one.stack, gone))
    takes = forward_parameters(unwrap(one.trace.model))
    inputs = (
        dict(inputs_without(one.trace, one.operator, one.stack, gone[chosen], takes)) if len(chosen) else {}
    )
    if inputs:
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    kept = (~gone[chosen]).sum(axis=1) if one.operator == "delete" else np.full(len(chosen), gone.shape[1])
    return _Packed(one, where.reshape(-1), gone, chosen, inputs, kept)


def _answer(packed: dict[int, _Packed], batch_size: int) -> dict[int, Answers]:
    """Run all rows, the shortest first, and read each question's own."""
    import torch

    from attnwidgets.tracing.interventions import require_same_interventions
    from attnwidgets.tracing.pass_memory import room_for_pass, together
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap
    from attnwidgets.tracing.recording.recorder import forward_parameters

    first = next(iter(packed.values())).question.trace
    model = unwrap(first.model)
    for one in packed.values():
        require_same_interventions(one.question.trace, "removal")
    options: dict[str, Any] = {"return_dict": True}
    if "use_cache" in forward_parameters(model):
        options["use_cache"] = False
    rows = [
        (int(length), number, row) for number, one in packed.items() for row, length in enumerate(one.lengths)
    ]
    rows.sort()
    numbers = {number: np.full((KINDS, len(one.gone)), np.nan) for number, one in packed.items()}
    fill = {"input_ids": id_of(first, "pad") or 0}
    longest = max(packed.values(), key=lambda one: one.gone.shape[1]).question.trace
    batch_size = together(model, longest, batch_size, graph=False)
    with borrowed(model) as twin, room_for_pass(model, longest, "removal"):
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            width = part[-1][0]
            names = {name for _, number, _ in part for name in packed[number].inputs}
            inputs = {
                name: torch.stack(
                    [
                        _row(packed[number].inputs[name][row], width, fill.get(name, 0))
                        for _, number, row in part
                    ]
                )
                for name in sorted(names)
            }
            logits = twin(**inputs, **options).logits
            for number in dict.fromkeys(number for _, number, _ in part):
                own = [at for at, (_, other, _) in enumerate(part) if other == number]
                one = packed[number]
                chosen = one.chosen[[part[at][2] for at in own]]
                answers = read_answers(
                    SimpleNamespace(logits=logits[own]), one.question.target, _read_at(one, chosen)
                )
                numbers[number][:, chosen] = answers.table()
    return {number: Answers.of(numbers[number]).part(one.where) for number, one in packed.items()}


def _row(values: Tensor, width: int, fill: int) -> Tensor:
    """Return a row of ids cut or padded to a width."""
    import torch

    if len(values) >= width:
        return values[:width]
    return torch.nn.functional.pad(values, (0, width - len(values)), value=fill)


def _read_at(one: _Packed, chosen: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Return the row of the logits that a target is read at, for every variant."""
    position = one.question.target.position
    if position is None:
        return None
    moves = one.question.operator == "delete" and reads_at(one.question.trace) == one.question.stack
    if moves:
        return (~one.gone[chosen, : position + 1]).sum(axis=1) - 1
    return np.full(len(chosen), position)
