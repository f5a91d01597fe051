"""Calls of kernels that mix tokens without a softmax, as interventions see and change them.

`changed_kernels` hooks mixing modules. While a module runs, its `_Watch` sees the calls of kernels
(`tracing/mixers/calls.py`) and passes each as a `KernelRun` to the intervention's change, which returns other
outputs. `KernelRun.inputs` has values and gate of the call; it is refused if the kernel continues from a
state, in which tokens cannot be told apart.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets.tracing.mixers.calls import (
    CONVOLUTION,
    MODULE_VALUES,
    POSITIONED,
    SPLIT_VALUES,
    STEPS,
    VALUES,
    KernelCall,
    handling,
    has_state,
    lightning_attention,
    matrix_memory,
    position_axis,
    read_call,
    run_handled,
    step_handlers,
    watch_kernels,
)
from attnwidgets.tracing.mixers.convolutions import (
    Convolved,
    fitting,
    floating,
    function_convolution,
    last_positions,
    module_convolution,
    shifted,
)
from attnwidgets.tracing.mixers.kernels import Identity
from attnwidgets.tracing.mixers.mix import Convolution, Mix
from attnwidgets.tracing.mixers.recurrences import LinearAttention, TimeMix
from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from attnwidgets.intervene.block_heads import KernelModule

    # A call, heads of it -> outputs [batch, position, head, dim] to continue with, or None for no change.
    KernelChange = Callable[["KernelRun", list[int]], Tensor | None]

_TEXTS = ("cu_seqlens", "seq_idx")  # arguments that join several texts in one row


@dataclass(frozen=True)
class KernelInputs:
    """The inputs of a kernel, and the kernel itself.

    Attributes:
        values: Its values [batch, position, head, dim].
        gate: A factor of its output that it applies itself, of the same shape; None if it has none.
    """

    values: Tensor
    gate: Tensor | None
    _mix: Mix
    # Values, and the positions that are left (None for all) -> outputs [batch, position, head, dim].
    _kernel: Callable[[Tensor, Tensor | None], Tensor]

    def handed(self, positions: Sequence[int]) -> Tensor:
        """Return the part of the kernel's values that comes from some tokens.

        A short convolution adds a token to several positions; its activation is fixed as a factor.
        """
        batch, length = self.values.shape[:2]
        tokens = self.values.new_zeros(1, length)
        tokens[:, list(positions)] = 1
        parts = [self._mix.cut(sample, length).handed_by(tokens) for sample in range(batch)]
        return torch.cat(parts).to(self.values).reshape(self.values.shape)

    def outputs(self, values: Tensor, removed: Sequence[int] = ()) -> Tensor:
        """Return the kernel's output for other values [batch, position, head, dim].

        Args:
            values: [batch, position, head, dim].
            removed: Positions that the kernel passes as if they were not there; their outputs are zero.
        """
        if not removed:
            return self._kernel(values, None)
        left = [position for position in range(values.shape[1]) if position not in removed]
        index = torch.tensor(left, dtype=torch.long, device=values.device)
        return torch.zeros_like(values).index_copy(1, index, self._kernel(values[:, index], index).to(values))


@dataclass(frozen=True)
class KernelRun:
    """A call of a kernel as an intervention sees it.

    Attributes:
        name: The module's name in the model.
        output: The kernel's output [batch, position, head, dim]; if channels have separate kernels, a single
            head has them all.
        first: Position of its first token in the text; None if only a state shows that there are earlier
            tokens.
    """

    name: str
    output: Tensor
    first: int | None
    # None if it continues from a state.
    _inputs: Callable[[], KernelInputs] | None

    def queries(self, positions: frozenset[int] | None, kind: str) -> list[int]:
        """Return the rows of the call that are at some positions of the text, or all of them.

        Raises:
            UnsupportedModelError: If the positions are unknown.
        """
        if positions is None:
            return list(range(self.output.shape[1]))
        if self.first is None:
            self.inputs(kind)
        first = self.first or 0
        return [row for row in range(self.output.shape[1]) if row + first in positions]

    def inputs(self, kind: str) -> KernelInputs:
        """Return the inputs of the kernel.

        Args:
            kind: The intervention, for the message.

        Raises:
            UnsupportedModelError: If it continues from a state, in which tokens cannot be told apart.
        """
        if self._inputs is None:
            raise UnsupportedModelError(
                f"{kind} changes what tokens read in {self.name}, which continues here from the state that "
                "earlier tokens left in a cache: pass use_cache=False to the model or to generate()."
            )
        return self._inputs()


def _read_lightning(arguments: Mapping[str, Any], output: Tensor) -> KernelCall:
    kernel = LinearAttention(arguments["query"], arguments["key"], arguments["decay"])
    return KernelCall(kernel, arguments["value"], output)


def _read_memory(arguments: Mapping[str, Any], output: Any) -> KernelCall:
    # The constant in its denominator changes neither values nor the parts of tokens in them.
    return matrix_memory(arguments, output[0] if isinstance(output, tuple) else output, 0.0)


# Readers of modules that are kernels, by the end of their class's name.
_MODULES = {"LightningAttention": _read_lightning, "xLSTMBackend": _read_memory}


@contextmanager
def changed_kernels(
    model: nn.Module,
    changes: Sequence[tuple[KernelModule, Sequence[int], KernelChange]],
    is_active: Callable[[], bool],
    applied: Callable[[], None],
) -> Iterator[None]:
    """Change the outputs of kernels, before the steps after them (a gate, a norm over heads).

    Args:
        model: The model.
        changes: Mixing modules, their heads, and how they are changed.
        is_active: Whether the call that a hook sees is to be changed.
        applied: Called at every change.
    """
    watch_kernels(modules_of(model))
    with ExitStack() as exits:
        for kernel, heads, change in changes:
            module = model.get_submodule(kernel.name)
            watch = _Watch(kernel, module, list(heads), change, is_active, applied)
            # The change entered last begins first and ends last: it is farther from the kernel.
            begin = module.register_forward_pre_hook(watch.begin, prepend=True, with_kwargs=True)
            exits.callback(begin.remove)
            exits.callback(module.register_forward_hook(watch.end, always_call=True).remove)
            for part in module.modules():
                for remove in _attached(part, watch):
                    exits.callback(remove)
        yield


def _attached(part: Any, watch: _Watch) -> Iterator[Callable[[], None]]:
    """Attach a watch to a module that is a convolution or a kernel; yield functions that detach it."""
    name = type(part).__name__
    if isinstance(part, nn.Conv1d):
        yield part.register_forward_hook(watch.see_convolution).remove
    if name.endswith(tuple(MODULE_VALUES)):
        yield part.register_forward_hook(watch.change_module, with_kwargs=True).remove
    if name.endswith(SPLIT_VALUES):
        yield part.register_forward_pre_hook(watch.see_cache, with_kwargs=True).remove
        yield part.qkv_proj.register_forward_hook(watch.see_projection).remove
        yield part.norm.register_forward_pre_hook(lambda _, args: watch.change_lightning(part, args)).remove


@dataclass
class _Call:
    """A running call of a mixing module.

    Attributes:
        states: Its input [batch, position, dim]; None if it reads no states.
        continues: Whether earlier tokens left a state.
        convolutions: Its convolutions so far.
        convolution: The convolution that computed the values of its last kernel, or None.
        projected: The projections of lightning attention, or None.
    """

    states: Tensor | None
    continues: bool
    exits: ExitStack = field(default_factory=ExitStack)
    convolutions: list[Convolved] = field(default_factory=list)
    convolution: Convolution | None = None
    projected: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of tokens."""
        return 0 if self.states is None else self.states.shape[1]


