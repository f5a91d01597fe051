"""Predictions before and under an intervention, computed from the first layer that it changes.

Blocks below that layer always return the same, so that they run only once: the first pass stores their
outputs, and later passes reuse them.
"""

from __future__ import annotations

import inspect
import weakref
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._tensors import widened
from attnwidgets.tracing.anatomy.block_names import block_names
from attnwidgets.tracing.anatomy.forward import forward_parameters, only_last_logits
from attnwidgets.tracing.predictions import label_of, predicted_values
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.rerun_trace import own_logits, predictions_of, require_same_model
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn
    from typing_extensions import Self

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.prediction import Prediction

# Outputs of the first blocks of a trace, by stack; they are freed with the trace.
_outputs_of: weakref.WeakKeyDictionary[Trace, dict[str, list[Any]]] = weakref.WeakKeyDictionary()

Kind = Literal["distribution", "several", "score", "states", ""]


@dataclass(frozen=True)
class Preview:
    """Predictions under an intervention.

    Attributes:
        title: Kind of the outcomes: "class", "next token", ..., or "".
        before: The most probable outcomes in the trace.
        after: The most probable outcomes under the intervention.
        logits: All logits under the intervention, like `trace.logits`; None for models without logits.
    """

    title: str
    before: tuple[Prediction, ...]
    after: tuple[Prediction, ...]
    logits: Tensor | None


def preview(trace: Trace, *interventions: Intervention) -> Preview:
    """Return predictions under interventions; layers below the first changed layer do not run.

    Args:
        trace: A trace with its model.
        interventions: Interventions for this trace or its model, not active.

    Raises:
        ValueError: If the trace has no model, or was recorded under other interventions than are active now.
    """
    with Replay(trace) as replay:
        outputs = replay.run(interventions)
    logits = own_logits(trace, outputs)
    return Preview(trace.answer.title, trace.predicted, predictions_of(trace, logits), logits)


class Replay:
    """Context manager that runs a trace's model on its input, from a chosen layer on."""

    def __init__(self, trace: Trace) -> None:
        from attnwidgets.tracing.unsupported import UnsupportedModelError

        if not isinstance(trace, Trace) or trace.model is None:
            raise UnsupportedModelError(
                "a preview runs the model, but this trace has no model; make it with aw.trace(model, ...)"
            )
        require_same_model(trace, "a preview")
        self._trace = trace
        self._model = unwrap(trace.model)
        self._names = block_names(trace, self._model)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # A twin from now on, so that changes to its blocks affect no other caller.
        self._model = self._stack.enter_context(borrowed(self._model))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        interventions: tuple[Intervention, ...] = (),
        *,
        copies: int = 1,
        target: Target | None = None,
    ) -> Any:
        """Return the model's outputs under interventions.

        Args:
            interventions: Interventions, active for this pass.
            copies: Number of copies of the input in the batch.
            target: The target to be read from the outputs (it may read more than logits).
        """
        skipped = self._skipped({call for intervention in interventions for call in intervention.where})
        options = pass_options(self._model)
        if target is not None and target.reads:
            # The outputs of skipped layers would be missing.
            options, skipped = options | dict.fromkeys(target.reads, True), {}
        inputs = {name: copies_of(value, copies) for name, value in self._trace.inputs.items()}
        outputs = self._outputs(skipped, copies)
        with ExitStack() as exits:
            for intervention in interventions:
                exits.enter_context(intervention)
            # As when the first blocks were recorded, so that nothing differs by rounding.
            exits.enter_context(recording(self._model))
            for stack, count in skipped.items():
                names = self._names[stack][:count]
                exits.enter_context(returning(self._model, names, outputs[stack], copies))
            self._store(skipped, outputs, exits)
            return self._trace.call(self._model, inputs, options, {})

    def _skipped(self, where: set[tuple[str, int]]) -> dict[str, int]:
        """Return the number of first blocks of every stack that need not run."""
        counts = {}
        for stack, names in self._names.items():
            if stack == "encoder":
                changed = [layer for of, layer in where if of == stack]
            elif stack == "decoder":
                changed = [0 if of == "encoder" else layer for of, layer in where]
            else:
                changed = [layer for of, layer in where if of == stack or len(self._names) == 1]
            # A block that several layers share counts its calls, and a block that hands on its keys does more
            # than return states: all of them have to run.
            is_skippable = len(set(names)) == len(names) and not any(map(self._hands_on, names))
            counts[stack] = min(changed, default=len(names)) if is_skippable else 0
        return counts

    def _hands_on(self, name: str) -> bool:
        block = self._model.get_submodule(name)
        return "shared_kv_states" in inspect.signature(type(block).forward).parameters

    def _store(self, counts: Mapping[str, int], outputs: Mapping[str, list[Any]], exits: ExitStack) -> None:
        """Store the outputs of those first blocks that are not stored yet."""
        for stack, count in counts.items():
            stored = outputs[stack]
            for name in self._names[stack][len(stored) : count]:

                def store(*arguments: Any, stored: list[Any] = stored) -> None:
                    stored.append(copies_of(arguments[-1], 1))  # a hook's last argument is the output

                exits.callback(self._model.get_submodule(name).register_forward_hook(store).remove)

    def _outputs(self, skipped: Mapping[str, int], copies: int) -> Mapping[str, list[Any]]:
        """Return the stored outputs of the first blocks, by stack; complete if there are several copies."""
        outputs = _outputs_of.setdefault(self._trace, {stack: [] for stack in self._names})
        if copies > 1 and any(len(outputs[stack]) < count for stack, count in skipped.items()):
            with ExitStack() as exits:
                for of_stack in outputs.values():
                    of_stack.clear()
                whole = {stack: len(names) for stack, names in self._names.items() if skipped.get(stack)}
                self._store(whole, outputs, exits)
                exits.enter_context(recording(self._model))
                self._trace.call(self._model, self._trace.inputs, pass_options(self._model, logits=False), {})
        return outputs


