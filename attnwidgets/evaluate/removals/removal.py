"""Parts of an input taken away: one operator, named by the user, for every score that asks what a part does.

Tokens are worked on as the ids, embeddings or attention mask that the model is given, never as text that is
tokenized again, so that no other token changes with them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets.explanations.targets.resolve import tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Bools = NDArray[np.bool_]
    Float = NDArray[np.float64]
    Run = Callable[[Bools], Any]

Operator = Literal["delete", "mask", "pad", "zero", "mean", "attention_mask"]
OPERATORS: tuple[Operator, ...] = ("delete", "mask", "pad", "zero", "mean", "attention_mask")
"""delete: the token is left out and those after it move up. mask, pad: its id is that of the mask or padding
token. zero, mean: its embedding is zeros, or the mean over the vocabulary (its position stays).
attention_mask: the token stays where it is, and nothing attends to it.
Models that count positions past the padding (RoBERTa) or past what is masked (OPT) move up the tokens
after what "pad" or "attention_mask" removes."""

_EMBEDDED = ("zero", "mean")
_PURPOSE = "removal"


@dataclass(frozen=True)
class Answers:
    """What a model answers to an input with parts removed; NaN where nothing was left to read.

    Attributes:
        number: The target's number [variant]: a logit, or what else the target is.
        log_p: The logarithm of the target's probability [variant]; NaN where it is not one logit of several.
        right: Whether the target's logit is the highest of its row, the first of equal ones [variant]: 1
            or 0; NaN where the target is no logit of several.
        decided: The index of the highest logit of that row [variant]; NaN as for `right`.
        decided_log_p: The logarithm of its probability [variant]; NaN as for `right`.
    """

    number: Float
    log_p: Float
    right: Float
    decided: Float
    decided_log_p: Float

    @classmethod
    def of(cls, table: Float) -> Answers:
        """Return answers from a table of them [kind, variant], as `table` has it."""
        return cls(*table)

    def table(self) -> Float:
        """Return all kinds of answers [kind, variant]."""
        return np.stack(list(vars(self).values()))

    def part(self, rows: Any) -> Answers:
        """Return the answers to some of the variants."""
        return Answers.of(self.table()[:, rows])


KINDS = 5
"""How many numbers an answer has."""


def removable(trace: Trace, unit: Unit, stack: str, target: Target, *, special: bool) -> NDArray[np.intp]:
    """Return the elements of a unit that are ranked and removed, in order.

    Left out are special elements, unless `special`, and the token that the target is read at where the model
    does not go on from it (a [MASK]): without it there is no target.
    """
    kept = [
        number for number, span in enumerate(unit.spans) if span and (special or not unit.special[number])
    ]
    asked = target.position
    if asked is not None and trace.predictions_title != "next token" and reads_at(trace) == stack:
        kept = [number for number in kept if asked not in unit.spans[number]]
    return np.array(kept, dtype=np.intp)


def possible_operators(trace: Trace, stack: str) -> tuple[Operator, ...]:
    """Return the operators that a trace's model and tokenizer can do, in the order of `OPERATORS`."""
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.recorder import forward_parameters

    ids, mask = _names(trace, stack)
    has_ids = trace.inputs.get(ids) is not None and trace.inputs[ids].shape[1] == len(trace.axes(stack)[0])
    can = {
        "delete": has_ids,
        "mask": has_ids and id_of(trace, "mask") is not None,
        "pad": has_ids and id_of(trace, "pad") is not None,
        "attention_mask": has_ids and mask in forward_parameters(unwrap(trace.model)),
    }
    return tuple(name for name in OPERATORS if can.get(name, True))


@contextmanager
def removing(
    trace: Trace,
    operator: Operator,
    target: Target,
    *,
    unit: Unit,
    stack: str,
    batch_size: int = 32,
    watched: bool = True,
) -> Iterator[Callable[[Bools], Answers]]:
    """Borrow a trace's model and yield a function from removed elements [variant, element] to `Answers`.

    Variants that remove the same run once; the others run in batches of `batch_size`, or of as many as there
    is memory for. With "delete" a row of
    the logits that is read at a token (the next token's) is that of the last token before it that is left.
    `watched` shows progress over batches.

    Raises:
        ValueError: For an operator that is unknown or that this model or tokenizer cannot do; with "delete",
            where the target is a number read at places that move (a span, a token's embedding). Where there
            is no memory for a single input.
    """
    from attnwidgets.tracing.pass_memory import together
    from attnwidgets.tracing.recording.borrow import unwrap

    require_operator(trace, operator, target, stack)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
    batch_size = together(unwrap(trace.model), trace, batch_size, graph=False)
    membership = unit.membership(len(trace.axes(stack)[0]))
    with _runner(trace, operator, stack, target) as run:

        def answers(removed: Bools) -> Answers:
            distinct, where = np.unique(np.asarray(removed, dtype=bool), axis=0, return_inverse=True)
            gone = (distinct @ membership) > 0
            return _ask(trace, operator, target, stack, gone, run, batch_size, watched=watched).part(
                where.reshape(-1)
            )

        yield answers


