"""What is predicted under an intervention, computed from the first layer that it changes.

Below the first layer that is changed a block returns what it always returns, so that it need run once only:
the first pass that comes by keeps it, and in later ones the block hands it out.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.block_names import block_names
from attnwidgets.tracing.interventions import require_same_interventions
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import forward_parameters, recording
from attnwidgets.tracing.rerun_trace import own_logits, predictions_of
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn
    from typing_extensions import Self

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.prediction import Prediction

# What the first blocks of a trace returned, by stack; it goes when the trace goes.
_returned: weakref.WeakKeyDictionary[Trace, dict[str, list[Any]]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Preview:
    """What is predicted under an intervention.

    Attributes:
        title: What is predicted: "class", "next token", ..., or "".
        before: The most probable outputs as the trace has them.
        after: The same under the intervention.
        logits: All logits under the intervention, as `trace.logits`; None without a head.
    """

    title: str
    before: tuple[Prediction, ...]
    after: tuple[Prediction, ...]
    logits: Tensor | None


def preview(trace: Trace, *interventions: Intervention) -> Preview:
    """Return what is predicted with interventions in force; only the layers from the first of them on run.

    Args:
        trace: A trace of a model.
        interventions: Made for this trace or its model, not entered.

    Raises:
        ValueError: If the trace has no model, or was recorded under other interventions than are in force.
    """
    with Replay(trace) as replay:
        outputs = replay.run(interventions)
    logits = own_logits(trace, outputs)
    title, after = predictions_of(trace, logits)
    return Preview(title, trace.predicted[1], after, logits)


class Replay:
    """A trace's model held ready to run on its input from a layer on; a context manager."""

    def __init__(self, trace: Trace) -> None:
        from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

        if not isinstance(trace, Trace) or trace.model is None:
            raise UnsupportedModelError(
                "a preview runs the model, and this trace has none; make it with aw.trace(model, ...)"
            )
        require_same_interventions(trace, "a preview")
        self._trace = trace
        self._model = unwrap(trace.model)
        self._names = block_names(trace, self._model)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # The twin from here on: what is done to its blocks is nobody else's business.
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
        """Return what the model returns under interventions.

        Args:
            interventions: Entered for this pass.
            copies: How many copies of the input run at once.
            target: What the outputs are read for (it may need hidden states).
        """
        where = {place for one in interventions for place in one.where}
        kept = self._kept(where)
        options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in forward_parameters(self._model):
            options["use_cache"] = False
        if target is not None and target.hidden_states:
            # The states of layers that do not run would be missing.
            options["output_hidden_states"], kept = True, {}
        inputs = {name: _copied(value, copies) for name, value in self._trace.inputs.items()}
        returned = self._outputs(kept, copies)
        with ExitStack() as exits:
            for one in interventions:
                exits.enter_context(one)
            # The first blocks were recorded so; nothing of it is to differ by rounding.
            exits.enter_context(recording(self._model))
            exits.enter_context(self._short(kept, returned, copies))
            self._keep(kept, returned, exits)
            return self._trace.call(self._model, inputs, options, {})

    def _kept(self, where: set[tuple[str, int]]) -> dict[str, int]:
        """Return how many of the first blocks of every stack are not run."""
        found = {}
        for stack, names in self._names.items():
            if stack == "encoder":
                touched = [layer for one, layer in where if one == stack]
            elif stack == "decoder":
                touched = [0 if one == "encoder" else layer for one, layer in where]
            else:
                touched = [layer for one, layer in where if one == stack or len(self._names) == 1]
            # A block that is several layers counts its calls to know which it is.
            found[stack] = min(touched, default=len(names)) if len(set(names)) == len(names) else 0
        return found

    @contextmanager
    def _short(
        self, kept: Mapping[str, int], returned: Mapping[str, list[Any]], copies: int
    ) -> Iterator[None]:
        """Let the first blocks hand out what they returned when the trace was made."""
        patched: list[nn.Module] = []
        try:
            for stack, count in kept.items():
                for layer, name in enumerate(self._names[stack][: min(count, len(returned[stack]))]):
                    module = self._model.get_submodule(name)
                    _shorten(module, returned[stack][layer], copies)
                    patched.append(module)
            yield
        finally:
            for module in patched:
                del module.forward

    def _keep(self, kept: Mapping[str, int], returned: Mapping[str, list[Any]], exits: ExitStack) -> None:
        """Keep what those of the first blocks return that are not known yet."""
        for stack, count in kept.items():
            own = returned[stack]
            for name in self._names[stack][len(own) : count]:

                def keep(*given: Any, own: list[Any] = own) -> None:
                    own.append(_copied(given[-1], 1))

                exits.callback(self._model.get_submodule(name).register_forward_hook(keep).remove)

    def _outputs(self, kept: Mapping[str, int], copies: int) -> Mapping[str, list[Any]]:
        """Return what is known of the first blocks of every stack; all that is needed where copies run."""
        found = _returned.setdefault(self._trace, {stack: [] for stack in self._names})
        if copies > 1 and any(len(found[stack]) < count for stack, count in kept.items()):
            options: dict[str, Any] = {"return_dict": True}
            if "use_cache" in forward_parameters(self._model):
                options["use_cache"] = False
            with ExitStack() as exits:
                for own in found.values():
                    own.clear()
                whole = {stack: len(names) for stack, names in self._names.items() if kept.get(stack)}
                self._keep(whole, found, exits)
                exits.enter_context(recording(self._model))
                self._trace.call(self._model, self._trace.inputs, options, {})
        return found


def _shorten(module: nn.Module, output: Any, copies: int) -> None:
    """Let a block hand out what it returned."""

    def short(*_: Any, **__: Any) -> Any:
        return _copied(output, copies)

    # On the instance, where `del` finds the class's own again.
    module.forward = short


def _copied(value: Any, copies: int) -> Any:
    """Return copies of what has a batch of one; fresh memory, since models may write into states."""
    if isinstance(value, torch.Tensor):
        if copies > 1 and value.dim() and len(value) == 1:
            return value.expand(copies, *value.shape[1:]).contiguous()
        return value.clone() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(_copied(item, copies) for item in value)
    return value
