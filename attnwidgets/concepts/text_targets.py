"""One target for many inputs: a class for all of them, or a token in each one's own row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.concepts.batches import Batch, Inputs
    from attnwidgets.explanations.targets.target_set import TargetSet


class TextTargets:
    """The target of every input, and its value in a batch's outputs.

    Args:
        inputs: The inputs.
        target: The target, as every method takes it; None for what the model predicts for the first input.
        foil: What it is contrasted with, or None.

    Attributes:
        label: What it is called.
        hidden: Whether it reads the last hidden state.
        shared: Whether it is the same number in every input's outputs, as a class is; a token's row is not.
    """

    def __init__(self, inputs: Inputs, target: Any, foil: Any) -> None:
        self._inputs, self._named = inputs, (target, foil)
        self._first = self._of(inputs.first)
        names = self._first.names()
        self.label = str(names["target"]) + (f" rather than {names['foil']}" if names["foil"] else "")
        self.hidden = self._first.hidden_states
        members = (*self._first.targets, *(self._first.foils or ()))
        self.shared = all(each.index is not None and each.position is None for each in members)

    def _of(self, trace: Any) -> TargetSet:
        return resolve_target_set(trace, *self._named, self._inputs.purpose).single(self._inputs.purpose)

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        """Return the value of every input of a batch [text]."""
        trace = batch.reads[0].trace
        return (self._first if trace is None else self._of(trace)).scores(outputs)[0]
