"""Predictions under an intervention, computed from the first layer that it changes.

Blocks below that layer always return the same, so that they run only once: the first pass stores their
outputs, and later passes reuse them.
"""

from __future__ import annotations

import inspect
import weakref
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.anatomy.block_names import block_names
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import forward_parameters, recording
from attnwidgets.tracing.rerun_trace import own_logits, predictions_of
from attnwidgets.tracing.same_model import require_same_model
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


@dataclass(frozen=True)
class Preview:
    """Predictions under an intervention.

    Attributes:
        title: What is predicted: "class", "next token", ..., or "".
        before: The most probable outcomes in the trace.
        after: The most probable outcomes under the intervention.
        logits: All logits under the intervention, like `trace.logits`; None for models without logits.
    """

    title: str
    before: tuple[Prediction, ...]
    after: tuple[Prediction, ...]
    logits: Tensor | None


def preview(trace: Trace, *interventions: Intervention) -> Preview:
    """Return predictions under interventions; only the layers from the first changed one on run.

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
        # From here on a twin, so that changes to its blocks affect nobody else.
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
            target: The target to be read from the outputs (it may need hidden states).
        """
        skipped = self._skipped({call for intervention in interventions for call in intervention.where})
        options = pass_options(self._model)
        if target is not None and target.hidden_states:
            # The states of skipped layers would be missing.
            options["output_hidden_states"], skipped = True, {}
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
            # A block that several layers share counts its calls, and one that hands on its keys does more
            # than return states: all of them have to run.
            is_skippable = len(set(names)) == len(names) and not any(map(self._hands_on, names))
            counts[stack] = min(changed, default=len(names)) if is_skippable else 0
        return counts

    def _hands_on(self, name: str) -> bool:
        block = self._model.get_submodule(name)
        return "shared_kv_states" in inspect.signature(type(block).forward).parameters

    def _store(self, counts: Mapping[str, int], outputs: Mapping[str, list[Any]], exits: ExitStack) -> None:
        """Store the outputs of those first blocks that are not known yet."""
        for stack, count in counts.items():
            known = outputs[stack]
            for name in self._names[stack][len(known) : count]:

                def store(*given: Any, known: list[Any] = known) -> None:
                    known.append(copies_of(given[-1], 1))

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
                self._trace.call(self._model, self._trace.inputs, pass_options(self._model), {})
        return outputs


def pass_options(model: nn.Module) -> dict[str, Any]:
    """Return the arguments of a plain pass: outputs by name and, if the model has one, no cache."""
    no_cache = {"use_cache": False} if "use_cache" in forward_parameters(model) else {}
    return {"return_dict": True} | no_cache


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
    """Return copies of tensors with a batch of one, in new memory, because models may write into states."""
    if isinstance(value, torch.Tensor):
        if copies > 1 and value.dim() and len(value) == 1:
            return value.expand(copies, *value.shape[1:]).contiguous()
        return value.clone() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(copies_of(item, copies) for item in value)
    return value