def require_operator(trace: Trace, operator: str, target: Target, stack: str) -> None:
    """Raise ValueError where an operator cannot be used with a trace and a target."""
    if trace.model is None:
        raise ValueError(
            "trace holds no model, and removal runs it; make it with aw.trace(model, tokenizer, text)."
        )
    if operator not in OPERATORS:
        near = suggest(str(operator), OPERATORS)
        raise ValueError(f"operator {operator!r} is not one of {listed(OPERATORS)}.{near}")
    able = possible_operators(trace, stack)
    if operator not in able:
        raise ValueError(
            f"operator {operator!r} is not possible here ({_why(trace, operator, stack)}); possible are "
            f"{listed(able)}."
        )
    if operator == "delete" and _moves_what_is_read(target):
        raise ValueError(
            f"operator 'delete' moves the tokens that {target.label!r} is read at; take another one: "
            f"{listed([name for name in able if name != 'delete'])}."
        )


def refusals(trace: Trace, target: Target, stack: str) -> dict[Operator, str]:
    """Return why each operator cannot be used with a trace and a target, in words; "" where it can."""
    able = possible_operators(trace, stack)
    found: dict[Operator, str] = {
        name: "" if name in able else _why(trace, name, stack) for name in OPERATORS
    }
    if _moves_what_is_read(target):
        found["delete"] = found["delete"] or f"moves the tokens that {target.label!r} is read at"
    return found


def _moves_what_is_read(target: Target) -> bool:
    """Return whether deletion moves what a target is read at."""
    return target.index is None and target.title != "function"


def _why(trace: Trace, operator: str, stack: str) -> str:
    ids = trace.inputs.get(_names(trace, stack)[0])
    if ids is None or ids.shape[1] != len(trace.axes(stack)[0]):
        return f"stack {stack!r} is not made of token ids"
    if operator in ("mask", "pad"):
        return f"the tokenizer has no {operator} token"
    return f"{type(trace.model).__name__} takes no attention mask"


def _names(trace: Trace, stack: str) -> tuple[str, str]:
    """Return the names of a stack's ids and of their mask among the model's inputs."""
    if stack == "decoder" and "decoder_input_ids" in trace.inputs:
        return "decoder_input_ids", "decoder_attention_mask"
    return "input_ids", "attention_mask"


def reads_at(trace: Trace) -> str:
    """Return the stack whose tokens the rows of the logits are."""
    return "decoder" if "decoder_input_ids" in trace.inputs else trace.default_stack


def id_of(trace: Trace, name: str) -> int | None:
    """Return the id of the tokenizer's or model's "mask" or "pad" token; None where there is none."""
    for holder in (tokenizer_of(trace), getattr(trace.model, "config", None)):
        found = getattr(holder, f"{name}_token_id", None)
        if isinstance(found, int) and found >= 0:
            return found
    return None


@contextmanager
def _runner(trace: Trace, operator: str, stack: str, target: Target) -> Iterator[Run]:
    """Yield a function from removed tokens [variant, token] to the model's outputs."""
    import torch

    if operator in _EMBEDDED:
        from attnwidgets.explanations.attribution.baselines import baseline_embeddings
        from attnwidgets.explanations.attribution.embedding_gradients import leaf_of
        from attnwidgets.tracing.gradients.differentiable import differentiable

        with differentiable(trace, _PURPOSE) as run, torch.no_grad():
            given = leaf_of(run(), stack, _PURPOSE).detach()
            start, _ = baseline_embeddings(trace, run.model, given[0], operator, _PURPOSE)

            def embedded(gone: Bools) -> Any:
                where = torch.from_numpy(gone).to(given.device)[..., None]
                replaced = {stack: torch.where(where, start, given)}
                return run(replaced, hidden_states=target.hidden_states).outputs

            yield embedded
        return
    from attnwidgets.tracing.interventions import require_same_interventions
    from attnwidgets.tracing.pass_memory import room_for_pass
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap
    from attnwidgets.tracing.recording.recorder import forward_parameters

    require_same_interventions(trace, _PURPOSE)
    model = unwrap(trace.model)
    takes = forward_parameters(model)
    options: dict[str, Any] = {"return_dict": True}
    if "use_cache" in takes:
        options["use_cache"] = False
    if target.hidden_states:
        options["output_hidden_states"] = True
    with borrowed(model) as twin, room_for_pass(model, trace, _PURPOSE):
        yield lambda gone: trace.call(twin, inputs_without(trace, operator, stack, gone, takes), options, {})


