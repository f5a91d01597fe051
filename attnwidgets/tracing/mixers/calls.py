"""Calls of kernels in transformers' modeling files, watched while a pass of ours runs.

Modeling files look their kernels up by name when they call them, whether torch or a fused implementation
computes them. Each function is wrapped once, for good; the wrapper calls it as it is unless a handler is in
force in this thread or task. So two models of one file may run at once, one of them watched.
"""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.mixers.recurrences import (
    ChunkedScan,
    GatedDeltaRule,
    GatedRecurrence,
    LinearAttention,
    MatrixMemory,
    SelectiveScan,
    TimeMix,
    normalised,
    step_sizes,
)
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor, nn

    from attnwidgets.tracing.mixers.kernels import Kernel

    # (name of the function, the function, its arguments by name) -> its output
    Handler = Callable[[str, Callable[..., Any], dict[str, Any]], Any]

CONVOLUTION = "causal_conv1d_fn"
_MARK = "_attnwidgets_watched"
_STATES = ("initial_states", "initial_state", "recurrent_states", "state", "c_initial")

handlers: ContextVar[tuple[Handler, ...]] = ContextVar("attnwidgets_kernel_handlers", default=())
step_handlers: ContextVar[tuple[Handler, ...]] = ContextVar("attnwidgets_step_handlers", default=())
"""Handlers of functions that take a single token and a state."""


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel.

    Attributes:
        kernel: The kernel with its arguments, values apart.
        values: Its values [batch, position, channel].
        output: Its output [batch, position, channel]; with `gate`, already multiplied by it.
        gate: A factor of the output that the kernel applies itself [batch, position, channel], or None.
    """

    kernel: Kernel
    values: Tensor
    output: Tensor
    gate: Tensor | None = None


def _scan(call: Mapping[str, Any], output: Tensor) -> KernelCall:
    dt = call["dt"].transpose(1, 2)
    dt = step_sizes(dt, call.get("delta_bias"), soft=bool(call.get("delta_softplus")))
    b, c = (call[name].transpose(1, 2) for name in ("B", "C"))
    kernel = SelectiveScan(dt, b, c, call["A"], call.get("D"))
    z = call.get("z")
    gate = None if z is None else torch.nn.functional.silu(z).transpose(1, 2)
    return KernelCall(kernel, call["hidden_states"].transpose(1, 2), output.transpose(1, 2), gate)


def _chunked_scan(call: Mapping[str, Any], output: Tensor) -> KernelCall:
    soft, limit = bool(call.get("dt_softplus")), call.get("dt_limit") or ()
    dt = step_sizes(call["dt"], call.get("dt_bias"), limit, soft=soft)
    kernel = ChunkedScan(dt, call["B"], call["C"], call["A"], call.get("D"))
    z = call.get("z")
    gate = None if z is None else torch.nn.functional.silu(z).flatten(2)
    return KernelCall(kernel, call["hidden_states"].flatten(2), output.flatten(2), gate)


def _delta_rule(call: Mapping[str, Any], output: Tensor) -> KernelCall:
    heads = call["value"].shape[2]
    query, key = (call[name].repeat_interleave(heads // call[name].shape[2], 2) for name in ("query", "key"))
    if call.get("use_qk_l2norm_in_kernel"):
        query, key = normalised(query), normalised(key)
    decay = call["g"] if call["g"].dim() == query.dim() else call["g"][..., None]
    kernel = GatedDeltaRule(query * query.shape[-1] ** -0.5, key, decay, call["beta"])
    return KernelCall(kernel, call["value"].flatten(2), output.flatten(2))


def _time_mix(call: Mapping[str, Any], output: Tensor) -> KernelCall:
    return KernelCall(TimeMix(call["key"], call["time_decay"], call["time_first"]), call["value"], output)


def _gated_recurrence(call: Mapping[str, Any], output: Tensor) -> KernelCall:
    reset = call["reset"].expand(*call["hidden_states"].shape[:2], 1)
    return KernelCall(GatedRecurrence(call["recurrent_gate"], reset), call["hidden_states"], output)


def matrix_memory(call: Mapping[str, Any], output: Tensor, eps: float) -> KernelCall:
    """Return the call of an mLSTM's backend, whose tensors have heads before positions."""
    query, key, value, input_gate, forget_gate = (
        call[name].transpose(1, 2) for name in ("query", "key", "value", "igate", "fgate")
    )
    query = query * query.shape[-1] ** -0.5
    kernel = MatrixMemory(query, key, input_gate, forget_gate, eps)
    return KernelCall(kernel, value.flatten(2), output.transpose(1, 2).flatten(2))


def lightning_attention(module: Any, projected: Tensor, mixed: Tensor) -> KernelCall:
    """Return the kernel of lightning attention, whose code is in its module.

    Args:
        module: The module.
        projected: Queries, keys and values before their activation [batch, position, channel].
        mixed: Input of its norm [batch, position, channel].
    """
    states = module.act_fn(projected).unflatten(-1, (module.num_attention_heads, -1))
    query, key, value = states.chunk(3, -1)
    # Padding is masked after the activation.
    is_text = (mixed != 0).any(-1, keepdim=True)[..., None]
    decay = -module.slope_rate.flatten().expand(query.shape[:3])
    return KernelCall(LinearAttention(query, key * is_text, decay), (value * is_text).flatten(2), mixed)


READERS: dict[str, Callable[[Mapping[str, Any], Tensor], KernelCall]] = {
    "mamba_selective_scan": _scan,
    "mamba2_chunk_scan": _chunked_scan,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "rwkv_linear_attention": _time_mix,
    "_rnn_scan": _gated_recurrence,
}
"""Functions of modeling files that mix positions, and how their arguments are read."""

