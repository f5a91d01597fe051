"""Attention that modules compute themselves, followed from each softmax to its product with the values.

While a pass is followed, every torch function that it calls goes through a mode. A softmax over the last axis
makes weights; a cast, mask, factor, view or slice of them still holds weights; the product of them with
another tensor is the attention. There weights and values are recorded and edited as in the attention
function. Which modules these are follows from the product alone: its queries and keys must be the tokens of
the states that the module was given.
"""

from __future__ import annotations

import inspect
import math
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnwidgets.tracing.anatomy.block_log import attending, attends
from attnwidgets.tracing.recording.attention_function import attention, changer_of, observer
from attnwidgets.tracing.recording.products import (
    MAPS,
    STATES,
    TURNS,
    VIEWS,
    Form,
    axis_after,
    factors_of,
    orders_of,
    with_factors,
)
from attnwidgets.tracing.recording.torch_attention import ARGUMENTS, adds_keys, multi_head_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import FrameType

_INTERFACE = "ALL_ATTENTION_FUNCTIONS"
_MARK = "_attnwidgets_softmax"

_ELEMENTWISE = frozenset(
    {
        *("bfloat16", "double", "float", "half", "to", "type", "type_as"),
        *("clone", "contiguous", "dropout", "masked_fill", "masked_fill_", "nan_to_num", "where"),
        *("__imul__", "__mul__", "__rmul__", "__truediv__", "div", "mul", "mul_"),
    }
)
_PRODUCTS = frozenset({"__matmul__", "bmm", "einsum", "matmul"})
_FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


@dataclass(eq=False)
class Softmax:
    """A softmax of a pass.

    Attributes:
        name: Name of the module that computes it.
        shape: Shape of its output.
        met: Whether its weights met values.
    """

    name: str
    shape: tuple[int, ...]
    met: bool = False


@dataclass(frozen=True)
class _Mark:
    """Marks a tensor that holds the weights of a softmax, with the keys along an axis, -1 for the last."""

    mode: Following
    softmax: Softmax
    axis: int = -1


@dataclass(frozen=True)
class _Caller:
    """The module whose forward runs, with its inputs.

    Attributes:
        module: The module.
        states: Hidden states [batch, token, width] or [token, batch, width].
        continues: Whether it was given keys and values of earlier tokens.
    """

    module: nn.Module
    states: tuple[Tensor, ...]
    continues: bool

    def has_tokens(self, batch: int, queries: int, keys: int) -> bool:
        """Return whether a map [query, key] is between tokens of the states, the same or two of them."""
        lengths: set[int] = set()
        # Convolutions of width 1 read [batch, width, token].
        read = {part.in_channels for part in self.module.children() if _is_projection(part)}
        for first, second, third in (states.shape for states in self.states):
            lengths |= {second} if first == batch else set()
            lengths |= {first} if second == batch else set()
            lengths |= {third} if first == batch and second in read else set()
        return queries in lengths and (keys in lengths or (self.continues and keys > queries))

    def batch_of(self, together: int, queries: int) -> int | None:
        """Return the batch size, from an axis that joins heads and samples; None for any other axis."""
        for axis in (1, 0):
            for states in self.states:
                batch = states.shape[1 - axis]
                if states.shape[axis] == queries and together % batch == 0:
                    return batch
        return None


