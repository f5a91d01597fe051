"""Remove elements of an input by an operator that the user names, and read the prediction without them.

Operators change the ids, embeddings or attention mask that the model reads. The text is never tokenized
again, so that no other token changes.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets.evaluate.removals.media_operators import (
    PICTURE_OPERATORS,
    SOUND_OPERATORS,
    PictureOperator,
    PictureRemoval,
    SoundOperator,
    refusal_of_pictures,
    refusal_of_sound,
    silenced_inputs,
)
from attnwidgets.evaluate.removals.ordering import answered
from attnwidgets.explanations.results.trace_protocol import elements_of, reruns_of
from attnwidgets.explanations.targets.resolve import ATTENTIONS, head_of, tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from attnwidgets.evaluate.arrays import Bools, Float, Indices, Order
    from attnwidgets.evaluate.removals.ordering import Questions, T
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

Operator = (
    Literal["delete", "mask", "pad", "zero", "mean", "attention_mask"] | PictureOperator | SoundOperator
)
OPERATORS: tuple[Operator, ...] = ("delete", "mask", "pad", "zero", "mean", "attention_mask")
"""delete: drops the token; those after it move up. mask, pad: replace its id by that of the mask or padding
token. zero, mean: replace its embedding by zeros, or by the mean over the vocabulary; its position stays.
attention_mask: leaves the token at its position, but nothing attends to it.
Models that count positions past the padding (RoBERTa) or past masked tokens (OPT) move up the tokens after
those that "pad" or "attention_mask" removes. Patches of pictures are removed by "zero", "mean" and
`PICTURE_OPERATORS`, frames of a sound by "zero", "mean" and `SOUND_OPERATORS`."""

EVERY: tuple[Operator, ...] = (*OPERATORS, *PICTURE_OPERATORS, *SOUND_OPERATORS)
"""The operators on text, those on pictures, and those on sound."""

_OF_MEDIA: dict[str, Callable[[Trace, str], str]] = {
    **dict.fromkeys(PICTURE_OPERATORS, refusal_of_pictures),
    **dict.fromkeys(SOUND_OPERATORS, refusal_of_sound),
}
"""Why a trace's stack has no use for an operator on pictures or on sound."""

EMBEDDED = ("zero", "mean")
"""Operators on embeddings; the others change ids or the attention mask."""
_PURPOSE = "removal"


@dataclass(frozen=True)
class Answers:
    """Predictions of a model for several variants of an input; NaN where nothing is left to read.

    Attributes:
        number: The target's value [variant]: its logit, or the value of another kind of target.
        log_p: Log probability of the target [variant]; NaN unless the target is a single logit that has a
            probability.
        right: Whether the target's logit is the highest of its row, the first among equals, or above 0 if
            several may be true [variant]: 1 or 0; NaN as for `log_p`.
        decided: Index of the highest logit of that row [variant]; NaN as for `log_p`.
        decided_log_p: Its log probability [variant]; NaN as for `log_p`.
    """

    number: Float
    log_p: Float
    right: Float
    decided: Float
    decided_log_p: Float

    @classmethod
    def of(cls, table: Float) -> Answers:
        """Return the answers in a `table` [kind, variant]."""
        return cls(*table)

    def table(self) -> Float:
        """Return all kinds of answers [kind, variant]."""
        return np.stack(list(vars(self).values()))

    def part(self, rows: Any) -> Answers:
        """Return the answers to some of the variants."""
        return Answers.of(self.table()[:, rows])


KINDS = 5
"""Number of fields of `Answers`."""