VALUES = {
    "mamba_selective_scan": "hidden_states",
    "mamba2_chunk_scan": "hidden_states",
    "torch_chunk_gated_delta_rule": "value",
    "chunk_kimi_delta_attention": "value",
    "rwkv_linear_attention": "value",
    "_rnn_scan": "hidden_states",
    CONVOLUTION: "hidden_states",
    "xLSTMBackend": "value",
    "LightningAttention": "value",
}
"""The argument of each in which it is linear."""

CHANNELS_FIRST = ("mamba_selective_scan", CONVOLUTION)
"""Those in which it is [batch, channel, position]."""

POSITIONED = {
    "mamba_selective_scan": ("hidden_states", "dt", "B", "C", "z"),
    "mamba2_chunk_scan": ("hidden_states", "dt", "B", "C", "z"),
    "torch_chunk_gated_delta_rule": ("query", "key", "value", "g", "beta"),
    "chunk_kimi_delta_attention": ("query", "key", "value", "g", "beta"),
    "rwkv_linear_attention": ("key", "value"),
    "_rnn_scan": ("hidden_states", "recurrent_gate", "reset"),
    "xLSTMBackend": ("query", "key", "value", "igate", "fgate"),
    "LightningAttention": ("query", "key", "value", "decay"),
}
"""By name of a function, or the end of that of a module's class, the arguments with an axis of positions."""

METHODS = ("_rnn_scan",)
"""Those that are methods of a module instead of functions of its file."""


def has_state(arguments: Mapping[str, Any]) -> bool:
    """Return whether a kernel continues from a state."""
    return any(isinstance(arguments.get(state), (torch.Tensor, tuple, list)) for state in _STATES)


def read_call(name: str, arguments: Mapping[str, Any], output: Any) -> KernelCall:
    """Return a watched kernel's call.

    Raises:
        UnsupportedModelError: If it continues from a state, whose part cannot be divided among tokens.
    """
    if has_state(arguments):
        raise UnsupportedModelError(
            f"{name} continues from a state that earlier tokens left, which cannot be divided among them: "
            "trace the whole text, without a cache"
        )
    return READERS[name](arguments, output[0] if isinstance(output, tuple) else output)


def watch_kernels(modules: Iterable[nn.Module]) -> bool:
    """Wrap the kernels in the modeling files of a model's modules, and return whether there are any."""
    kinds = {kind for module_kind in set(map(type, modules)) for kind in module_kind.__mro__}
    kinds = {kind for kind in kinds if kind.__module__.startswith("transformers.models.")}
    watched = False
    for file in {sys.modules[kind.__module__] for kind in kinds}:
        for name in {*READERS, CONVOLUTION}.difference(METHODS) & set(vars(file)):
            watched = True
            _wrap(file, name, handlers)
        for name in set(STEPS) & set(vars(file)):
            _wrap(file, name, step_handlers)
    for kind in kinds:
        for name in set(METHODS) & set(vars(kind)):
            watched = True
            _wrap(kind, name, handlers)
    return watched


def _wrap(owner: Any, name: str, chain: ContextVar[tuple[Handler, ...]]) -> None:
    function = vars(owner)[name]
    if hasattr(function, _MARK):
        return
    signature = inspect.signature(inspect.unwrap(function))
    extra = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        in_force = chain.get()
        if not in_force:
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        arguments |= arguments.pop(extra, {})
        return run_handled(in_force, name, function, arguments)

    setattr(watched, _MARK, True)
    setattr(owner, name, watched)


def run_handled(
    in_force: tuple[Handler, ...], name: str, function: Callable[..., Any], arguments: dict[str, Any]
) -> Any:
    """Run a kernel through the handlers, the last first."""
    if not in_force:
        return function(**arguments)
    *outer, handler = in_force

    def go_on(**changed: Any) -> Any:
        return run_handled(tuple(outer), name, function, changed)

    return handler(name, go_on, arguments)


@contextmanager
def handling(handler: Handler, *, steps: bool = False, first: bool = False) -> Iterator[None]:
    """Let a handler see, and change, all watched calls of this thread or task.

    Args:
        handler: The handler.
        steps: Whether it sees `STEPS`, too.
        first: Whether it is nearest to the kernel, so that a recorder sees a call as it changed it, and not
            the calls that it makes. Otherwise the handlers in force are nearer.
    """
    chains = (handlers, step_handlers) if steps else (handlers,)
    tokens = [
        (chain, chain.set((handler, *chain.get()) if first else (*chain.get(), handler))) for chain in chains
    ]
    try:
        yield
    finally:
        for chain, token in tokens:
            chain.reset(token)


MODULE_VALUES = {"xLSTMBackend": "value"}
"""By the end of their class's name, modules that are a kernel: the argument in which they are linear."""

SPLIT_VALUES = ("LightningAttention",)
"""Ends of the names of classes that split queries, keys and values, in this order, off a single tensor."""

STEPS: dict[str, int | None] = {
    "mamba_selective_state_update": None,
    "mamba2_selective_state_update": None,
    "torch_recurrent_gated_delta_rule": 1,
    "recurrent_kimi_delta_attention": 1,
    "causal_conv1d_update": 2,
}
"""Functions that stand in for kernels and convolutions where a token continues a state, and the axis of
positions in their output; None if there is none."""


def position_axis(name: str) -> int | None:
    """Return the axis of positions in a kernel's values and output, by its function or class."""
    return STEPS.get(name, 2 if name in (*CHANNELS_FIRST, *MODULE_VALUES) else 1)
