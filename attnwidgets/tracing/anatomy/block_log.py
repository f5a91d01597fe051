"""The blocks that ran in a pass, with the attention calls made in each."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from attnwidgets.tracing.anatomy.blocks import ATTENTION, Block, Mixer
from attnwidgets.tracing.anatomy.mixers import unrecorded_mixers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from attnwidgets.tracing.recording.recorder import Call

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""Modules whose elements may be blocks."""


@dataclass(eq=False)
class Run:
    """One run of an element of a module list: its list, its name there, and the attention calls in it."""

    module: nn.Module
    path: str
    child: str
    depth: int
    calls: list[int] = field(default_factory=list)


class BlockLog:
    """Keeps which elements of module lists ran, in order, and the attention calls made in each.

    Args:
        model: The model that is about to run.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._elements: dict[int, tuple[str, str]] = {}
        self._modules: dict[int, nn.Module] = {}
        for path, part in model.named_modules():
            if isinstance(part, LISTS):
                for child, element in part.named_children():
                    # Modules without parts are no blocks.
                    if next(element.children(), None) is not None:
                        self._elements.setdefault(id(element), (path, child))
                        self._modules[id(element)] = element
        self._open: list[Run] = []
        self._runs: list[Run] = []
        self._around: list[tuple[Run, ...]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep what runs until the block ends."""
        with ExitStack() as exits:
            for element in self._modules.values():
                exits.callback(element.register_forward_pre_hook(self._before, prepend=True).remove)
                exits.callback(element.register_forward_hook(self._after).remove)
            yield

    def _before(self, module: nn.Module, _: Any) -> None:
        run = Run(module, *self._elements[id(module)], len(self._open))
        self._open.append(run)
        self._runs.append(run)

    def _after(self, module: nn.Module, *_: Any) -> None:
        # A call that ended with an exception, which the model caught, leaves its entry behind.
        while self._open and self._open.pop().module is not module:
            pass

    def attention(self, index: int, _: Any) -> None:
        """Keep the blocks around an attention call: a reader of the recording."""
        for run in self._open:
            run.calls.append(index)
        self._around.append(tuple(self._open))

    def blocks(
        self, stacks: Mapping[str, Sequence[int]], calls: Sequence[Call]
    ) -> dict[str, tuple[Block, ...]]:
        """Return the blocks of every stack, in order.

        Args:
            stacks: By stack, the indices of its attention calls, one per layer.
            calls: All attention calls of the pass.

        Returns:
            By stack, the blocks of the lists in which it attends, numbered as in the list, or in the order in
            which they ran if one ran twice or they are in several lists. A stack whose calls are in no list,
            or in the same block, has a block of its own for each call.
        """
        recorded = {call.name for call in calls}
        where = {index: stack for stack, indices in stacks.items() for index in indices}
        return {stack: self._of(stack, indices, calls, where, recorded) for stack, indices in stacks.items()}

    def _of(
        self,
        stack: str,
        indices: Sequence[int],
        calls: Sequence[Call],
        where: Mapping[int, str],
        recorded: set[str],
    ) -> tuple[Block, ...]:
        own = set(indices)
        runs = [self._block(index, own) for index in indices]
        attending = [run for run in runs if run is not None]
        if len(attending) < len(runs):
            return tuple(
                Block(number, "", (_mixer(calls[index], stack),)) for number, index in enumerate(indices)
            )
        lists = {(run.path, run.depth) for run in attending}
        ran = [run for run in self._runs if (run.path, run.depth) in lists]
        names = [run.child for run in ran]
        counted = len(lists) > 1 or len(set(names)) < len(names) or not all(map(str.isdigit, names))
        blocks = [
            Block(
                number if counted else int(run.child),
                f"{run.path}.{run.child}".lstrip("."),
                tuple(_mixer(calls[index], where[index]) for index in run.calls if index in where),
                is_recorded=bool(own.intersection(run.calls)),
            )
            for number, run in enumerate(ran)
        ]
        if stack == "cross":
            return tuple(block for block in blocks if block.is_recorded)
        return tuple(
            replace(block, mixers=(*block.mixers, *unrecorded_mixers(run.module, block.path, recorded)))
            for block, run in zip(blocks, ran, strict=True)
        )

    def _block(self, call: int, own: set[int]) -> Run | None:
        """Return the outermost element around a call that holds no other call of its stack."""
        alone = (run for run in self._around[call] if len(own.intersection(run.calls)) == 1)
        return next(alone, None)


def _mixer(call: Call, stack: str) -> Mixer:
    return Mixer(ATTENTION, call.name, stack, call.query.shape[1], call.key.shape[1])