def inputs_without(
    trace: Trace, operator: str, stack: str, gone: Bools, takes: frozenset[str]
) -> Mapping[str, Any]:
    """Return the model's inputs with tokens removed [variant, token]."""
    import torch

    batch = len(gone)
    inputs = {
        name: value.expand(batch, *value.shape[1:])
        if isinstance(value, torch.Tensor) and value.dim() and len(value) == 1
        else value
        for name, value in trace.inputs.items()
    }
    name, mask_name = _names(trace, stack)
    ids: Tensor = inputs[name]
    where = torch.from_numpy(gone).to(ids.device)
    if operator in ("mask", "pad"):
        return inputs | {name: ids.masked_fill(where, id_of(trace, operator) or 0)}
    mask = inputs.get(mask_name)
    mask = torch.ones_like(ids) if mask is None else mask
    if operator == "attention_mask":
        return inputs | {mask_name: mask.masked_fill(where, 0)}
    # What is left comes first, in order; the rest is padding.
    order = where.int().argsort(dim=1, stable=True)[:, : int((~where).sum(1).max())]
    left = ~where.gather(1, order)
    beside = ("token_type_ids", "position_ids") if name == "input_ids" else ()
    moved = {key: inputs[key].gather(1, order) for key in beside if isinstance(inputs.get(key), torch.Tensor)}
    filled = ids.gather(1, order).masked_fill(~left, id_of(trace, "pad") or 0)
    if mask_name in takes:
        moved[mask_name] = mask.gather(1, order) * left
    return inputs | moved | {name: filled}


def _ask(
    trace: Trace,
    operator: str,
    target: Target,
    stack: str,
    gone: Bools,
    run: Run,
    batch_size: int,
    *,
    watched: bool,
) -> Answers:
    """Return the answers to distinct variants [variant, token]."""
    n = len(gone)
    answers = np.full((KINDS, n), np.nan)
    moves = operator == "delete" and reads_at(trace) == stack
    read_at_all = readable(trace, operator, target, stack, gone)
    chunks = _chunks(trace, operator, target, stack, gone, read_at_all, batch_size)
    for chosen in progress(chunks, "removing") if watched else chunks:
        outputs = run(gone[chosen])
        rows = None
        if target.position is not None:
            left = ~gone[chosen, : target.position + 1]
            rows = left.sum(axis=1) - 1 if moves else np.full(len(chosen), target.position)
        answers[:, chosen] = read_answers(outputs, target, rows).table()
    return Answers.of(answers)


def readable(trace: Trace, operator: str, target: Target, stack: str, gone: Bools) -> Bools:
    """Return which variants leave anything to read [variant]."""
    if operator not in ("delete", "attention_mask"):
        return np.ones(len(gone), dtype=bool)
    seen = gone
    if target.position is not None and trace.predictions_title == "next token" and reads_at(trace) == stack:
        seen = gone[:, : target.position + 1]
    return np.asarray(~seen.all(axis=1))


def _chunks(
    trace: Trace,
    operator: str,
    target: Target,
    stack: str,
    gone: Bools,
    readable: Bools,
    batch_size: int,
) -> list[NDArray[np.intp]]:
    """Return the variants of each batch: of like length where tokens are deleted, so that little is padding.

    Where the model takes no mask, or the target is a function that may read every row, of one length.
    """
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.recorder import forward_parameters

    left = (~gone).sum(axis=1)
    order = np.argsort(left, kind="stable") if operator == "delete" else np.arange(len(gone))
    order = order[readable[order]]
    parts = [order]
    masked = _names(trace, stack)[1] in forward_parameters(unwrap(trace.model))
    if operator == "delete" and not (masked and target.index is not None):
        parts = np.split(order, np.flatnonzero(np.diff(left[order])) + 1)
    return [part[start : start + batch_size] for part in parts for start in range(0, len(part), batch_size)]


def read_answers(outputs: Any, target: Target, rows: NDArray[np.int64] | None) -> Answers:
    """Return what outputs of a batch say of a target; `rows` are the rows of the logits read in each."""
    import torch

    if target.index is None:
        return _only(target.score(outputs).detach().double().cpu().numpy())
    logits = outputs.logits
    if rows is not None:
        logits = logits[
            torch.arange(len(logits), device=logits.device), torch.from_numpy(rows).to(logits.device)
        ]
    logits = logits.detach().double()
    number = logits[:, target.index].cpu().numpy()
    if logits.shape[-1] == 1:
        # One logit alone is no choice among several.
        return _only(number)
    best = logits.argmax(-1)
    log_p = logits.log_softmax(-1)
    return Answers(
        number,
        log_p[:, target.index].cpu().numpy(),
        (best == target.index).double().cpu().numpy(),
        best.double().cpu().numpy(),
        log_p.gather(-1, best[:, None])[:, 0].cpu().numpy(),
    )


def _only(number: Float) -> Answers:
    """Return answers of which nothing but the number is known."""
    unknown = np.full(len(number), np.nan)
    return Answers(number, unknown, unknown, unknown, unknown)