@dataclass(frozen=True)
class ElementRemoval:
    """Removes elements of a stack of a trace by an operator, and reads a target.

    Attributes:
        trace: The input.
        unit: The elements.
        stack: The stack they belong to.
        target: The target.
        operator: How elements are removed.
    """

    trace: Trace
    unit: Unit
    stack: str
    target: Target
    operator: Operator

    def features(self, *, special: bool = False) -> Order:
        """Return the elements that can be removed, in text order.

        Special elements count only with `special`. If the target is read at a token itself, as at a [MASK],
        and not predicted as the next token, that token stays: without it the target does not exist.
        """
        removable = [
            number
            for number, span in enumerate(self.unit.spans)
            if span and (special or not self.unit.special[number])
        ]
        position = self.target.position
        if position is not None and self._logits_of_stack and self.trace.predictions_title != "next token":
            removable = [number for number in removable if position not in self.unit.spans[number]]
        return np.array(removable, dtype=np.intp)

    def ask(self, questions: Questions[T], *, batch_size: int = 32, watched: bool = True) -> T:
        """Put a generator's questions to the model, and return the generator's result; see `answering`."""
        with self.answering(batch_size=batch_size, watched=watched) as ask:
            return answered(questions, ask)

    @contextmanager
    def answering(
        self, *, batch_size: int = 32, watched: bool = True
    ) -> Iterator[Callable[[Bools], Answers]]:
        """Borrow the model, and yield a function from removed elements [variant, element] to `Answers`.

        Equal variants run once; the others run in batches of `batch_size`, or of the number that fits in
        memory. With "delete", a row of logits read at a token (the next token's) is that of the last token
        left before it. `watched` shows the progress over batches.

        Raises:
            ValueError: If the operator is unknown or impossible for this model or tokenizer; with "delete",
                if the target is read at positions that move (a span, a token's embedding); or if memory does
                not suffice for a single input.
        """
        from attnwidgets.tracing.pass_memory import together

        require_operator(self.trace, self.operator, self.target, self.stack)
        batch_size = together(runs(self.trace), self.trace, batch_size, graph=False)
        with self._running() as run:

            def answers(removed: Bools) -> Answers:
                gone, variants = self.distinct(removed)
                table = np.full((KINDS, len(gone)), np.nan)
                batches = self._batches(gone, batch_size)
                for rows in progress(batches, "removing") if watched else batches:
                    outputs = run(gone[rows])
                    table[:, rows] = read_answers(outputs, self.target, self.rows_read(gone[rows])).table()
                return Answers.of(table).part(variants)

            yield answers

    def distinct(self, removed: Bools) -> tuple[Bools, Indices]:
        """Return the distinct variants by token [distinct variant, token], and where each variant is."""
        distinct, variants = np.unique(np.asarray(removed, dtype=bool), axis=0, return_inverse=True)
        return (
            distinct @ self.unit.membership(len(elements_of(self.trace, self.stack)))
        ) > 0, variants.reshape(-1)

    def readable(self, gone: Bools) -> Bools:
        """Return in which variants [variant, token] the target can be read [variant]."""
        if self.operator not in ("delete", "attention_mask"):
            return np.ones(len(gone), dtype=bool)
        position = self.target.position
        if position is not None and self._logits_of_stack and self.trace.predictions_title == "next token":
            gone = gone[:, : position + 1]
        return np.asarray(~gone.all(axis=1))

    def rows_read(self, gone: Bools) -> Indices | None:
        """Return the row of logits at which the target is read [variant]; None if logits have no rows."""
        position = self.target.position
        if position is None:
            return None
        if self.operator == "delete" and self._logits_of_stack:
            return (~gone[:, : position + 1]).sum(axis=1) - 1
        return np.full(len(gone), position)

    def inputs(self, gone: Bools) -> Mapping[str, Any]:
        """Return the model's inputs with tokens removed [variant, token]; not for operators on embeddings."""
        import torch

        from attnwidgets.tracing.anatomy.forward import forward_parameters
        from attnwidgets.tracing.recording.batch import in_copies

        if self.operator in PICTURE_OPERATORS:
            return PictureRemoval(self.trace, self.operator).inputs(gone)
        if self.operator in SOUND_OPERATORS:
            return silenced_inputs(self.trace, self.stack, gone)
        inputs = in_copies(self.trace.inputs, len(gone))
        name, mask_name = _input_names(self.trace, self.stack)
        ids: Tensor = inputs[name]
        where = torch.from_numpy(gone).to(ids.device)
        if self.operator in ("mask", "pad"):
            return inputs | {name: ids.masked_fill(where, id_of(self.trace, self.operator) or 0)}
        mask = inputs.get(mask_name)
        mask = torch.ones_like(ids) if mask is None else mask
        if self.operator == "attention_mask":
            return inputs | {mask_name: mask.masked_fill(where, 0)}
        # The tokens left come first, in order; the rest is padding.
        order = where.int().argsort(dim=1, stable=True)[:, : int((~where).sum(1).max())]
        left = ~where.gather(1, order)
        along = ("token_type_ids", "position_ids") if name == "input_ids" else ()
        moved = {
            key: inputs[key].gather(1, order) for key in along if isinstance(inputs.get(key), torch.Tensor)
        }
        filled = ids.gather(1, order).masked_fill(~left, id_of(self.trace, "pad") or 0)
        if mask_name in forward_parameters(runs(self.trace)):
            moved[mask_name] = mask.gather(1, order) * left
        return inputs | moved | {name: filled}

    @property
    def _logits_of_stack(self) -> bool:
        """Whether the rows of the logits are the tokens of this stack."""
        query, key = self.trace.axes(self.stack)
        if reruns_of(self.trace) is not None and query.tokens != key.tokens:
            return False
        reads = "decoder" if "decoder_input_ids" in self.trace.inputs else self.trace.default_stack
        return reads == self.stack

    @contextmanager
    def _running(self) -> Iterator[Callable[[Bools], Any]]:
        """Yield a function from removed tokens [variant, token] to the model's outputs."""
        import torch

        from attnwidgets.tracing.pass_memory import room_for_pass
        from attnwidgets.tracing.recording.borrow import borrowed
        from attnwidgets.tracing.recording.recorder import recording
        from attnwidgets.tracing.rerun_trace import require_same_model

        trace, stack = self.trace, self.stack
        if self.operator in EMBEDDED:
            from attnwidgets.explanations.attribution.baselines import baseline_embeddings
            from attnwidgets.explanations.attribution.embedding_gradients import leaf_of
            from attnwidgets.tracing.gradients.differentiable import differentiable

            with differentiable(trace, _PURPOSE, entry=stack) as run, no_grad():
                embeddings = leaf_of(run(), stack, _PURPOSE).detach()
                start, _ = baseline_embeddings(trace, run.model, embeddings[0], self.operator, _PURPOSE)

                def embedded(gone: Bools) -> Any:
                    where = torch.from_numpy(gone).to(embeddings.device)[..., None]
                    replaced = {stack: torch.where(where, start, embeddings)}
                    return run(replaced, reads=self.target.reads).outputs

                yield embedded
            return
        require_same_model(trace, _PURPOSE)
        model = runs(trace)
        options = call_options(model) | dict.fromkeys(self.target.reads, True)
        with ExitStack() as exits:
            twin = exits.enter_context(borrowed(model))
            exits.enter_context(room_for_pass(model, trace, _PURPOSE))
            if ATTENTIONS in self.target.reads:
                exits.enter_context(recording(twin))
            yield lambda gone: trace.call(twin, self.inputs(gone), options, {})

    def _batches(self, gone: Bools, batch_size: int) -> list[Indices]:
        """Return the readable variants of each batch.

        With "delete" a batch holds variants of similar length, so that little is padding; or of equal length,
        if the model takes no mask or no padding, or the target is a function that may read every row.
        """
        from attnwidgets.tracing.anatomy.forward import forward_parameters
        from attnwidgets.tracing.recording.borrow import lacks_padding

        lengths = (~gone).sum(axis=1)
        order = np.argsort(lengths, kind="stable") if self.operator == "delete" else np.arange(len(gone))
        order = order[self.readable(gone)[order]]
        parts = [order]
        takes = forward_parameters(runs(self.trace))
        masked = _input_names(self.trace, self.stack)[1] in takes and not lacks_padding(runs(self.trace))
        if self.operator == "delete" and not (masked and self.target.index is not None):
            parts = np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)
        return [
            part[start : start + batch_size] for part in parts for start in range(0, len(part), batch_size)
        ]


