"""The targets and foils of a method that explains numbers, and their scores in a model's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.targets.named import resolve_target, resolve_targets
from attnwidgets.explanations.targets.resolve import head_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class TargetSet:
    """Targets to explain, each less its foil, if any.

    Attributes:
        targets: The targets.
        foils: The foil of each target; None without foils.
        several: Whether the user gave a list of targets, so that results have a target axis.
    """

    targets: tuple[Target, ...]
    foils: tuple[Target, ...] | None
    several: bool

    @property
    def _members(self) -> tuple[Target, ...]:
        return (*self.targets, *(self.foils or ()))

    @property
    def reads(self) -> tuple[str, ...]:
        """Options of a call for the outputs that scores read besides logits; see `Target`."""
        return tuple(dict.fromkeys(name for target in self._members for name in target.reads))

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on how targets and foils were named."""
        return tuple(target.note for target in self._members)

    def scores(self, outputs: Any) -> list[Tensor]:
        """Return the score of each target, less its foil's, in the outputs of a batch: [batch] each."""
        return self._contrast(lambda target: target.score(outputs))

    def losses(self, outputs: Any) -> list[Tensor]:
        """Return the loss of each target, less its foil's: -log p of a class or token, else -score."""
        return self._contrast(lambda target: _loss(target, outputs))

    def _contrast(self, number: Callable[[Target], Tensor]) -> list[Tensor]:
        numbers = [number(target) for target in self.targets]
        if self.foils is None:
            return numbers
        return [score - number(foil) for score, foil in zip(numbers, self.foils, strict=True)]

    def single(self, method: str) -> TargetSet:
        """Return this set if it has a single target that was not given in a list.

        Raises:
            ValueError: If the user gave a list.
        """
        if self.several:
            raise ValueError(
                f"{method} explains one target at a time; call it for each of the {len(self.targets)}."
            )
        return self

    def parts(self, size: int) -> Iterator[TargetSet]:
        """Yield this set in parts of at most `size` targets."""
        for first in range(0, len(self.targets), size):
            part = slice(first, first + size)
            foils = None if self.foils is None else self.foils[part]
            yield TargetSet(self.targets[part], foils, several=True)

    def of(self, values: Any) -> Any:
        """Return values [target, ...] as they are for a list of targets, else their only element."""
        return values if self.several else values[0]

    def reach(self, trace: Trace, stack: str) -> tuple[int, ...] | None:
        """Return the number of a stack's first tokens that each target depends on; None if all.

        A logit at a position of a causal model depends on the tokens up to that position.
        """
        logits, table = trace.logits, trace.stack_table.get(stack)
        predicting = "decoder" if "decoder" in trace.stacks else trace.default_stack
        if logits is None or table is None or not table.layers or stack != predicting:
            return None
        count = len(trace.axes(stack)[0])
        if len(logits) != count or not trace.is_causal(stack):
            return None
        ends = [count if target.position is None else target.position + 1 for target in self._members]
        n_targets = len(self.targets)
        reaches = tuple(map(max, ends[:n_targets], ends[-n_targets:]))
        return None if min(reaches) == count else reaches

    def names(self) -> dict[str, Any]:
        """Return the labels of targets and foil, as `Attributions` takes them."""
        return {
            "target": self.of([target.label for target in self.targets]),
            "foil": None if self.foils is None else self.foils[0].label,
        }


def _loss(target: Target, outputs: Any) -> Tensor:
    if target.index is None:
        return -target.score(outputs)
    from attnwidgets._tensors import widened

    logits = head_of(outputs)
    logits = logits if target.position is None else logits[:, target.position]
    return -widened(logits).log_softmax(-1)[:, target.index]


def resolve_target_set(trace: Any, target: Any, foil: Any, method: str) -> TargetSet:
    """Return the targets that `target` names, with their foils.

    Raises:
        ValueError: If a target equals its foil; see also `resolve_target`.
        TypeError, IndexError: See `resolve_target`.
    """
    require_trace(trace, method)
    traced = cast("Trace", trace)
    targets = resolve_targets(traced, target, method=method)
    foils = None
    if foil is not None:
        foils = tuple(resolve_target(traced, foil, method=method, name="foil", like=item) for item in targets)
        for item, contrast in zip(targets, foils, strict=True):
            if item.index is not None and (item.index, item.position) == (
                contrast.index,
                contrast.position,
            ):
                raise ValueError(
                    f"foil {contrast.label!r} is the target itself, so that every number would be zero; name "
                    "another one, or leave it out."
                )
    return TargetSet(targets, foils, isinstance(target, (list, tuple)))
