"""Run a trace's input again: through its model, which may have changed since, or through a user's function.

`again` records the input with the model as it is now; `require_same_model` raises if its output has changed.

A `GivenModel` belongs to a trace of given attention. It is a user's function that runs a model with other
attention or fewer tokens. Methods that only need outputs for changed attention and for removed tokens thus
work on any model, also a recurrent model. It is not the trace's `model`: it has no modules to hook and no
embeddings to reach.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.anatomy.answer import answer_of
from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.anatomy.stack_axes import with_registers
from attnwidgets.tracing.interventions import added_to, require_same_interventions, said_of
from attnwidgets.tracing.layers import ModelLayer, Stack
from attnwidgets.tracing.mixers.log import by_number
from attnwidgets.tracing.model_state import state_of
from attnwidgets.tracing.pass_memory import room_to_record
from attnwidgets.tracing.predictions import logits_in, predict
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.recording.recorded_pass import NoAttentionError, record
from attnwidgets.tracing.recording.returned import apart, tolerance
from attnwidgets.tracing.text.axes import without_last
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.tracing.from_attentions import GivenTrace
    from attnwidgets.tracing.prediction import Prediction
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.tracing.trace import Trace

# By trace, the states (`state_of`) in which its model gave the recorded output.
_same: weakref.WeakKeyDictionary[Trace, set[int]] = weakref.WeakKeyDictionary()

Rerun = Callable[[Tensor | None, Tensor | None], Any]
_CLOSE = 1e-3  # relative difference of logits with the given attention and with the model's
_CLASSES, _TOKENS = 1, 2


def again(trace: Trace) -> Trace:
    """Return the trace of a trace's input by its model as it is now.

    Raises:
        UnsupportedModelError: If its attention cannot be recorded.
        ValueError: If its attention was not recorded.
    """
    model = unwrap(trace.model)
    never_attends = any(stack.blocks and not stack.layers for stack in trace.stack_table.values())
    if not never_attends:
        sites(trace)
    with borrowed(model) as twin, room_to_record(twin, trace.inputs):
        try:
            recorded = record(twin, trace.inputs)
        except NoAttentionError as passed:
            if not never_attends:
                raise
            before = trace.stack_table[trace.default_stack]
            mixing = by_number(passed.blocks, passed.mixing, 0, len(before.query))
            stacks = {trace.default_stack: replace(before, blocks=passed.blocks, mixing=mixing)}
            return _as_it_is(trace, stacks, passed.outputs)
    if not recorded.is_recorded:
        raise UnsupportedModelError(
            f"the attention of {type(model).__name__} cannot be recorded: {recorded.note}"
        )
    stacks = {}
    for name, calls in recorded.stacks.items():
        if name not in trace.stack_table:  # a tower that reads its picture in tiles or windows has no maps
            continue
        before = trace.stack_table[name]
        extra = added_to(trace.model, name) - trace.added.get(name, 0)
        layers = tuple(
            call.layer(0, *(length + extra for length in layer.shape[1:]))
            for call, layer in zip(calls, before.layers, strict=True)
            if not isinstance(call, Tensor)
        )
        query, key = (_with(axis, extra) for axis in (before.query, before.key))
        blocks = recorded.blocks[name]
        mixing = by_number(blocks, recorded.mixing, 0, len(query))
        stacks[name] = Stack(layers, query, key, blocks, mixing)
    return _as_it_is(trace, stacks, recorded.outputs)


def _as_it_is(trace: Trace, stacks: dict[str, Stack], outputs: Any) -> Trace:
    """Return a trace of the same input with the stacks and outputs of its model as it is now."""
    model = unwrap(trace.model)
    logits = own_logits(trace, outputs)
    return replace(
        trace,
        stack_table=stacks,
        logits=logits,
        id=uuid.uuid4().hex,
        predicted=predictions_of(trace, logits),
        interventions=said_of(trace.model),
        state=state_of(model),
        added={name: count for name in stacks if (count := added_to(trace.model, name))},
    )


def _with(axis: TokenAxis, extra: int) -> TokenAxis:
    """Return an axis with `extra` register tokens added at its end, or removed if it is negative."""
    return without_last(axis, -extra) if extra < 0 else with_registers(axis, extra) if extra else axis


def own_logits(trace: Trace, outputs: Any, copy: int = 0) -> Tensor | None:
    """Return the logits of a pass over a trace's input, or a copy of it, in the form of `trace.logits`."""
    all_logits = logits_in(outputs)
    if trace.logits is None or all_logits is None:
        return None
    logits: Tensor = all_logits[copy].detach().to("cpu", copy=True)
    return logits[-len(trace.logits) :] if logits.dim() > 1 else logits


