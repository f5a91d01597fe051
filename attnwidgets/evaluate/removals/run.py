"""The same questions put to the model about each of several inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from attnwidgets.evaluate.examples.explained_input import watched
from attnwidgets.evaluate.removals.ordering import answered
from attnwidgets.evaluate.removals.removal import removable, removing
from attnwidgets.explanations.targets.named import resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import Order, Questions
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.explanations.targets.resolve import Target

T = TypeVar("T")


def of_each_input(
    inputs: Sequence[ExplainedInput],
    target: Any,
    operator: Operator,
    questions: Callable[[int, ExplainedInput, Order, Target], Questions[T]],
    *,
    function: str,
    special: bool,
    batch_size: int,
) -> list[T]:
    """Return what the questions about every input come to, in order, under one progress bar.

    Args:
        inputs: What is explained.
        target: What is read of the prediction, as every method takes it.
        operator: How elements are removed.
        questions: Takes the number of an input, the input, what of it can be removed, and the target; yields
            what is to be removed, and returns what follows.
        function: Who asks.
        special: Whether special tokens can be removed.
        batch_size: Inputs that run together.

    Raises:
        ValueError: For an operator that is not possible, or a target that is not to be had.
    """
    found = []
    for number, one in enumerate(watched(inputs)):
        meant = resolve_target(one.trace, target, method=function)
        features = removable(one.trace, one.unit, one.stack, meant, special=special)
        with removing(
            one.trace,
            operator,
            meant,
            unit=one.unit,
            stack=one.stack,
            batch_size=batch_size,
            watched=len(inputs) == 1,
        ) as ask:
            found.append(answered(questions(number, one, features, meant), ask))
    return found
