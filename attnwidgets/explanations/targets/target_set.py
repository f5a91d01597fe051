"""What is asked of a differentiable method: targets, foils, and the numbers they are in a model's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.targets.named import resolve_target, resolve_targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class TargetSet:
    """Targets to explain, each less its foil where there is one.

    Attributes:
        targets: The targets.
        foils: What each is contrasted with; None for nothing.
        several: Whether a list of targets was asked for, so that results have a target axis.
    """

    targets: tuple[Target, ...]
    foils: tuple[Target, ...] | None
    several: bool

    @property
    def hidden_states(self) -> bool:
        """Whether the model must return hidden states."""
        return any(one.hidden_states for one in (*self.targets, *(self.foils or ())))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of how targets and foils were named."""
        return tuple(one.note for one in (*self.targets, *(self.foils or ())))

    def scores(self, outputs: Any) -> list[Tensor]:
        """Return the number of each target, less its foil's, in the outputs of a batch: [batch] each."""
        found = [one.score(outputs) for one in self.targets]
        if self.foils is None:
            return found
        return [score - foil.score(outputs) for score, foil in zip(found, self.foils, strict=True)]

    def losses(self, outputs: Any) -> list[Tensor]:
        """Return the loss of each target, less its foil's: -log p of a class or token, else -score."""
        found = [_loss(one, outputs) for one in self.targets]
        if self.foils is None:
            return found
        return [loss - _loss(foil, outputs) for loss, foil in zip(found, self.foils, strict=True)]

    def single(self, method: str) -> TargetSet:
        """Return this, where one target is asked for.

        Raises:
            ValueError: Where a list was given.
        """
        if self.several:
            raise ValueError(
                f"{method} explains one target at a time; call it for each of the {len(self.targets)}."
            )
        return self

    def parts(self, size: int) -> Iterator[TargetSet]:
        """Yield this in parts of so many targets."""
        for first in range(0, len(self.targets), size):
            part = slice(first, first + size)
            yield TargetSet(
                self.targets[part], None if self.foils is None else self.foils[part], several=True
            )

    def of(self, values: Any) -> Any:
        """Return [target, ...] as it is where several were asked for, else its only element."""
        return values if self.several else values[0]

    def reach(self, trace: Trace, stack: str) -> tuple[int, ...] | None:
        """Return how many of a stack's tokens each target is read from; None where that is all of them.

        A logit at a position of a causal model depends on the tokens up to there.
        """
        logits, table = trace.logits, trace.stack_table.get(stack)
        predicts = "decoder" if "decoder" in trace.stacks else trace.default_stack
        if logits is None or table is None or not table.layers or stack != predicts:
            return None
        count = len(trace.axes(stack)[0])
        if len(logits) != count or not trace.is_causal(stack):
            return None

        def read(target: Target) -> int:
            return count if target.position is None else target.position + 1

        foils = self.foils or self.targets
        found = tuple(max(read(one), read(foil)) for one, foil in zip(self.targets, foils, strict=True))
        return None if min(found) == count else found

    def names(self) -> dict[str, Any]:
        """Return the labels of targets and foil, as `Attributions` takes them."""
        return {
            "target": self.of([one.label for one in self.targets]),
            "foil": None if self.foils is None else self.foils[0].label,
        }


def _loss(target: Target, outputs: Any) -> Tensor:
    if target.index is None:
        return -target.score(outputs)
    from attnwidgets.tracing.precision import widened

    logits: Tensor = outputs.logits if target.position is None else outputs.logits[:, target.position]
    return -widened(logits).log_softmax(-1)[:, target.index]


def asked(trace: Any, target: Any, foil: Any, method: str) -> TargetSet:
    """Return what is asked of a trace.

    Raises:
        ValueError: Where a target is its own foil, or as `resolve_target` says.
        TypeError, IndexError: as `resolve_target` says.
    """
    require_trace(trace, method)
    traced = cast("Trace", trace)
    targets = resolve_targets(traced, target, method=method)
    foils = None
    if foil is not None:
        foils = tuple(resolve_target(traced, foil, method=method, name="foil", like=one) for one in targets)
        for one, other in zip(targets, foils, strict=True):
            if one.index is not None and (one.index, one.position) == (other.index, other.position):
                raise ValueError(
                    f"foil {other.label!r} is the target itself, so that every number would be zero; name "
                    "another one, or leave it out."
                )
    return TargetSet(targets, foils, isinstance(target, (list, tuple)))