def predictions_of(trace: Trace, logits: Tensor | None) -> tuple[Prediction, ...]:
    """Return the predictions of a trace that follow from other logits."""
    return predict(trace.answer, logits, text_tokenizer(trace.tokenizer), trace.input_ids)


def require_same_model(trace: Trace, purpose: str) -> bool:
    """Raise a ValueError if a trace's model, run again, is not the model that was traced.

    Returns whether it is in the state in which it was traced, so that nothing had to be compared.

    If anything changed that could change a number (weights, adapters, hooks, attributes of modules), the
    model runs once, and its logits are compared with the recorded ones.

    Args:
        trace: A trace with a model.
        purpose: The method's name, for messages.
    """
    require_same_interventions(trace, purpose)
    if trace.model is None:  # a user's function runs instead
        return True
    model = unwrap(trace.model)
    state = state_of(model)
    confirmed = _same.setdefault(trace, set())
    if state == trace.state or state in confirmed or not trace.inputs:
        return bool(state == trace.state)
    difference = _difference(trace, model)
    if difference:
        raise ValueError(
            f"{purpose} runs the model again, which changed after this trace was made (its output by "
            f"{difference:.2g}): trace the text again (trace.rerun()), or restore the model."
        )
    confirmed.add(state)
    return False


def _difference(trace: Trace, model: Any) -> float:
    """Return the relative difference of a model's outputs from the recorded outputs; 0 within rounding."""
    with borrowed(model) as twin:
        before, now = _both(trace, twin)
    # Where numbers break in NaN, the method names the layer.
    if before is None or now is None or not bool(now.isfinite().all()):
        return 0.0
    if before.shape != now.shape:
        return float("inf")
    difference = apart(now.to(before.dtype), before)
    return 0.0 if difference <= tolerance(before) else difference


def _both(trace: Trace, twin: Any) -> tuple[Tensor | None, Tensor | None]:
    """Return the recorded logits and those of another pass; without logits, numbers of a layer."""
    if trace.logits is not None:
        options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in forward_parameters(twin):
            options["use_cache"] = False
        return trace.logits, own_logits(trace, trace.call(twin, trace.inputs, options, {}))
    stack = trace.default_stack
    recorded = [layer for layer in trace.stack_table[stack].layers if isinstance(layer, ModelLayer)]
    if not recorded:
        return None, None
    calls = [
        call for call in record(twin, trace.inputs).stacks.get(stack, ()) if not isinstance(call, Tensor)
    ]
    last = recorded[-1]
    now = calls[-1].layer(0, last.queries, last.keys).fingerprint() if calls else torch.zeros(0)
    return last.fingerprint(), now


