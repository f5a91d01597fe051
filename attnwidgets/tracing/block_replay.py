"""Call the blocks of a model again on their inputs from a recorded pass, with edits.

A block is identified by its calls, not by its name: it is the outermost element of a module list whose call
contains exactly one attention call of the stack. That is a BERT layer, a T5 block with its self- and
cross-attention, and ALBERT's only group at each of its twelve calls. `captured` runs the model again and
returns the blocks with their inputs; `RecordedBlocks.ready` calls them on copies of these inputs.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections import UserDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from attnwidgets._tensors import is_half, widened
from attnwidgets.tracing.anatomy.forward import forward_parameters, only_last_logits
from attnwidgets.tracing.layers import ModelLayer, is_trace
from attnwidgets.tracing.model_state import modules_of, named_modules
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.module_calls import (
    HIDDEN_DIMS,
    WatchedPass,
    is_cache,
    is_hidden,
    kept_pass,
    watching,
)
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from attnwidgets.tracing.recording.calls import Call, FollowedCall
    from attnwidgets.tracing.recording.module_calls import Invocation, Watch
    from attnwidgets.tracing.trace import Trace

    # (weights [copy, head, query, key], values [copy, kv head, key, dim]) -> their replacements
    ValueEdit = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


# A pass serves every method. The blocks hold no reference to their trace, so that both are freed together.
# By stack, and whether blocks without attention are among them.
_captured: weakref.WeakKeyDictionary[Trace, dict[tuple[str, bool], RecordedBlocks]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.RLock()


class Run(Protocol):
    """Calls a block again."""

    def __call__(
        self, copies: int = 1, edit: ValueEdit | None = None, hidden: Tensor | None = None
    ) -> Tensor:
        """Return the block's output [copy, query, width], in float32 or better.

        Args:
            copies: Number of copies of the recorded inputs in the batch.
            edit: Replaces weights and values of the stack's attention call.
            hidden: Replaces the recorded hidden states [copy, token, width].
        """
        ...


@dataclass(frozen=True)
class RecordedBlock:
    """A call of a block in a recorded pass.

    Attributes:
        name: The module's name in the model.
        module: The module.
        args: Its positional arguments, of a batch of 1.
        kwargs: Its keyword arguments.
        output: The hidden states it returned, [1, query, width].
        call: Index in `calls` of the stack's attention call; -1 in a block without one.
        calls: All attention calls it makes, in order.
        values: The values of each call, [1, kv head, key, head dim].
        axis: The axis of samples in its states: 1 where they are [token, 1, width] (XLNet).
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Tensor
    call: int
    calls: tuple[Call | FollowedCall, ...]
    values: tuple[Tensor, ...]
    axis: int = 0

    @property
    def attention(self) -> Call | FollowedCall:
        """The stack's attention call."""
        return self.calls[self.call]

    @property
    def in_half_precision(self) -> bool:
        """Whether it computes in half precision; its residual connection may be in float32 (Mamba)."""
        return any(map(is_half, (self.hidden, *self.module.parameters())))

    @property
    def hidden(self) -> Tensor:
        """Its input hidden states, [1, token, width]."""
        return self.given.transpose(0, self.axis)

    @property
    def given(self) -> Tensor:
        """Its input hidden states as it takes them."""
        for value in (*self.args, self.kwargs.get("hidden_states"), *self.kwargs.values()):
            if is_hidden(value):
                return value
        raise UnsupportedModelError(f"block {self.name!r} takes no hidden states [batch, token, width]")