def runs(trace: Trace) -> nn.Module:
    """Return the module that runs a trace's input again: its model, or the module in `rerun=`."""
    from attnwidgets.tracing.recording.borrow import unwrap

    rerun = reruns_of(trace)
    return unwrap(trace.model) if rerun is None else rerun


def call_options(model: Any) -> dict[str, Any]:
    """Return the keywords with which a model is called: named outputs, no cache."""
    from attnwidgets.tracing.anatomy.forward import forward_parameters

    cached = "use_cache" in forward_parameters(model)
    return {"return_dict": True} | ({"use_cache": False} if cached else {})


def possible_operators(trace: Trace, stack: str) -> tuple[Operator, ...]:
    """Return the operators that a trace's model and tokenizer support, in the order of `OPERATORS`.

    Those on pictures and on sound, in the order of `PICTURE_OPERATORS` and `SOUND_OPERATORS`, come last.

    Args:
        trace: Trace returned by `aw.trace`.
        stack: The stack whose tokens are removed: "self", "encoder" or "decoder".

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film.")
        >>> aw.evaluate.possible_operators(trace, "self")
        ('delete', 'mask', 'pad', 'zero', 'mean', 'attention_mask')
    """
    return tuple(name for name in EVERY if not _refusal(trace, name, stack))