class GivenModel(nn.Module):
    """A user's model of an input, as a function of its attention and of the tokens that stay.

    Args:
        rerun: The user's function.
        weights: The given attention [layer, head, query, key].
    """

    def __init__(self, rerun: Rerun, weights: Tensor) -> None:
        super().__init__()
        self._rerun, self.weights = rerun, weights
        self._shape: tuple[int, ...] | None = None

    def answer(self, weights: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """Return logits [class] or [token, vocabulary], with other attention or without some tokens.

        Args:
            weights: Attention to use [layer, head, query, key]; None for the model's.
            kept: 1 for a token that stays, 0 for a removed token [key]; None if all stay.

        Raises:
            TypeError: If the function does not return a tensor of floats.
            ValueError: If it has another shape than the answer to the whole input, or is not finite.
        """
        logits = self._rerun(weights, kept)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            raise TypeError(
                f"rerun returned a {type(logits).__name__}; return logits as a torch tensor of floats, "
                "[class] or [token, vocabulary]."
            )
        if logits.dim() not in (_CLASSES, _TOKENS) or not logits.numel():
            raise ValueError(
                f"rerun returned logits of shape {tuple(logits.shape)}; return them for this one input, "
                "[class] or [token, vocabulary]."
            )
        if self._shape not in (None, tuple(logits.shape)):
            raise ValueError(
                f"rerun returned logits of shape {tuple(logits.shape)}, and {self._shape} for the whole "
                "input; the answer has to keep its shape."
            )
        if not bool(torch.isfinite(logits).all()):
            raise ValueError(
                "rerun returned logits that are not finite; look for 0/0 where tokens are removed."
            )
        self._shape = tuple(logits.shape)
        return logits

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> SimpleNamespace:
        """Return the logits of inputs with tokens removed [variant, ...], as removal asks for them.

        Args:
            input_ids: Numbers from 1 of the tokens that stay, and 0 for padding [variant, token].
            attention_mask: 0 where a token stays in place, and nothing attends to it [variant, token].
        """
        rows = zip(input_ids, attention_mask.bool(), strict=True)
        return SimpleNamespace(logits=torch.stack([self._without(ids, mask) for ids, mask in rows]))

    def _without(self, ids: Tensor, mask: Tensor) -> Tensor:
        n_keys = self.weights.shape[-1]
        present = torch.zeros(n_keys + 1, dtype=torch.bool)
        present[ids] = True
        kept = present[1:]
        if not bool(kept.all()):
            return self.answer(None, kept.to(self.weights.dtype))
        if bool(mask.all()):
            return self.answer()
        left = self.weights * mask
        return self.answer(left / left.sum(-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny))


def with_rerun(trace: GivenTrace, rerun: Rerun, classes: Sequence[str] | None) -> GivenTrace:
    """Add the function that runs a user's model, and its predictions, to a trace of given attention.

    Raises:
        TypeError: If `rerun` is not a function, or returns no tensor.
        ValueError: If there is attention of several stacks, or layers differ in heads; if the given attention
            does not lead to the model's logits; or if `classes` does not fit them.
    """
    if not callable(rerun):
        raise TypeError(f"rerun must be a function of weights and kept tokens, not {type(rerun).__name__}.")
    if len(trace.stacks) > 1:
        raise ValueError(f"rerun takes attention of one stack, and this has {', '.join(trace.stacks)}.")
    layers = [torch.as_tensor(trace.attention_layer(number)) for number in trace.layers()]
    if len({layer.shape for layer in layers}) > 1:
        raise ValueError("rerun needs layers with equal numbers of heads: [layer, head, query, key].")
    model = GivenModel(rerun, torch.stack(layers))
    with no_grad():
        logits = model.answer().detach().float().cpu()
        with_weights = model.answer(model.weights).detach().float().cpu()
    if not float((logits - with_weights).norm()) <= _CLOSE * max(float(logits.norm()), 1.0):
        far = float((logits - with_weights).abs().max())
        raise ValueError(
            f"rerun(weights, None) with the attention that is given differs from rerun(None, None) by up to "
            f"{far:.2g} in the logits: let it use `weights` in the place of the model's own, and give what "
            "the model attends to (in evaluation, without dropout)."
        )
    names = tuple(map(str, classes or ()))
    if names and len(names) != logits.shape[-1]:
        raise ValueError(f"classes has {len(names)} names, and rerun returns {logits.shape[-1]} logits.")
    n_keys = len(trace.axes()[1])
    trace.reruns, trace.logits = model, logits
    trace.inputs = {
        "input_ids": torch.arange(1, n_keys + 1)[None],
        "attention_mask": torch.ones(1, n_keys, dtype=torch.long),
    }
    if logits.dim() == _CLASSES:
        trace.output_names = names
        named = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(names))))
        trace.answer = answer_of(named, logits, None, None, generates=False)
        trace.predicted = predict(trace.answer, logits, None, None)
    return trace