def _caller() -> _Caller | None:
    """Return the innermost module with parameters that is running; None inside the attention function.

    It is read from Python's stack, so that no module needs a hook.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, without a public name
    module = None
    while frame is not None:
        code = frame.f_code
        if code is attention.__code__:
            return None
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(first, nn.Module):
            if module is None and next(first.parameters(), None) is not None:
                module = first
            if module is first and code.co_name == "forward":
                inputs = [frame.f_locals.get(name) for name in _arguments(code)]
                states = tuple(value for value in inputs if _is_states(value))
                return _Caller(module, states, any(map(_holds_earlier, inputs)))
        frame = frame.f_back
    return None


def _arguments(code: Any) -> Iterable[str]:
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return names


def _is_states(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.dim() == STATES and value.is_floating_point()


def _is_projection(part: nn.Module) -> TypeGuard[nn.Conv1d]:
    """Return whether a part of a module projects each token separately, as a convolution of width 1."""
    return isinstance(part, nn.Conv1d) and part.kernel_size == (1,)


def _holds_earlier(value: Any) -> bool:
    """Return whether an argument holds keys and values of earlier tokens: a cache, or a pair of tensors."""
    is_pair = isinstance(value, (tuple, list)) and any(isinstance(part, Tensor) for part in value)
    return is_pair or hasattr(value, "get_seq_length") or isinstance(value, dict)


class Following(TorchFunctionMode):
    """Follows the softmaxes of the modules that are recorded or changed in this thread and task."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a torch function, recording and changing attention in it."""
        del types
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._fused(func, args, kwargs)
        if name == "multi_head_attention_forward":
            return self._whole(func, args, kwargs)
        if name in _PRODUCTS:
            return self._product(func, args, kwargs)
        output = func(*args, **kwargs)
        if name == "softmax":
            self._begin(output, args, kwargs)
        elif name in _ELEMENTWISE or name in VIEWS or name in TURNS or name == "__getitem__":
            self._pass_on(name, output, args, kwargs)
        return output

    def _mark_of(self, tensor: Any) -> _Mark | None:
        mark: _Mark | None = getattr(tensor, _MARK, None) if isinstance(tensor, Tensor) else None
        return mark if mark is not None and mark.mode is self else None

    def _begin(self, output: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Mark the weights of a softmax over the last of three axes or more."""
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(output, Tensor) or output.dim() < STATES or axis not in (-1, output.dim() - 1):
            return
        caller = _caller()
        if caller is None or not _is_watched(caller.module):
            return
        watching = observer.get()
        name = type(caller.module).__name__ if watching is None else watching.name_of(caller.module)
        softmax = Softmax(name, tuple(output.shape))
        if watching is not None:
            watching.softmaxes.append(softmax)
        setattr(output, _MARK, _Mark(self, softmax))

    def _pass_on(self, name: str, output: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Mark the output of an operation if it still holds the weights of a softmax."""
        if not isinstance(output, Tensor):
            return
        source = next((part for part in (*args, *kwargs.values()) if self._mark_of(part) is not None), None)
        mark = self._mark_of(source)
        if source is None or mark is None or output is source:
            return
        axis = axis_after(name, mark.axis, source, output, args[1:])
        if axis is not None:
            setattr(output, _MARK, _Mark(self, mark.softmax, axis))

    def _product(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a product; a product of weights and values is recorded and edited."""
        factors, letters = factors_of(args)
        index = next((i for i, part in enumerate(factors) if self._mark_of(part) is not None), None)
        mark = None if index is None else self._mark_of(factors[index])
        if index is None or mark is None or not letters:
            return func(*args, **kwargs)
        orders = orders_of(letters, index, mark.axis)
        caller = None if orders is None else _caller()
        if orders is None or caller is None or not _is_watched(caller.module):
            return func(*args, **kwargs)
        weights, values = factors[index], factors[1 - index]
        leading, queries = (weights.shape[orders[0][axis]] for axis in (0, -2))
        batch = leading if len(orders[0]) == MAPS else caller.batch_of(leading, queries)
        if batch is None or not caller.has_tokens(batch, queries, weights.shape[orders[0][-1]]):
            return func(*args, **kwargs)
        mark.softmax.met = True
        of_weights, of_values, of_output = (Form(order, batch) for order in orders)
        maps, vectors = of_weights.read(weights), of_values.read(values)

        def product(new_maps: Tensor, new_vectors: Tensor) -> Tensor:
            pair = [of_weights.written(new_maps), of_values.written(new_vectors)]
            output: Tensor = func(*with_factors(args, pair[:: 1 if index == 0 else -1]), **kwargs)
            return of_output.read(output)

        return of_output.written(_attended(caller.module, maps, vectors, product))

    def _fused(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute a fused kernel by the attention function if tokens attend in it."""
        arguments = dict(zip(_FUSED, args, strict=False)) | kwargs
        query, key, value = (arguments[name] for name in _FUSED[:3])
        caller = _caller()
        if (
            caller is None
            or not _is_watched(caller.module)
            or not query.dim() == key.dim() == value.dim() == MAPS
            or not caller.has_tokens(query.shape[0], query.shape[2], key.shape[2])
        ):
            return func(*args, **kwargs)
        mask = arguments.get("attn_mask")
        if arguments.get("is_causal"):
            mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            hidden = torch.finfo(query.dtype).min
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, hidden)
        if mask is not None and mask.dim() < MAPS:
            mask = mask[(None,) * (MAPS - mask.dim())]
        output, _ = attention(
            caller.module,
            query,
            key,
            value,
            mask,
            scaling=arguments.get("scale"),
            dropout=arguments.get("dropout_p") or 0.0,
        )
        return output.transpose(1, 2)

    def _whole(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute projections and attention in one call of torch by the attention function, as in `_fused`.

        `nn.MultiheadAttention` is not followed: it often reduces all tokens to a single vector.
        """
        arguments = dict(zip(ARGUMENTS, args, strict=False)) | kwargs
        caller = _caller()
        queries, keys = (arguments[name].shape for name in ("query", "key"))
        if (
            caller is None
            or not _is_watched(caller.module)
            or isinstance(caller.module, nn.MultiheadAttention)
            or adds_keys(arguments)
            or not len(queries) == len(keys) == STATES
            or not caller.has_tokens(queries[1], queries[0], keys[0])
        ):
            return func(*args, **kwargs)

        def attend(
            query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
        ) -> tuple[Tensor, Tensor | None]:
            dropout = arguments.get("dropout_p") or 0.0
            output, weights = attention(caller.module, query, key, value, mask, dropout=dropout)
            return output.transpose(1, 2), weights

        return multi_head_attention(arguments, attend)


def _attended(
    module: nn.Module, weights: Tensor, values: Tensor, product: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return the outputs of heads [batch, head, query, dim], recorded and changed as in `attention`.

    Args:
        module: The module that attends.
        weights: [batch, head, query, key].
        values: [batch, kv head, key, dim].
        product: Takes both as they were changed, in the form that the graph of gradients goes through.
    """
    watching, changing = observer.get(), changer_of(module)
    if changing is not None:
        weights = changing.weigh(module, weights)
    if watching is not None:
        weights, values = watching.follow(module, weights, values)
    output = product(weights, values)
    if changing is not None:
        output = changing.write(module, output)
    if watching is not None:
        watching.done(module, output)
    return output


def _is_watched(module: nn.Module) -> bool:
    """Return whether a module belongs to the model that is recorded, or its attention is changed."""
    watching = observer.get()
    return (watching is not None and id(module) in watching.names) or changer_of(module) is not None


def _on_interface(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the modules whose class asks transformers for the attention function of its config."""
    kinds: dict[type[Any], bool] = {}
    on_interface = []
    for module in modules:
        kind = type(module)
        if kind not in kinds:
            code = getattr(inspect.unwrap(kind.forward), "__code__", None)
            kinds[kind] = code is not None and _INTERFACE in code.co_names
        if kinds[kind]:
            on_interface.append(module)
    return on_interface


def is_on_interface(modules: Iterable[nn.Module]) -> bool:
    """Return whether any of a model's modules calls transformers' attention interface."""
    return bool(_on_interface(modules))


def is_outside(modules: Collection[nn.Module]) -> bool:
    """Return whether any of a model's modules attend, or may, outside transformers' attention interface."""
    covered = set(_on_interface(modules))
    return not covered or any(module not in covered for module in attending(modules))


class _FollowedPass(threading.local):
    """The pass that is followed in a thread."""

    module: nn.Module | None = None
    mode: Following | None = None


_followed_pass = _FollowedPass()


def _enter(module: nn.Module) -> None:
    if _followed_pass.mode is None:
        _followed_pass.module, _followed_pass.mode = module, Following()
        _followed_pass.mode.__enter__()  # type: ignore[no-untyped-call]


def _leave(module: nn.Module) -> None:
    if _followed_pass.mode is not None and _followed_pass.module is module:
        mode, _followed_pass.module, _followed_pass.mode = _followed_pass.mode, None, None
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]


@contextmanager
def following(modules: Iterable[nn.Module], is_own: Callable[[], bool] | None = None) -> Iterator[None]:
    """Follow the calls of modules, and nothing between them, until the `with` block ends.

    A call inside a followed call is a part of it. The mode is the innermost at work in a call, so that rules
    of relevance apply to the product as it was edited.

    Args:
        modules: A model that is recorded, or modules whose attention is changed.
        is_own: Returns whether a call is to be followed; by default every call is.
    """
    followed = tuple(modules)

    def before(module: nn.Module, _: Any) -> None:
        if is_own is None or is_own():
            _enter(module)

    def after(module: nn.Module, *_: Any) -> None:
        _leave(module)

    with ExitStack() as exits:
        for module in followed:
            exits.callback(module.register_forward_pre_hook(before, prepend=True).remove)
            exits.callback(module.register_forward_hook(after, always_call=True).remove)
            # Torch calls hooks after an Exception, and an interrupt is another kind of error.
            exits.callback(_leave, module)
        yield


def lost(
    softmaxes: Iterable[Softmax], recorded: Iterable[str], modules: Mapping[str, nn.Module]
) -> list[Softmax]:
    """Return the softmaxes of attention modules that met no values, one for each module.

    Args:
        softmaxes: The softmaxes of a pass.
        recorded: Names of the modules whose attention was recorded.
        modules: Those of the model, by name.
    """
    seen = set(recorded)
    result = []
    for softmax in softmaxes:
        module = modules.get(softmax.name)
        if softmax.met or softmax.name in seen or module is None or not attends(module):
            continue
        if math.prod(softmax.shape) > 0 and softmax.shape[-1] > 1:
            seen.add(softmax.name)
            result.append(softmax)
    return result