def require_operator(trace: Trace, operator: str, target: Target, stack: str) -> None:
    """Raise ValueError if an operator cannot be used with a trace and a target."""
    if trace.model is None and reruns_of(trace) is None:
        raise ValueError(
            "trace holds no model, and removal runs it; use aw.trace(model, tokenizer, text), or give "
            "aw.from_attentions a function, rerun=."
        )
    require_choice("operator", operator, EVERY)
    able = possible_operators(trace, stack)
    if refusal := _refusal(trace, operator, stack):
        raise ValueError(
            f"operator {operator!r} is not possible here ({refusal}); possible are {listed(able)}."
        )
    if operator == "delete" and _moves_with_tokens(target):
        raise ValueError(
            f"operator 'delete' moves the tokens that {target.label!r} is read at; use "
            f"{listed([name for name in able if name != 'delete'])}."
        )


def refusals(trace: Trace, target: Target, stack: str) -> dict[Operator, str]:
    """Return for each operator why it cannot be used with a trace and a target, or "".

    Operators of pictures are listed for pictures only, and those of sound for sound.
    """
    names = (name for name in EVERY if name not in _OF_MEDIA or not _OF_MEDIA[name](trace, stack))
    reasons: dict[Operator, str] = {name: _refusal(trace, name, stack) for name in names}
    if _moves_with_tokens(target):
        reasons["delete"] = reasons["delete"] or f"moves the tokens that {target.label!r} is read at"
    return reasons


def _moves_with_tokens(target: Target) -> bool:
    """Return whether deletion moves the positions at which a target is read."""
    return target.index is None and target.title != "function"


def _refusal(trace: Trace, operator: str, stack: str) -> str:
    """Return why a trace's model or tokenizer does not support an operator; "" if it does."""
    from attnwidgets.tracing.anatomy.forward import forward_parameters

    if operator in _OF_MEDIA:
        return _OF_MEDIA[operator](trace, stack)
    if operator in EMBEDDED:
        bare = not trace.has_attention(stack) and "pixel_values" in trace.inputs
        of_function = "rerun= has no embeddings to replace" if reruns_of(trace) is not None else ""
        return "the model has no embeddings of patches" if bare else of_function
    name, mask_name = _input_names(trace, stack)
    ids = trace.inputs.get(name)
    if ids is None or ids.shape[1] != len(elements_of(trace, stack)):
        return f"stack {stack!r} is not made of token ids"
    if operator in ("mask", "pad") and id_of(trace, operator) is None:
        return f"the tokenizer has no {operator} token"
    if operator == "attention_mask" and mask_name not in forward_parameters(runs(trace)):
        return f"{type(trace.model).__name__} takes no attention mask"
    return ""


def _input_names(trace: Trace, stack: str) -> tuple[str, str]:
    """Return the names of a stack's ids and of their mask among the model's inputs."""
    if stack == "decoder" and "decoder_input_ids" in trace.inputs:
        return "decoder_input_ids", "decoder_attention_mask"
    return "input_ids", "attention_mask"


def id_of(trace: Trace, name: str) -> int | None:
    """Return the id of the tokenizer's or model's "mask" or "pad" token, or None."""
    for holder in (tokenizer_of(trace), getattr(trace.model, "config", None)):
        number = getattr(holder, f"{name}_token_id", None)
        if isinstance(number, int) and number >= 0:
            return number
    return None


def read_answers(outputs: Any, target: Target, rows: Indices | None) -> Answers:
    """Return the answers in the outputs of a batch; `rows` are the rows of the logits read in each."""
    import torch

    if target.index is None:
        return _only(target.score(outputs).detach().double().cpu().numpy())
    logits = head_of(outputs)
    if rows is not None:
        variants = torch.arange(len(logits), device=logits.device)
        logits = logits[variants, torch.from_numpy(rows).to(logits.device)]
    logits = logits.detach().double()
    number = logits[:, target.index].cpu().numpy()
    if target.reading == "none":
        return _only(number)
    best = logits.argmax(-1)
    several = target.reading == "sigmoid"
    log_p = torch.nn.functional.logsigmoid(logits) if several else logits.log_softmax(-1)
    # Labels that do not exclude each other are decided separately.
    right = logits[:, target.index] > 0 if several else best == target.index
    return Answers(
        number,
        log_p[:, target.index].cpu().numpy(),
        right.double().cpu().numpy(),
        best.double().cpu().numpy(),
        log_p.gather(-1, best[:, None])[:, 0].cpu().numpy(),
    )


def _only(number: Float) -> Answers:
    """Return answers with a number alone; the other fields are NaN."""
    unknown = np.full(len(number), np.nan)
    return Answers(number, unknown, unknown, unknown, unknown)
