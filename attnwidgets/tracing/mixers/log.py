"""Records the modules that mix tokens while a model runs, with their inputs, and the blocks around them.

A mixing module is the innermost module that calls a kernel (or convolution) and returns the output of a
linear projection; the steps between kernel and projection are read off as a factor (`Mix`).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.steps import is_norm
from attnwidgets.tracing.anatomy.block_log import LISTS
from attnwidgets.tracing.mixers.calls import (
    CONVOLUTION,
    KernelCall,
    handling,
    lightning_attention,
    matrix_memory,
    read_call,
    watch_kernels,
)
from attnwidgets.tracing.mixers.convolutions import (
    Convolved,
    fitting,
    floating,
    function_convolution,
    module_convolution,
    shifted,
)
from attnwidgets.tracing.mixers.kernels import AttentionWeights, DifferentialAttention, Identity, Joined
from attnwidgets.tracing.mixers.mix import Mix, MixedBlock
from attnwidgets.tracing.mixers.recurrences import TimeMix
from attnwidgets.tracing.recording.attention_function import repeat_heads
from attnwidgets.tracing.recording.borrow import origin
from attnwidgets.tracing.recording.returned import is_half

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from attnwidgets.tracing.anatomy.blocks import Block
    from attnwidgets.tracing.recording.calls import Call, FollowedCall


_NOT_ADDED = 1e-6  # a factor so small is rounding
_TOKENS_TRIED = 16  # on which the factors of a block's sum are fitted
_SPREADS = 4  # standard errors within which a factor counts as 1


@dataclass
class _Part:
    """A finished call of a module: its inputs, the first states among them, and its output."""

    module: nn.Module
    inputs: tuple[Any, ...]
    states: Tensor
    output: Tensor


@dataclass
class _Frame:
    """A running module: its inputs, and the calls of parts in it that no module has claimed yet."""

    module: nn.Module
    path: str
    inputs: tuple[Any, ...]
    kernels: list[KernelCall] = field(default_factory=list)
    convolutions: list[Convolved] = field(default_factory=list)
    # Finished calls of its direct parts, by their names.
    parts: dict[str, _Part] = field(default_factory=dict)
    # The calls of mixing modules in it, if it is a block.
    mixes: list[Mix] = field(default_factory=list)


class MixerLog:
    """Logs the blocks in which a pass mixes tokens, and how.

    Args:
        modules: Those of the model that is about to run, by name.
        attention: Whether attention is logged, too (`see`, `done`).

    Attributes:
        blocks: By path of the block, its runs in order.
    """

    def __init__(self, modules: Mapping[str, nn.Module], *, attention: bool = False) -> None:
        self._modules = modules
        self._attention = attention
        is_needed = (
            watch_kernels(modules.values())
            or attention
            or any(map(_module_kernel, set(map(type, modules.values()))))
        )
        self._elements = _blocks(modules.values()) if is_needed else None
        self.blocks: dict[str, list[MixedBlock]] = {}
        self._frames: list[_Frame] = []
        self._values: Tensor | None = None

    @property
    def measured(self) -> dict[str, tuple[int, int]]:
        """By path of the mixing modules, their number of heads, or 1, and of convolutions their reach."""
        mixes = [mix for runs in self.blocks.values() for run in runs for mix in run.mixes]
        return {
            mix.path: (mix.n_heads, mix.reach - 1 if isinstance(mix.kernel, Identity) else 0) for mix in mixes
        }

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Log the mixing modules that run until the `with` block ends; costs nothing where there are none."""
        if self._elements is None:
            yield
            return
        with ExitStack() as exits:
            for path, module in self._modules.items():
                enter = module.register_forward_pre_hook(
                    _entering(self, path), prepend=True, with_kwargs=True
                )
                exits.callback(enter.remove)
                exits.callback(module.register_forward_hook(self._leave, with_kwargs=True).remove)
            exits.enter_context(handling(self._handle))
            yield

    def enter(self, module: nn.Module, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note that a module begins to run."""
        self._frames.append(_Frame(module, path, (*args, *kwargs.values())))

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        # A call that ended with an exception, which the model caught, leaves its frame behind.
        while self._frames and self._frames[-1].module is not module:
            self._frames.pop()
        if not self._frames:
            return
        frame = self._frames.pop()
        output = output[0] if isinstance(output, (tuple, list)) and output else output
        if isinstance(output, torch.Tensor):
            if isinstance(module, nn.Conv1d):
                frame.convolutions += module_convolution(module, args)
            elif read_module := _module_kernel(type(module)):
                frame.kernels.append(read_module(frame, kwargs, output))
            self._finish(frame, output)

    def _finish(self, frame: _Frame, output: Tensor) -> None:
        """Log a finished call, and pass unclaimed calls to the module around it."""
        module = frame.module
        outer = self._frames[-1] if self._frames else None
        mix = _mix_of(frame, output)
        is_block = self._elements is not None and module in self._elements
        if mix is not None:
            frame.mixes.append(mix)
        elif outer is not None and not is_block:
            outer.kernels += frame.kernels
            outer.convolutions += frame.convolutions
        if is_block and frame.mixes:
            block = _block_of(frame, output)
            if block is not None:
                self.blocks.setdefault(frame.path, []).append(block)
        elif outer is not None:
            outer.mixes += frame.mixes
        states = next(floating(frame.inputs), None)
        if outer is not None and states is not None:
            outer.parts[path_end(frame.path)] = _Part(module, frame.inputs, states, output)

    def _handle(self, name: str, go_on: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """See a watched call: a handler."""
        output = go_on(**arguments)
        if self._frames:
            frame = self._frames[-1]
            if name == CONVOLUTION:
                frame.convolutions += function_convolution(arguments, output)
            else:
                frame.kernels.append(read_call(name, arguments, output))
        return output

    def see(self, _: int, values: Tensor) -> None:
        """Note the values of an attention call [batch, kv head, key, dim]: a reader of the recording."""
        self._values = values

    def done(self, call: Call | FollowedCall, output: Tensor) -> None:
        """Log an attention call with the output of its heads [batch, head, query, dim]."""
        if (
            not self._attention
            or self._values is None
            or not self._frames
            or output.shape[2] != call.shape[3]
        ):
            return
        values = repeat_heads(self._values, output.shape[1])
        kernel = AttentionWeights(call, 0, output.shape[2])
        inner = [states.transpose(1, 2).flatten(2) for states in (values, output)]
        self._frames[-1].kernels.append(KernelCall(kernel, *inner))


def by_number(
    blocks: Iterable[Block], runs: Mapping[str, Sequence[MixedBlock]], sample: int, length: int
) -> dict[int, MixedBlock]:
    """Return the runs of blocks by their numbers, of a sample without its padding.

    The mixers of a run are in the order of those that its block has maps of, and with them the heads.

    Args:
        blocks: The blocks of a stack, in the order in which they ran.
        runs: By path of a block, its runs in order.
        sample: Index of the sample in the batch.
        length: Its number of tokens.
    """
    waiting = {path: iter(of_block) for path, of_block in runs.items()}
    pairs = ((block, next(waiting.get(block.path, iter(())), None)) for block in blocks)
    return {
        block.number: run.in_order([mixer.path for mixer in block.mapped]).cut(sample, length)
        for block, run in pairs
        if run is not None
    }


def _blocks(modules: Iterable[nn.Module]) -> set[nn.Module]:
    """Return the elements of the lists among a model's modules that are in no other element."""
    blocks: set[nn.Module] = set()
    for part in modules:
        if isinstance(part, LISTS) and part not in blocks:
            blocks.update(child for child in part.children() if next(child.children(), None) is not None)
    inside = {part for block in blocks for part in block.modules() if part is not block}
    return blocks - inside


def _entering(log: MixerLog, path: str) -> Callable[..., None]:
    return lambda module, args, kwargs: log.enter(module, path, args, kwargs)


def path_end(path: str) -> str:
    """Return the last name of a module's path."""
    return path.rpartition(".")[2]


def _lightning(frame: _Frame, _: Mapping[str, Any], __: Tensor) -> KernelCall:
    return lightning_attention(frame.module, frame.parts["qkv_proj"].output, frame.parts["norm"].states)


def _memory(frame: _Frame, kwargs: Mapping[str, Any], output: Tensor) -> KernelCall:
    module: Any = frame.module
    return matrix_memory(kwargs, output, module.config.eps)


_MODULES = {"LightningAttention": _lightning, "xLSTMBackend": _memory}


def _module_kernel(kind: type[nn.Module]) -> Callable[[_Frame, Mapping[str, Any], Tensor], KernelCall] | None:
    """Return the reader of a class of modules whose code is a kernel; None for any other class."""
    return next((read for end, read in _MODULES.items() if kind.__name__.endswith(end)), None)


def _mix_of(frame: _Frame, output: Tensor) -> Mix | None:
    """Return the call of a mixing module; None if it calls no kernel, or returns no projection's output."""
    if not (frame.kernels or frame.convolutions):
        return None
    projection = next(
        (
            part
            for part in frame.parts.values()
            if part.output.data_ptr() == output.data_ptr()
            and part.output.shape == output.shape
            and _is_linear(part.module)
        ),
        None,
    )
    if projection is None:
        return None
    call = _joined(frame)
    if call.values.shape != projection.states.shape:
        return None
    convolutions = frame.convolutions
    convolution = fitting(convolutions, call.values) if frame.kernels else convolutions[-1].convolution
    states = next(floating(frame.inputs), None)
    handed_on = (
        None if states is None or not isinstance(call.kernel, TimeMix) else shifted(frame.module, states)
    )
    return Mix(
        frame.path,
        call.kernel,
        call.values,
        call.output,
        call.gate,
        convolution,
        handed_on,
        projection.states,
        origin(projection.module),
        output,
        is_centred=any(_is_centring(part, call.output) for part in frame.parts.values()),
    )


def _block_of(frame: _Frame, output: Tensor) -> MixedBlock | None:
    """Return a block's run, with the factors of its mixers' outputs; None if it reads no hidden states."""
    states = (value for value in floating(frame.inputs) if value.shape == output.shape)
    hidden = next(states, None)
    if hidden is None:
        return None
    parts = [part for part in frame.parts.values() if part.output.shape == hidden.shape]
    norms = [_norm_of(mix, parts) for mix in frame.mixes]
    added = [
        mix.output if norm is None else norm.output for mix, norm in zip(frame.mixes, norms, strict=True)
    ]
    sums = [part.states for part in parts if part.states.shape == hidden.shape] + [output]
    # The states that a block adds to may have been normed first.
    bases = [hidden, *(part.output for part in parts if is_norm(part.module))]
    modules = tuple(None if norm is None else origin(norm.module) for norm in norms)
    run = MixedBlock(frame.path, hidden, output, tuple(frame.mixes), modules, ())
    others = [part.output for part in parts if not any(part.output is states for states in added)]
    for base, rest in product(bases, ([], others)):
        for total in sums:
            factors = _scales(total, [base, *added], rest)
            if factors and min(map(abs, factors)) > _NOT_ADDED:
                # A pre-norm block goes on adding to the sum.
                return replace(
                    run,
                    hidden=base,
                    residual_scale=factors[0],
                    scales=factors[1:],
                    output_scale=_factor(output, total, others),
                )
    return run


def _norm_of(mix: Mix, parts: list[_Part]) -> _Part | None:
    """Return the norm that reads a mixer's output, or None."""
    reading = (part for part in parts if part.states.data_ptr() == mix.output.data_ptr())
    return next((part for part in reading if is_norm(part.module)), None)


def _factor(output: Tensor, total: Tensor, others: list[Tensor]) -> float:
    """Return the factor of a sum in a block's output, to which other parts add; 0 without the sum.

    The norm of a short text's sum may be a multiple of it, so that 1 is tried first.
    """
    if torch.equal(output, total) or (others and _scales(output - total, others, [])):
        return 1.0
    scales = _scales(output, [total], others)
    return scales[0] if scales and abs(scales[0]) > _NOT_ADDED else 0.0


def _scales(total: Tensor, terms: list[Tensor], others: list[Tensor]) -> tuple[float, ...]:
    """Return the factors by which terms [batch, token, dim] add up to a total; () if they do not.

    Any of `others` may be added, too, by any factor.
    """
    states_added = [*terms, *others]
    if any(states.shape != total.shape for states in states_added):
        return ()
    tokens = torch.linspace(0, total.shape[1] - 1, min(total.shape[1], _TOKENS_TRIED)).long()
    with no_grad():
        columns = torch.stack([states[:, tokens].flatten().double().cpu() for states in states_added], 1)
        target = total[:, tokens].flatten().double().cpu()
        if not bool(columns.isfinite().all() & target.isfinite().all()):
            return ()
        scales = torch.linalg.lstsq(columns, target[:, None], driver="gelsd").solution[:, 0]
        error = (columns @ scales - target).norm()
        # A factor that is 1 but for the states' rounding is 1: errors of all blocks would be multiplied.
        inverse = torch.linalg.pinv(columns.T @ columns).diagonal()
        spread = error * (inverse.clamp(min=0) / max(1, len(target) - len(scales))).sqrt()
        scales = torch.where((scales - 1).abs() <= _SPREADS * spread, 1.0, scales)[: len(terms)]
        # Rounding is relative to the largest term; the error must be small next to the smallest of `terms`.
        sizes = (columns[:, : len(terms)] * scales).norm(dim=0)[scales.abs() > _NOT_ADDED]
    limit = 1e-1 if is_half(total) else 1e-3
    return tuple(scales.tolist()) if len(sizes) and bool(error <= limit * sizes.amin()) else ()


def _is_centring(part: _Part, mixed: Tensor) -> bool:
    """Return whether a part reads a kernel's output, and subtracts its mean: a constant changes nothing."""
    if len(part.inputs) > 1 or not part.states.numel() == part.output.numel() == mixed.numel():
        return False
    if not torch.equal(part.states.flatten(), mixed.flatten()):
        return False
    with no_grad():
        # Without the hooks of the pass.
        shifted = part.module.forward(part.states + part.states.abs().max())
    return bool(torch.allclose(shifted, part.output, rtol=1e-3, atol=1e-3 * float(part.output.abs().max())))


def _is_linear(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == len(("output", "input"))


def _joined(frame: _Frame) -> KernelCall:
    """Return the kernels of a module as one: those of heads side by side, or none but a convolution."""
    if not frame.kernels:
        states = frame.convolutions[-1].output
        return KernelCall(Identity(states), states, states)
    if len(frame.kernels) == 1:
        return frame.kernels[0]
    calls = frame.kernels
    difference = _difference(frame)
    if difference is not None:
        return difference
    gates = [call.gate for call in calls if call.gate is not None]
    gate = torch.cat(gates, -1) if len(gates) == len(calls) else None
    values, outputs = (
        torch.cat([getattr(call, name) for call in calls], -1) for name in ("values", "output")
    )
    return KernelCall(Joined(tuple(call.kernel for call in calls)), values, outputs, gate)


def _difference(frame: _Frame) -> KernelCall | None:
    """Return the calls of differential attention as one kernel; None for any other.

    Two calls read two parts of the values by the same weights, and a part of the module reads the outputs of
    a half of the heads plus a multiple of those of the other (DiffLlama's norm). The multiple is fitted to
    these numbers.
    """
    kernels = [call.kernel for call in frame.kernels]
    first = kernels[0]
    if len(kernels) != len(("first", "second")) or not isinstance(first, AttentionWeights):
        return None
    maps = [kernel.call.fingerprint() for kernel in kernels if isinstance(kernel, AttentionWeights)]
    if len({(weights.data_ptr(), weights.shape) for weights in maps}) > 1 or first.n_groups % 2:
        return None
    values, outputs = (
        torch.cat([getattr(call, name).unflatten(-1, (first.n_groups, -1)) for call in frame.kernels], -1)
        for name in ("values", "output")
    )
    (read, same), (first_half, second_half) = values.chunk(2, 2), outputs.chunk(2, 2)
    if not torch.equal(read, same):
        return None
    for part in frame.parts.values():
        factors = _scales(part.states, [first_half, second_half], [])
        if not factors or factors[0] != 1:
            # Both halves read the same: a single token.
            scales = _scales(part.states, [first_half], []) if torch.equal(first_half, second_half) else ()
            factors = (1.0, scales[0] - 1) if scales else ()
        if factors:
            kernel = DifferentialAttention(first.call, first.sample, first.length, factors[1])
            return KernelCall(kernel, read.flatten(2), part.states.flatten(2))
    return None
