"""The blocks that ran in a pass, the attention calls made in each, and mixers that were not recorded.

A `BlockLog` hooks the elements of all module lists. The lists whose elements contain a single attention call
of a stack are its blocks. Operations without recorded attention are recognised by the names of their classes
(`unrecorded_mixers`).
"""

from __future__ import annotations

import functools
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from attnwidgets.tracing.anatomy.block_names import is_attention
from attnwidgets.tracing.anatomy.blocks import ATTENTION, DIFFERENTIAL, UNKNOWN, Block, Mixer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from attnwidgets.tracing.recording.calls import Call, FollowedCall

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""Modules whose elements may be blocks."""

# Kinds by the names of classes; the first that fits.
_KINDS = (
    ("gated delta rule", re.compile(r"delta")),
    ("state space", re.compile(r"mamba|statespace|falconh1mixer|bambamixer")),
    ("linear attention", re.compile(r"lightning|linear_?attn|linear_?attention|retention")),
    ("recurrence", re.compile(r"recurrent|rglru|rg_lru|[msx]lstm|rwkv\w*attention|rwkv\w*timemix")),
    ("convolution", re.compile(r"short_?conv|convolution")),
    ("Fourier transform", re.compile(r"fourier")),
    ("pooling", re.compile(r"pooling$")),
)
# Parts that bear the name of their mixer and mix nothing themselves, and blocks named after their parts.
_PARTS = re.compile(
    r"norm|embedding|rotary|mlp|feed_?forward|cache|expert|router|activation|dropout|(coder|hybrid)layer$|block$"
)
_LAYER = re.compile(r"(coder|hybrid)layer$")
_WORKS_ALONE = re.compile(r"mlp|moe|experts|feed_?forward|ffn")


@dataclass(eq=False)
class Run:
    """A run of an element of a module list: its list, its name in the list, and its attention calls."""

    module: nn.Module
    path: str
    child: str
    depth: int
    calls: list[int] = field(default_factory=list)


class BlockLog:
    """Logs which elements of module lists run, in order, and the attention calls made in each.

    Args:
        modules: Those of the model that is about to run, by name.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._elements: dict[int, tuple[str, str]] = {}
        self._modules: dict[int, nn.Module] = {}
        self._named = modules
        self._attentions = attending(modules.values())
        for path, part in self._named.items():
            if isinstance(part, LISTS):
                for child, element in part.named_children():
                    # A module without submodules is not a block.
                    if next(element.children(), None) is not None:
                        self._elements.setdefault(id(element), (path, child))
                        self._modules[id(element)] = element
        self._ran: set[nn.Module] = set()
        self._open: list[Run] = []
        self._runs: list[Run] = []
        self._around: list[tuple[Run, ...]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Log the modules that run until the `with` block ends."""
        with ExitStack() as exits:
            for element in self._modules.values():
                exits.callback(element.register_forward_pre_hook(self._before, prepend=True).remove)
                exits.callback(element.register_forward_hook(self._after).remove)
            for attention in self._attentions:
                exits.callback(attention.register_forward_pre_hook(self._attends).remove)
            yield

    def _attends(self, module: nn.Module, _: Any) -> None:
        self._ran.add(module)

    def _before(self, module: nn.Module, _: Any) -> None:
        run = Run(module, *self._elements[id(module)], len(self._open))
        self._open.append(run)
        self._runs.append(run)

    def _after(self, module: nn.Module, *_: Any) -> None:
        # A call that ended with an exception, which the model caught, leaves its entry behind.
        while self._open and self._open.pop().module is not module:
            pass

    def attention(self, index: int, _: Any) -> None:
        """Log the blocks around an attention call: a reader of the recording."""
        for run in self._open:
            run.calls.append(index)
        self._around.append(tuple(self._open))

    def blocks(
        self, stacks: Mapping[str, Sequence[int]], calls: Sequence[Call | FollowedCall]
    ) -> dict[str, tuple[Block, ...]]:
        """Return the blocks of every stack, in order.

        Args:
            stacks: By stack, the indices of its attention calls, one per layer.
            calls: All attention calls of the pass.

        Returns:
            By stack, the blocks of the lists in which it attends, numbered as in the list, or in the order in
            which they ran if a block ran twice or they are in several lists. A stack whose calls are in no
            list has a block for each call. Other lists whose blocks attend, unrecorded, are added by path.
        """
        recorded = {call.name for call in calls}
        stack_of = {index: stack for stack, indices in stacks.items() for index in indices}
        blocks: dict[str, tuple[Block, ...]] = {}
        attending: set[str] = set()
        for stack, indices in stacks.items():
            runs = self._runs_around(indices)
            attending.update(run.path for run in runs)
            blocks[stack] = tuple(
                self._recorded(block, run, stack, calls, stack_of)
                for block, run in zip(_numbered(runs), runs, strict=True)
            )
            if stack == "cross":
                blocks[stack] = tuple(block for block in blocks[stack] if block.is_recorded)
            else:
                blocks[stack] = tuple(
                    self._with_others(block, run, recorded)
                    for block, run in zip(blocks[stack], runs, strict=True)
                )
            if not runs:
                blocks[stack] = tuple(
                    Block(number, "", (self._mixer(calls[index], stack),))
                    for number, index in enumerate(indices)
                )
        others = self._other_lists(attending, recorded)
        return blocks | {path: rest for path, rest in others.items() if ATTENTION in _kinds(rest)}

    def mixing(self) -> tuple[Block, ...]:
        """Return the blocks of the only list that mixes tokens; () if several lists do, or none."""
        lists = self._other_lists(set(), set()).values()
        mixing = [blocks for blocks in lists if _kinds(blocks) - {UNKNOWN}]
        return mixing[0] if len(mixing) == 1 else ()

    def without_attention(self) -> tuple[Block, ...]:
        """Return `mixing`, if no block attends; else ()."""
        blocks = self.mixing()
        return () if ATTENTION in _kinds(blocks) else blocks

    def _runs_around(self, indices: Sequence[int]) -> list[Run]:
        """Return the runs of the elements of the lists in which calls of a stack were made; [] if in none."""
        of_stack = set(indices)
        # The block of a call is the outermost element around it that holds no other call of its stack.
        around = [
            next((run for run in self._around[index] if len(of_stack.intersection(run.calls)) == 1), None)
            for index in indices
        ]
        lists = {(run.path, run.depth) for run in around if run is not None}
        # An element with several calls contains another list of blocks.
        single = [run for run in self._runs if len(of_stack.intersection(run.calls)) <= 1]
        return [] if None in around else [run for run in single if (run.path, run.depth) in lists]

    def _recorded(
        self,
        block: Block,
        run: Run,
        stack: str,
        calls: Sequence[Call | FollowedCall],
        stack_of: Mapping[int, str],
    ) -> Block:
        """Return a block of a stack with its recorded attention; of "cross", with cross-attention only."""
        shown = [index for index in run.calls if index in stack_of]
        if stack == "cross":
            shown = [index for index in shown if stack_of[index] == stack]
        return replace(
            block,
            mixers=tuple(self._mixer(calls[index], stack_of[index]) for index in shown),
            is_recorded=any(stack_of[index] == stack for index in shown),
        )

    def _with_others(self, block: Block, run: Run, recorded: set[str]) -> Block:
        """Return a block with its unrecorded mixers added."""
        others = unrecorded_mixers(run.module, block.path, recorded, self._ran)
        return replace(block, mixers=(*block.mixers, *others))

    def _other_lists(self, attending: set[str], recorded: set[str]) -> dict[str, tuple[Block, ...]]:
        """Return the blocks of the outermost lists that ran and in which no stack attends, by path."""
        lists: dict[str, list[Run]] = {}
        for run in self._runs:
            if run.depth == 0 and run.path not in attending:
                lists.setdefault(run.path, []).append(run)
        return {
            path: tuple(
                self._with_others(replace(block, is_recorded=False), run, recorded)
                for block, run in zip(_numbered(runs), runs, strict=True)
            )
            for path, runs in lists.items()
        }

    def _mixer(self, call: Call | FollowedCall, stack: str) -> Mixer:
        module = self._named.get(call.name)
        kind = DIFFERENTIAL if module is not None and subtracts(module) else ATTENTION
        return Mixer(kind, call.name, stack, call.shape[1], call.kv_heads)


def _kinds(blocks: Sequence[Block]) -> set[str]:
    return {mixer.kind for block in blocks for mixer in block.mixers}


def _numbered(runs: Sequence[Run]) -> list[Block]:
    """Return the blocks of runs, with their numbers and paths."""
    names = [run.child for run in runs]
    is_list = len({run.path for run in runs}) == 1 and len(set(names)) == len(names)
    numbers = [int(name) for name in names] if is_list and all(map(str.isdigit, names)) else range(len(names))
    return [
        Block(number, f"{run.path}.{run.child}".lstrip("."), ())
        for number, run in zip(numbers, runs, strict=True)
    ]


def attends(module: nn.Module) -> bool:
    """Return whether a module is named as a softmax attention and does not wrap another such module."""
    return _is_attention(module) and not any(
        _is_attention(part) for part in module.modules() if part is not module
    )


def attending(modules: Collection[nn.Module]) -> list[nn.Module]:
    """Return the modules of a model that attend; see `attends`."""
    # Few classes are named as an attention, and every trace asks.
    kinds = {
        kind for kind, module in {type(module): module for module in modules}.items() if is_attention(module)
    }
    return [module for module in modules if type(module) in kinds and attends(module)]


def subtracts(module: nn.Module) -> bool:
    """Return whether a module subtracts heads of its attention from others (differential attention)."""
    own = module._parameters  # noqa: SLF001 - every module is looked at in every trace
    return bool(own) and any(name.startswith("lambda_q") and own[name] is not None for name in own)


def unrecorded_mixers(
    block: nn.Module, path: str, recorded: Collection[str], ran: Collection[nn.Module]
) -> tuple[Mixer, ...]:
    """Return the mixers of a block besides the attention modules that were recorded.

    Args:
        block: The block.
        path: Its path in the model.
        recorded: Paths of the modules whose attention was recorded.
        ran: The attention modules that ran: others, such as a decoder's cross-attention without an encoder,
            mix nothing.

    Returns:
        Mixers in the order of the modules; a mixer of kind "unknown" if no module of the block is recognised
        as a mixer or as working on every token alone.
    """
    mixers = tuple(_mixers(block, path, recorded, ran))
    if mixers or any(name == path or name.startswith(f"{path}.") for name in recorded):
        return mixers
    kinds = [type(part).__name__.lower() for part in block.modules()]
    return () if any(map(_WORKS_ALONE.search, kinds)) else (Mixer(UNKNOWN, path),)


def _mixers(
    module: nn.Module, path: str, recorded: Collection[str], ran: Collection[nn.Module]
) -> Iterator[Mixer]:
    if path in recorded:
        return
    kind = _kind(module) or (ATTENTION if module in ran else "")
    if kind and not any(name.startswith(f"{path}.") for name in recorded):
        yield Mixer(kind, path)
        return
    for name, part in module.named_children():
        yield from _mixers(part, f"{path}.{name}", recorded, ran)


def _kind(module: nn.Module) -> str:
    """Return how a module mixes tokens other than by attention; "" if it is not recognised as a mixer."""
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return "recurrence"
    if isinstance(module, (nn.Conv1d, nn.Conv2d)):
        return "convolution" if max(module.kernel_size) > 1 else ""
    if isinstance(module, nn.ZeroPad2d) and module.padding[2] == -module.padding[3] != 0:
        return "token shift"  # rows are tokens: as many are added before the first as are cut off at the end
    return _kind_named(type(module).__name__.lower())


@functools.lru_cache
def _kind_named(name: str) -> str:
    if _PARTS.search(name):
        return ""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "")


def _is_attention(module: nn.Module) -> bool:
    # A layer may be named after its mixer: OlmoHybridLinearAttentionDecoderLayer holds a delta rule.
    if not is_attention(module) or _kind(module) or _LAYER.search(type(module).__name__.lower()):
        return False
    return next(module.parameters(), None) is not None