def pass_options(model: nn.Module, *, logits: bool = True) -> dict[str, Any]:
    """Return the arguments of a plain pass: outputs by name and, if the model has one, no cache.

    Without `logits`, those of the last token alone are computed, where the model can do so.
    """
    no_cache = {"use_cache": False} if "use_cache" in forward_parameters(model) else {}
    return {"return_dict": True} | no_cache | ({} if logits else only_last_logits(model))


@contextmanager
def returning(model: nn.Module, names: Sequence[str], outputs: Sequence[Any], copies: int) -> Iterator[None]:
    """Let modules of a borrowed model return stored outputs, in copies, without running."""
    patched: list[nn.Module] = []
    try:
        for name, output in zip(names, outputs, strict=False):
            module = model.get_submodule(name)
            # On the instance, so that `del` restores the method of the class.
            module.forward = lambda *_, output=output, **__: copies_of(output, copies)
            patched.append(module)
        yield
    finally:
        for module in patched:
            del module.forward


def copies_of(value: Any, copies: int) -> Any:
    """Return copies of tensors with a batch of 1, in new memory, because models may write into states."""
    if isinstance(value, torch.Tensor):
        if copies > 1 and value.dim() and len(value) == 1:
            return value.expand(copies, *value.shape[1:]).contiguous()
        return value.clone() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(copies_of(item, copies) for item in value)
    return value


@dataclass(frozen=True)
class Changed:
    """Predictions before and after an intervention.

    Attributes:
        kind: "distribution" over classes or tokens; "several", independent classes; "score", numbers;
            "states", for a model without predictions; "" if there is nothing to compare.
        title: Kind of the outcomes: "class", "next token", ..., or "".
        before: Recorded probabilities, or numbers [outcome]; empty for states [0].
        after: The same under the intervention.
        distance: For a distribution the total variation distance, 0 to 1: half the sum of |p' - p|. For
            several classes and for a score the largest difference; for states |h' - h| / |h| over all tokens.
        likeness: For states the cosine of their means over tokens before and after; else NaN.
    """

    kind: Kind
    title: str
    before: Tensor
    after: Tensor
    distance: float
    likeness: float = float("nan")

    def label(self, trace: Trace, outcome: int) -> str:
        """Return the name of an outcome."""
        return label_of(trace, outcome)


def changed(trace: Trace, *interventions: Intervention) -> Changed:
    """Return predictions before and after interventions; layers below the first changed layer do not run.

    Args:
        trace: A trace with its model.
        interventions: Interventions for this trace or its model, not active.

    Raises:
        ValueError: If the trace has no model, or was recorded under other interventions than are active now.
    """
    nothing = torch.zeros(0, dtype=torch.float64)
    with Replay(trace) as replay:
        outputs = replay.run(interventions)
        logits = own_logits(trace, outputs)
        states = None if trace.answer.is_distribution else _states(outputs)
        is_score = logits is not None and (trace.answer.is_numbers or logits.numel() == 1)
        recorded = None if states is None or is_score else _states(replay.run())
    if trace.answer.is_distribution and logits is not None and trace.logits is not None:
        return changed_logits(trace, trace.logits, logits)
    if logits is not None and trace.logits is not None and is_score:
        before, after = (widened(score).reshape(-1).double() for score in (trace.logits, logits))
        title = trace.predictions_title or "score"
        return Changed("score", title, before, after, float((after - before).abs().max()))
    if states is None or recorded is None:
        return Changed("", "", nothing, nothing, float("nan"))
    length = float(recorded.norm())
    distance = float((states - recorded).norm()) / length if length else 0.0
    likeness = float(torch.cosine_similarity(states.mean(0), recorded.mean(0), dim=0))
    return Changed("states", "", nothing, nothing, distance, likeness)


def changed_logits(trace: Trace, recorded: Tensor, logits: Tensor) -> Changed:
    """Return the predictions of a trace of tokens or classes by its recorded logits and by others."""
    before, after = predicted_values(trace, recorded), predicted_values(trace, logits)
    gap = (after - before).abs()
    if trace.answer.several:
        return Changed("several", trace.predictions_title, before, after, float(gap.max()))
    return Changed("distribution", trace.predictions_title, before, after, float(gap.sum() / 2))


def _states(outputs: object) -> Tensor | None:
    """Return the last states of a text [token, dim]; None if the model does not return them."""
    states = getattr(outputs, "last_hidden_state", None)
    if not isinstance(states, torch.Tensor) or states.dim() != 3:  # noqa: PLR2004 - [batch, token, dim]
        return None
    return states[0].detach().double().cpu()
