"""The heads of blocks, numbered as in their maps: those of attention, then those of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.anatomy.blocks import overlap
from attnwidgets.tracing.layers import is_trace
from attnwidgets.tracing.mixers.calls import watch_kernels
from attnwidgets.tracing.mixers.kernels import Identity
from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attnwidgets.tracing.anatomy.attention_modules import AttentionModule
    from attnwidgets.tracing.anatomy.blocks import Block


@dataclass(frozen=True)
class KernelModule:
    """A module that mixes tokens by a kernel, and the numbers of its heads.

    Attributes:
        name: Its name in the model.
        kind: How it mixes tokens, in words.
        n_heads: Its number of heads; 0 if every channel has a separate kernel, or none has a kernel. A single
            number then stands for all channels.
        first: The number of its first head in the block.
        is_convolved: Whether a short convolution makes the values.
        is_convolution: Whether it alone mixes the tokens, without a kernel.
    """

    name: str
    kind: str
    n_heads: int
    first: int
    is_convolved: bool = False
    is_convolution: bool = False

    @property
    def numbers(self) -> range:
        """The numbers of its heads in the block, or the number that stands for all channels."""
        return range(self.first, self.first + max(self.n_heads, 1))


@dataclass(frozen=True)
class BlockHeads:
    """The heads of a block, in the order of its maps.

    Attributes:
        attention: Its attention module; None if it does not attend, or attention was not recorded.
        kernels: Its modules that mix tokens by kernels.
    """

    attention: AttentionModule | None
    kernels: tuple[KernelModule, ...] = ()

    @property
    def attending(self) -> range | None:
        """The numbers of its heads of attention; None if their count is unknown without a trace."""
        if self.attention is None:
            return range(0)
        return None if self.attention.n_heads is None else range(self.attention.n_heads)

    def numbers(self, *, channels: bool) -> tuple[int, ...] | None:
        """Return the numbers of all heads; None if they are unknown without a trace.

        Args:
            channels: Whether to count the numbers that stand for all channels of a kernel without heads.
        """
        if self.attending is None:
            return None
        kernels = (kernel for kernel in self.kernels if channels or kernel.n_heads)
        return (*self.attending, *(number for kernel in kernels for number in kernel.numbers))

    def of_attention(self, numbers: Iterable[int]) -> list[int]:
        """Return those of some numbers that are heads of attention."""
        return [number for number in numbers if self.attending is None or number in self.attending]


def heads_of_blocks(model: Any, stack: str | None) -> tuple[str, dict[int, BlockHeads]]:
    """Return a stack's name and the heads of its blocks, by their numbers.

    Args:
        model: A model, whose attention alone can be read without a run, or a trace of it.
        stack: Name of the stack; None for the default.

    Raises:
        ValueError: If the stack is unknown, or nothing in it can be changed.
    """
    kernels = kernel_modules(model, stack)
    if kernels and is_trace(model) and not model.has_attention(stack):
        name = model.default_stack if stack is None else stack
        return name, {number: BlockHeads(None, modules) for number, modules in kernels.items()}
    name, attending = sites_of(model, stack)
    blocks = {
        number: BlockHeads(attending.get(number), kernels.get(number, ()))
        for number in sorted({*attending, *kernels})
    }
    return name, blocks


def sites_of(model: Any, stack: str | None) -> tuple[str, Mapping[int, AttentionModule]]:
    """Return a stack's name and its attention modules by layer.

    Raises:
        ValueError: If the stack is unknown.
    """
    table = sites(model)
    if stack is None:
        preferred = (name for name in ("self", "encoder", "text") if name in table)
        stack = next(preferred, next(iter(table)))
    if stack not in table:
        raise ValueError(f"stack {stack!r} is not one of {listed(table)}.{suggest(stack, table)}")
    return stack, table[stack]


def kernel_modules(model: Any, stack: str | None) -> dict[int, tuple[KernelModule, ...]]:
    """Return the modules of a stack that mix tokens by kernels, by block; {} without a trace."""
    table = model.stack_table if is_trace(model) else {}
    name = model.default_stack if stack is None and table else stack
    if name not in table or model.model is None:
        return {}
    by_block = {block.number: _kernels_of(block, table[name].mixing) for block in table[name].blocks}
    return {number: modules for number, modules in by_block.items() if modules}


def _kernels_of(block: Block, runs: Mapping[int, Any]) -> tuple[KernelModule, ...]:
    mixes = runs[block.number].mixes if block.number in runs else ()
    kernels = []
    first = 0
    for mixer in block.mapped:
        mix = next((mix for mix in mixes if mixer.is_measured and overlap(mixer.path, mix.path)), None)
        if mix is not None:
            is_convolution = isinstance(mix.kernel, Identity)
            convolved = mix.convolution is not None, is_convolution
            kernels.append(KernelModule(mix.path, mixer.kind, mixer.heads, first, *convolved))
        first += max(mixer.heads, 1)
    return tuple(kernels)


def require_known_kernels(model: Any, purpose: str) -> None:
    """Raise an error if a model may mix tokens by kernels, which only a trace of it knows.

    Raises:
        UnsupportedModelError: The message names the remedy.
    """
    if not is_trace(model) and watch_kernels(modules_of(unwrap(model))):
        raise UnsupportedModelError(
            f"{purpose} has to reach the blocks of {type(unwrap(model)).__name__} that mix tokens without "
            "attention, which a trace knows: pass a trace of the model."
        )