@dataclass(frozen=True)
class RecordedBlocks:
    """The blocks of a stack in a recorded pass.

    Attributes:
        model: The twin that ran: the modules as they were then, over the weights of the model.
        layers: The block of each layer, by the model's number.
        final_norm: The norm that reads the last block's output, or None.
        n_heads: The largest number of heads that a layer has.
        n_keys: Number of keys.
    """

    model: nn.Module
    layers: Mapping[int, RecordedBlock]
    final_norm: nn.Module | None
    n_heads: int
    n_keys: int

    @contextmanager
    def ready(self, layer: int) -> Iterator[Run]:
        """Yield a function that calls a block again on copies of its recorded inputs.

        A block in half precision is computed in float32 (on a copy of its parameters): effects of single
        tokens are far below the resolution of half precision.
        """
        block = self.layers[layer]
        pending: list[ValueEdit] = []

        def see(index: int, _: nn.Module, weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            # A module may mix two parts of its values by the same map (DiffLlama).
            is_layer = pending and block.calls[index].name == block.attention.name
            return pending[0](weights, values) if is_layer else (weights, values)

        with borrowed(block.module) as module, recording(module, [see]) as session:
            parts = (block.args, block.kwargs)
            widen = block.in_half_precision
            tensors = [*module.named_parameters(), *module.named_buffers()] if widen else []
            # Parameters stay parameters, by which rules of relevance recognise a bias.
            wide = {
                name: nn.Parameter(tensor.float(), requires_grad=False)
                if isinstance(tensor, nn.Parameter)
                else tensor.float()
                for name, tensor in tensors
                if is_half(tensor)
            }

            def run(copies: int = 1, edit: ValueEdit | None = None, hidden: Tensor | None = None) -> Tensor:
                pending[:] = [] if edit is None else [edit]
                session.calls.clear()
                swap = (block.given, hidden.transpose(0, block.axis)) if hidden is not None else None
                args, kwargs = (
                    _copies(part, copies, swap=swap, widen=widen, axis=block.axis) for part in parts
                )
                try:
                    if wide:
                        output = torch.func.functional_call(module, wide, args, kwargs)
                    else:
                        output = module(*args, **kwargs)
                except (IndexError, TypeError) as error:
                    raise UnsupportedModelError(
                        f"block {block.name!r} cannot be called again by itself: {error}"
                    ) from error
                session.calls.clear()
                return first_tensor(output).transpose(0, block.axis)

            yield run

    def copies_within(self, layer: int, budget: int) -> int:
        """Return how many copies of a block's activations fit in `budget` bytes; at least 1."""
        block = self.layers[layer]
        _, n_tokens, width = block.output.shape
        widest = max((max(p.shape) for p in block.module.parameters() if p.dim()), default=width)
        # Queries, keys, values, norms and the MLP; attention weights before, in and after the softmax.
        numbers = n_tokens * (2 * widest + 8 * width) + 3 * self.n_heads * n_tokens * self.n_keys
        size = 4 if is_half(block.output) else block.output.element_size()
        return max(1, budget // (numbers * size))

    def after_final_norm(self, states: Tensor) -> Tensor:
        """Return states [copy, query, width] after the norm that follows the last block.

        Raises:
            ValueError: If no norm follows it.
        """
        norm = self.final_norm
        if norm is None:
            raise ValueError(
                f"final_norm=True: no norm follows the last block of {type(self.model).__name__} "
                "(post-norm blocks end in their own); leave final_norm out"
            )
        parameters = {name: tensor.to(states.dtype) for name, tensor in norm.named_parameters()}
        with borrowed(norm) as twin:
            normed: Tensor = torch.func.functional_call(twin, parameters, (states,))
        return normed


def captured(trace: object, stack: str, purpose: str, *, mixing: bool = False) -> RecordedBlocks:
    """Return the blocks of `capture`, from a pass that serves all stacks of this trace and all later calls.

    With `mixing`, a stack in which any block mixes tokens without attention has all of its blocks.
    """
    if not is_trace(trace):
        return capture(trace, stack, purpose)
    mixing = mixing and bool(trace.stack_table[stack].mixing)
    with _lock:
        blocks = _captured.get(trace, {})
        if (stack, mixing) not in blocks:
            recorded = _capture(trace, stack, purpose, mixing=mixing)
            keyed = {(name, mixing and name == stack): of_stack for name, of_stack in recorded.items()}
            blocks = _captured[trace] = keyed | blocks
        return blocks[stack, mixing]


def every_block(trace: Trace, stack: str, purpose: str) -> RecordedBlocks:
    """Return all blocks of a stack as `captured` does, also those without attention.

    Raises:
        UnsupportedModelError: If the states of some blocks are not recorded; the message names the blocks.
    """
    blocks = captured(trace, stack, purpose, mixing=True)
    lacking = [block.number for block in trace.anatomy.stacks[stack] if block.number not in blocks.layers]
    if lacking:
        raise UnsupportedModelError(
            f"{purpose} is not available: it reads the states of every block, and those of blocks "
            f"{', '.join(map(str, lacking))} are not recorded. print(trace.anatomy) shows what they do."
        )
    return blocks


def capture(trace: object, stack: str, purpose: str) -> RecordedBlocks:
    """Run a trace's model once more on its input and return a stack's blocks with their inputs.

    Args:
        trace: A recorded trace; anything else raises an error. Its model is left as it was.
        stack: The stack's name.
        purpose: The method's name, for messages.

    Raises:
        UnsupportedModelError: Without a model or recorded attention, or if a block cannot be identified.
        ValueError: If a block's output holds NaN; the message names the first.
    """
    return _capture(trace, stack, purpose)[stack]


def _capture(trace: object, stack: str, purpose: str, *, mixing: bool = False) -> dict[str, RecordedBlocks]:
    """Return the blocks of a stack, and of all others whose blocks can be called again.

    With `mixing`, all other blocks of the stack are among them.
    """
    if not is_trace(trace) or trace.model is None:
        raise UnsupportedModelError(
            f"{purpose} runs the model again, but this trace has no model; "
            "make it with aw.trace(model, tokenizer, text)"
        )
    is_as_traced = require_same_model(trace, purpose)
    recorded = [layer for layer in trace.stack_table[stack].layers if isinstance(layer, ModelLayer)]
    if len(recorded) != trace.n_layers(stack):
        why = trace.warning or "its attention was given, not recorded"
        raise UnsupportedModelError(f"{purpose} calls blocks again, which is impossible here: {why}")
    watched = kept_pass(trace) if is_as_traced and not mixing else None
    blocks: dict[str, RecordedBlocks] = {}
    if watched is not None:
        # Only elements of module lists were watched: a model without such lists is watched again.
        with suppress(UnsupportedModelError):
            blocks[stack] = _blocks_of(trace, stack, watched, purpose, {})
    if watched is None or not blocks:
        watched, others = _watched_again(trace, stack, mixing=mixing)
        blocks[stack] = _blocks_of(trace, stack, watched, purpose, others)
    for other_stack in {*trace.stacks} - {stack}:
        with suppress(ValueError):  # raised when that stack is requested
            blocks[other_stack] = _blocks_of(trace, other_stack, watched, purpose, {})
    return blocks


def _watched_again(trace: Trace, stack: str, *, mixing: bool) -> tuple[WatchedPass, dict[int, nn.Module]]:
    """Run a trace's model once more; return the pass and, with `mixing`, blocks without attention."""
    options: dict[str, Any] = {"return_dict": True}
    with borrowed(unwrap(trace.model)) as model:
        if "use_cache" in forward_parameters(model):
            options["use_cache"] = False
        options |= only_last_logits(model)  # logits are not needed
        table = trace.stack_table[stack]
        others = {
            block.number: model.get_submodule(block.path)
            for block in table.blocks
            if mixing and block.path and block.number not in table.numbers
        }
        with (
            watching(modules_of(model), others.values()) as watch,
            recording(model, readers=[watch.attention], keeps=True) as session,
        ):
            model(**{**trace.inputs, **options})
        calls = tuple(session.calls)
    return WatchedPass(model, calls, watch), others


def _blocks_of(
    trace: Trace, stack: str, watched: WatchedPass, purpose: str, others: Mapping[int, nn.Module]
) -> RecordedBlocks:
    """Return the blocks of a stack, those of `others` that ran among them, by their numbers."""
    model, calls, watch = watched
    modules = {id(module): name for name, module in named_modules(model).items()}
    # NaN from an encoder reaches every layer that reads it, so the encoder is checked first.
    if stack in ("decoder", "cross") and "encoder" in trace.stacks:
        _require_finite(_invocations(trace, "encoder", calls, watch, purpose), modules, "encoder")
    invocations: dict[int, tuple[Invocation, int | None]] = {
        **_invocations(trace, stack, calls, watch, purpose)
    }
    runs = {module: iter(watch.others[module]) for module in others.values()}
    again = {number: next(runs[module], None) for number, module in others.items()}
    invocations |= {number: (run, None) for number, run in again.items() if run is not None}
    invocations = dict(sorted(invocations.items()))
    _require_finite(invocations, modules, stack)
    blocks = {
        number: RecordedBlock(
            name=modules[id(block.module)],
            module=block.module,
            args=block.args,
            kwargs=block.kwargs,
            output=_output_of(block, len(trace.axes(stack)[0]), modules[id(block.module)], purpose),
            axis=_axis_of(block, len(trace.axes(stack)[0])),
            call=-1 if call is None else block.calls.index(call),
            calls=tuple(calls[index] for index in block.calls),
            values=tuple(watch.values[index] for index in block.calls),
        )
        for number, (block, call) in invocations.items()
    }
    norm = watch.norm_after(blocks[max(blocks)].output)
    heads = max((call.shape[1] for block in blocks.values() for call in block.calls), default=1)
    return RecordedBlocks(model, blocks, norm, heads, len(trace.axes(stack)[1]))


def require_same(block: RecordedBlock, output: Tensor, purpose: str, queries: slice = slice(None)) -> None:
    """Raise unless a block that was called again returned its recorded output, that of some queries alone.

    Raises:
        UnsupportedModelError: If the block's output depends on more than its inputs, or the model has
            changed since.
    """
    before = block.output[:, queries].to(output.dtype)
    difference = float((output - before).abs().max()) / max(float(before.abs().max()), 1e-6)
    # Half-precision blocks are called again in float32, so the rounding of the recorded pass shows.
    if not difference <= (5e-2 if block.in_half_precision else 1e-3):  # a difference of NaN is not small
        raise UnsupportedModelError(
            f"{purpose}: block {block.name!r} called again on its own inputs returns something else "
            f"(relative difference {difference:.2g}). If the model changed since it was traced, trace it "
            "again; otherwise this block keeps a state, and the method does not support it"
        )


def first_tensor(output: Any) -> Tensor:
    """Return the hidden states in a block's output: a tensor, or the first of a tuple."""
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise UnsupportedModelError(f"a block returned {type(output).__name__}, not hidden states")
    return output


def _invocations(
    trace: Trace, stack: str, calls: Sequence[Call | FollowedCall], watch: Watch, purpose: str
) -> dict[int, tuple[Invocation, int]]:
    """Return a stack's blocks by layer, in the order of their calls, each with its attention call."""
    layers = [layer for layer in trace.stack_table[stack].layers if isinstance(layer, ModelLayer)]
    stack_calls = _matching([layer.call.name for layer in layers], [call.name for call in calls], purpose)
    return {
        layer: (watch.block_of(call, set(stack_calls), purpose), call)
        for layer, call in zip(trace.layers(stack), stack_calls, strict=True)
    }


def _require_finite(
    blocks: Mapping[int, tuple[Invocation, int | None]], modules: Mapping[int, str], stack: str
) -> None:
    """Raise if a block returned NaN or infinite values; the message names the first."""
    for layer, (invocation, _) in blocks.items():
        if bool(torch.isfinite(first_tensor(invocation.output)).all()):
            continue
        where = f"layer {layer} ({modules[id(invocation.module)]}) of stack {stack!r}"
        inputs = [value for value in (*invocation.args, *invocation.kwargs.values()) if is_hidden(value)]
        if layer == next(iter(blocks)) and inputs and not bool(torch.isfinite(inputs[0]).all()):
            raise ValueError(
                f"the input of {where} already holds NaN or infinite values; "
                "check the model's embeddings and its input before explaining it"
            )
        raise ValueError(
            f"{where} is the first to return NaN or infinite values; check the model's weights and "
            "precision before explaining it"
        )


def _matching(module_names: list[str], names: list[str], purpose: str) -> list[int]:
    """Return the indices of a stack's calls in a pass, by module names, which may occur several times."""
    indices: dict[str, Iterator[int]] = {}
    for name in set(module_names):
        indices[name] = iter([index for index, called in enumerate(names) if called == name])
    matches = []
    for name in module_names:
        index = next(indices[name], None)
        if index is None:
            raise UnsupportedModelError(
                f"{purpose}: the model called again did not call the attention of {name!r} as it did when it "
                "was traced; trace the text again"
            )
        matches.append(index)
    return matches


def _output_of(invocation: Invocation, n_queries: int, name: str, purpose: str) -> Tensor:
    output = first_tensor(invocation.output)
    if output.dim() == HIDDEN_DIMS:
        output = output.transpose(0, _axis_of(invocation, n_queries))
    if output.dim() != HIDDEN_DIMS or output.shape[:2] != (1, n_queries):
        raise UnsupportedModelError(
            f"{purpose}: block {name!r} returns {tuple(output.shape)}, not [1, {n_queries} queries, width]"
        )
    return output


def _axis_of(invocation: Invocation, n_queries: int) -> int:
    """Return the axis of samples in a block's states [sample, token, width] or [token, sample, width]."""
    return int(first_tensor(invocation.output).shape[:2] == (n_queries, 1) and n_queries > 1)


def _copies(value: Any, n: int, *, swap: tuple[Tensor, Tensor] | None, widen: bool, axis: int = 0) -> Any:
    """Return inputs of a sample as inputs of `n` copies of it; inputs without a batch axis stay."""
    if isinstance(value, Tensor):
        if swap is not None and value is swap[0]:
            return swap[1]
        if widen:
            value = widened(value)
        # Along another axis than the first, only states have samples: masks broadcast.
        is_of_samples = is_hidden(value) if axis else value.dim() > 1
        if is_of_samples and value.shape[axis] == 1 and n > 1:
            value = value.expand(*value.shape[:axis], n, *value.shape[axis + 1 :])
            return value.contiguous() if is_hidden(value) else value
        # The model may write into its hidden states.
        return value.clone() if is_hidden(value) else value
    if isinstance(value, (dict, UserDict)):
        copied = {name: _copies(item, n, swap=swap, widen=widen, axis=axis) for name, item in value.items()}
        return type(value)(copied) if isinstance(value, UserDict) else copied
    if type(value) in (tuple, list):
        return type(value)(_copies(item, n, swap=swap, widen=widen, axis=axis) for item in value)
    return _cache_copies(value, n, widen=widen) if is_cache(value) else value


def _cache_copies(cache: Any, n: int, *, widen: bool) -> Any:
    """Return a cache of a sample as a cache of `n` copies of it."""
    cache = copy.deepcopy(cache)
    # Layers of a state space have a single state, which broadcasts, and cannot be repeated.
    for part in getattr(cache, "layers", [cache]):
        if widen:
            vars(part).update({name: _widened(stored) for name, stored in vars(part).items()})
        if is_cache(part):
            part.batch_repeat_interleave(n)
    return cache


def _widened(value: Any) -> Any:
    """Return a value in a layer of a cache, in float32 instead of half precision."""
    if isinstance(value, dict):
        return {name: _widened(item) for name, item in value.items()}
    if isinstance(value, Tensor):
        return widened(value)
    return torch.float32 if value is torch.float16 or value is torch.bfloat16 else value