class _Watch(threading.local):
    """Changes the calls of kernels that a module makes, in each thread that runs it."""

    def __init__(
        self,
        kernel: KernelModule,
        module: nn.Module,
        heads: list[int],
        change: KernelChange,
        is_active: Callable[[], bool],
        applied: Callable[[], None],
    ) -> None:
        super().__init__()
        self._kernel, self._module, self._heads, self._change = kernel, module, heads, change
        self._is_active, self._applied = is_active, applied
        self._calls: list[_Call] = []
        # Tokens of the running text that earlier calls have read; None before its beginning was seen.
        self._read: int | None = None

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Watch the kernels that a module calls: a forward pre-hook."""
        arguments = (*args, *kwargs.values())
        call = _Call(next(floating(arguments), None), any(_has_past(value, module) for value in arguments))
        if self._is_active():
            call.exits.enter_context(handling(self._handle, steps=True, first=True))
        self._calls.append(call)

    def end(self, *_: Any) -> None:
        """Stop watching: a forward hook."""
        if not self._calls:
            return
        call = self._calls.pop()
        call.exits.close()
        if self._is_active():
            before = self._read if call.continues else 0
            self._read = None if before is None else before + call.length

    def see_convolution(self, module: nn.Conv1d, args: tuple[Any, ...], _: Any) -> None:
        """Note a convolution that is a module: a forward hook."""
        if self._calls and self._is_active():
            self._calls[-1].convolutions += module_convolution(module, args)

    def see_cache(self, module: Any, _: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note whether lightning attention, whose cache is of a separate kind, continues from a state."""
        read = getattr(kwargs.get("cache"), "get_linear_cache", None)
        if self._calls and read is not None:
            self._calls[-1].continues = read(module.layer_idx) is not None

    def see_projection(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        """Note the projections of lightning attention: a forward hook."""
        if self._calls:
            self._calls[-1].projected = output

    def change_lightning(self, module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Change the input of lightning attention's norm: a forward pre-hook."""
        if not self._is_last() or self._calls[-1].projected is None:
            return None
        mixed = args[0]
        read = lightning_attention(module, self._calls[-1].projected, mixed)

        def kernel(value: Tensor, **parts: Tensor) -> Tensor:
            if value is read.values:
                return mixed
            outputs = []
            for sample, values in enumerate(value):
                of_sample = {name: part[sample : sample + 1] for name, part in parts.items()}
                alpha = LinearAttention(**of_sample).rows(range(len(values))).to(values)
                by_head = values.unflatten(1, (len(alpha), -1))
                outputs.append(torch.einsum("hqk,khd->qhd", alpha, by_head).flatten(1))
            return torch.stack(outputs)

        arguments = {"value": read.values, **vars(read.kernel)}
        return (run_handled(step_handlers.get(), "LightningAttention", kernel, arguments), *args[1:])

    def change_module(self, module: Any, _: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Change the output of a module that is a kernel: a forward hook."""
        if not self._is_last():
            return output
        name = next(end for end in MODULE_VALUES if type(module).__name__.endswith(end))
        values = kwargs[MODULE_VALUES[name]]

        def kernel(**arguments: Any) -> Any:
            return output if arguments[MODULE_VALUES[name]] is values else module.forward(**arguments)

        return run_handled(step_handlers.get(), name, kernel, kwargs)

    def _is_last(self) -> bool:
        """Return whether this watch is farther from the kernel than all in force: it runs them."""
        return bool(self._calls) and self._is_active() and step_handlers.get()[-1:] == (self._handle,)

    def _handle(self, name: str, go_on: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """See a watched call: a handler."""
        output = go_on(**arguments)
        call = self._calls[-1]
        is_convolution = name in (CONVOLUTION, "causal_conv1d_update")
        if is_convolution != self._kernel.is_convolution:
            if name == CONVOLUTION:
                call.convolutions += function_convolution(arguments, output)
            return output
        if name in STEPS:
            call.continues = True
            return self._changed_call(name, go_on, arguments, output, _unread, "")
        if is_convolution:
            return self._changed_convolution(arguments, output)
        self._note_state(arguments)
        read = partial(_MODULES.get(name, partial(read_call, name)), arguments, output)
        return self._changed_call(name, go_on, arguments, output, read, VALUES[name])

    def _note_state(self, arguments: Mapping[str, Any]) -> None:
        """Note whether a kernel has a state, even of zeros: earlier tokens may be in it."""
        call = self._calls[-1]
        if has_state(arguments) and not call.continues:
            call.continues, self._read = True, None

    def _changed_convolution(self, arguments: Mapping[str, Any], output: Tensor) -> Tensor:
        """Return the output of a convolution that alone mixes the tokens, changed."""
        call = self._calls[-1]
        # The output may begin with positions of earlier tokens, which are not changed.
        before = output.shape[2] - call.length
        current = output[..., before:]

        def read() -> KernelCall:
            (whole,) = function_convolution(arguments, output)
            convolved = last_positions(whole, call.length)
            call.convolution = convolved.convolution
            return KernelCall(Identity(convolved.output), convolved.output, convolved.output)

        changed = self._changed(current, 2, read, lambda values, _: values)
        return torch.cat([output[..., :before], changed], 2) if before else changed

    def _changed_call(
        self,
        name: str,
        go_on: Callable[..., Any],
        arguments: Mapping[str, Any],
        output: Any,
        read: Callable[[], KernelCall],
        values_name: str,
    ) -> Any:
        """Return the output of a kernel, changed."""
        axis = position_axis(name)

        def kernel(values: Tensor, remaining: Tensor | None) -> Tensor:
            new_arguments = dict(arguments)
            if remaining is not None:
                if any(arguments.get(texts) is not None for texts in _TEXTS):
                    raise UnsupportedModelError(
                        f"{self._kernel.name} reads several texts in one row, of which no position can be "
                        "left out: pass them as rows of their own."
                    )
                positioned = (part for part in POSITIONED[name] if arguments.get(part) is not None)
                new_arguments |= {part: _at(arguments[part], remaining, axis) for part in positioned}
            new_arguments[values_name] = _as_before(values, new_arguments[values_name], axis)
            again = go_on(**new_arguments)
            return self._by_head(again[0] if isinstance(again, tuple) else again, axis)

        if isinstance(output, tuple):
            return (self._changed(output[0], axis, read, kernel), *output[1:])
        return self._changed(output, axis, read, kernel)

    def _changed(
        self,
        output: Tensor,
        axis: int | None,
        read: Callable[[], KernelCall],
        kernel: Callable[[Tensor, Tensor | None], Tensor],
    ) -> Tensor:
        """Return a kernel's output, changed."""
        call = self._calls[-1]
        first = self._read if call.continues else 0
        inputs = None if call.continues else partial(self._inputs, read, kernel)
        run = KernelRun(self._kernel.name, self._by_head(output, axis), first, inputs)
        changed = self._change(run, self._heads)
        self._applied()
        return output if changed is None else _as_before(changed.to(output), output, axis)

    def _inputs(
        self, reader: Callable[[], KernelCall], kernel: Callable[[Tensor, Tensor | None], Tensor]
    ) -> KernelInputs:
        read = reader()
        call = self._calls[-1]
        values = read.values
        if self._kernel.is_convolved and not self._kernel.is_convolution:
            # If another intervention changed the values, the convolution that was noted before computed them.
            convolution = fitting(call.convolutions, values) or call.convolution
            if convolution is None or convolution.states.shape != values.shape:
                raise UnsupportedModelError(
                    f"what tokens hand to {self._kernel.name} is unknown: its values are not those of the "
                    "convolution in front of it."
                )
            call.convolution = convolution
        handed_on = None
        if isinstance(read.kernel, TimeMix) and call.states is not None:
            handed_on = shifted(self._module, call.states)
        mix = Mix(
            path=self._kernel.name,
            kernel=Identity(values),
            values=values,
            mixed=values,
            gate=None,
            convolution=call.convolution,
            shifted=handed_on,
            read=values,
            projection=nn.Identity(),
            output=values,
        )
        gate = None if read.gate is None else self._by_head(read.gate, 1)
        return KernelInputs(self._by_head(values, 1), gate, mix, kernel)

    def _by_head(self, states: Tensor, axis: int | None) -> Tensor:
        """Return the output or the values of a kernel as [batch, position, head, dim]."""
        moved = states[:, None] if axis is None else states.movedim(axis, 1)
        return moved.flatten(2).unflatten(2, (max(self._kernel.n_heads, 1), -1))


def _as_before(by_head: Tensor, like: Tensor, axis: int | None) -> Tensor:
    """Return states [batch, position, head, dim] with the axes of `like`."""
    if axis is None:
        return by_head.reshape(like.shape)
    return by_head.reshape(like.movedim(axis, 1).shape).movedim(1, axis)


def _at(states: Tensor, index: Tensor, axis: int | None) -> Tensor:
    return states.index_select(1 if axis is None else axis, index)


def _unread() -> KernelCall:
    raise AssertionError("a call that continues from a state is not read")


def _has_past(value: Any, module: Any) -> bool:
    """Return whether an argument of a module is a cache in which it has left a state."""
    layers, number = getattr(value, "layers", None), getattr(module, "layer_idx", None)
    if layers is None or not isinstance(number, int) or number >= len(layers):
        return False
    past = getattr(layers[number], "has_previous_state", None)
    return isinstance(past, dict) and any(past.values())
