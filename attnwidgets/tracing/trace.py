"""Trace: what one recorded pass of a model saw, and its attention layer by layer, on demand."""

from __future__ import annotations

import copy
import re
import sys
import threading
import uuid
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from attnwidgets._errors import quoted, suggest
from attnwidgets.tracing.precision import kept_dtype
from attnwidgets.tracing.recording.attention_function import (
    HEADS,
    QUERIES,
    UnsupportedModelError,
    attention_weights,
    is_long,
    part_of,
    weights_by_blocks,
)
from attnwidgets.tracing.row_selection import BLOCK_BYTES, blocks, numbers, positions, to_compute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from attnwidgets.tracing.prediction import Prediction
    from attnwidgets.tracing.recording.recorder import Call
    from attnwidgets.tracing.row_selection import Chosen
    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace_difference import Difference

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def byte_budget(memory: str | int) -> int:
    """Return a byte budget given as a number or as "500MB", "1GB", "2GiB"; infinity is no limit.

    Raises:
        ValueError: If it is not a positive size.
    """
    if isinstance(memory, (int, float)) and not isinstance(memory, bool) and memory > 0:
        return int(min(memory, sys.maxsize))
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT]?I?)B?\s*", str(memory).upper())
    if found and found.group(2) in _UNITS and float(found.group(1)) > 0:
        return int(float(found.group(1)) * _UNITS[found.group(2)])
    raise ValueError(
        f"memory must be a number of bytes, a size like '500MB' or '1GB', or float('inf'), not {memory!r}"
    )


MAPS = 4
"""Dimensions of attention weights: [batch, head, query, key]."""

_HIDDEN = -1e30  # far below any score: a softmax makes exactly 0 of it


class Layer(Protocol):
    """One layer of one stack: where its weights come from."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""

    @property
    def dtype(self) -> torch.dtype:
        """What the weights are kept in: float64 where they were computed in it, else float32."""

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> Tensor:
        """Return [head, query, key] on the CPU, of some heads and queries where they are given."""


@dataclass(frozen=True)
class RecordedLayer:
    """A layer whose weights are computed again from recorded queries and keys, with the function that ran.

    Args:
        call: The attention call of the whole batch.
        sample: Index in the batch.
        queries: How many leading query positions are no padding.
        keys: How many leading key positions are no padding.
    """

    call: Call
    sample: int
    queries: int
    keys: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return (self.call.query.shape[1], self.queries, self.keys)

    @property
    def dtype(self) -> torch.dtype:
        """What the weights are kept in: float64 where they were computed in it, else float32."""
        return kept_dtype(self.call.query.dtype)

    def _part(self, added: Any) -> Any:
        """Return this sample's part of a mask or bias [batch or 1, head or 1, query or 1, key]."""
        if not isinstance(added, torch.Tensor) or added.dim() != MAPS:
            return added
        one = added[self.sample : self.sample + 1] if added.shape[0] > 1 else added
        return one[:, :, : self.queries, : self.keys]

    def query_key(self) -> tuple[Tensor, Tensor]:
        """Return queries [head, query, dim] and keys [kv head, key, dim], after any rotary embedding."""
        query, key = self.call.query[self.sample], self.call.key[self.sample]
        return query[:, : self.queries], key[:, : self.keys]

    def settings(self) -> dict[str, Any]:
        """Return mask, scaling, softcap and position bias of the call, this sample's part of them."""
        return {name: self._part(value) for name, value in self.call.settings.items()}

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> Tensor:
        """Return [head, query, key] on the CPU, computed on the device of the model.

        Of some heads and queries only their scores are computed, with the same bits as in the whole layer
        (on a processor, in float32 and half precision; see `rows.to_compute`).
        """
        n_heads, n_queries, _ = self.shape
        some = positions(heads, n_heads, "head")
        rows = positions(queries, n_queries, "query")
        if self.call.weights is not None:
            changed = self.call.weights[self.sample, :, : self.queries, : self.keys]
            return changed[some][:, rows].to("cpu", self.dtype)
        query, key = self.query_key()
        computed, place = to_compute(rows, n_queries)
        settings = {
            name: part_of(part_of(added, some, HEADS), computed, QUERIES)
            for name, added in self.settings().items()
        }
        if heads is not None:
            shared = n_heads // len(key)
            key = key[[head // shared for head in numbers(some)]]
        query, key = query[some][None, :, computed], key[None]
        with torch.no_grad():
            if not is_long(query, key):
                return attention_weights(query, key, **settings)[0][:, place].to("cpu", self.dtype)
            found = torch.empty((*query.shape[1:-1], self.keys), dtype=self.dtype)
            for block, weights in weights_by_blocks(query, key, settings):
                found[:, block] = weights[0]
        return found[:, place]

    def hides_later_keys(self) -> bool:
        """Return whether the mask alone proves that no query reads a later key; False where it does not.

        What is added to a later key then is far below what is added to some earlier one, so that its weight
        is exactly 0.
        """
        settings = self.settings()
        given = (settings.get(name) for name in ("position_bias", "mask"))
        added = [part for part in given if isinstance(part, torch.Tensor)]
        if self.call.weights is not None or not added:
            return False
        for rows in blocks(self.queries, sum(part[..., :1, :].nbytes for part in added)):
            total = sum(part_of(part, rows, QUERIES).detach().float() for part in added)
            here = torch.arange(rows.start, rows.stop, device=total.device)
            later = torch.arange(self.keys, device=total.device) > here[:, None]
            hidden = total.masked_fill(~later, -torch.inf).amax() <= _HIDDEN
            if not hidden or (total.masked_fill(later, -torch.inf).amax(-1) < _HIDDEN / 10).any():
                return False
        return True


@dataclass(frozen=True)
class GivenLayer:
    """A layer whose weights were given: [head, query, key]."""

    given: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        heads, queries, keys = self.given.shape
        return heads, queries, keys

    @property
    def dtype(self) -> torch.dtype:
        """What the weights are kept in: float64 where they were given in it, else float32."""
        return kept_dtype(self.given.dtype)

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> Tensor:
        """Return [head, query, key] on the CPU, of some heads and queries where they are given."""
        n_heads, n_queries, _ = self.shape
        some = self.given.detach()[positions(heads, n_heads, "head")]
        return some[:, positions(queries, n_queries, "query")].to("cpu", self.dtype)


@dataclass(frozen=True)
class Stack:
    """The layers of one stack with the axes of its maps."""

    layers: tuple[Layer, ...]
    query: TokenAxis
    key: TokenAxis


@dataclass(eq=False)
class Trace:
    """One recorded pass. Made by `aw.trace`; methods read it, views never do.

    A trace can be pickled, with its model (as far as the model can). `copy.deepcopy` gives a trace with
    numbers of its own and the same model and tokenizer; `copy.copy` shares the numbers as well.

    Args:
        tokens: Display strings of the default stack's queries (see `axes` for the others).
        input_ids: [token], or None for images, audio and given numbers.
        model: The model as it was given, or None.
        tokenizer: The tokenizer or processor as it was given, or None.
        model_id: Name of the model.
        boundary: Index of the first generated token, or None.
        warning: What a reader must know (text that was cut, how it was recorded); "" if nothing.
        logits: The model's logits of this text, on the CPU: [token, vocabulary] or [class]; None without a
            head.
        inputs: The model's inputs for this text alone, to run it again.
        interventions: What was changed in the model while it was recorded, in words.
    """

    stack_table: dict[str, Stack] = field(repr=False)
    model: Any = field(default=None, repr=False)
    tokenizer: Any = field(default=None, repr=False)
    model_id: str = ""
    input_ids: Tensor | None = field(default=None, repr=False)
    logits: Tensor | None = field(default=None, repr=False)
    inputs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    warning: str = ""
    memory: int = 10**9
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    predicted: tuple[str, tuple[Prediction, ...]] = field(default=("", ()), repr=False)
    interventions: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: OrderedDict[tuple[str, int], Tensor] = OrderedDict()
        self._causal: dict[str, bool] = {}

    def __repr__(self) -> str:
        sizes = {name: f"[layer {self.n_layers(name)}, head {self.n_heads(name)}]" for name in self.stacks}
        size = sizes.get("self") or ", ".join(f"{name} {size}" for name, size in sizes.items())
        count = f"{len(self.tokens)} token{'' if len(self.tokens) == 1 else 's'}"
        parts = [f"{type(self).__name__} {size} of {count}", self.model_id]
        parts += [quoted(self.text) if self.text else "", self.warning]
        return f"<{'; '.join(filter(None, parts))}>"

    def __getstate__(self) -> dict[str, Any]:
        # A lock belongs to one process, and attention is computed again when it is asked for.
        return {**vars(self), "_lock": None, "_kept": OrderedDict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def __deepcopy__(self, memo: dict[int, Any]) -> Trace:
        """Return a copy with numbers of its own; it shares the model and the tokenizer."""
        made = memo[id(self)] = object.__new__(type(self))
        shared = {id(held): held for held in (self.model, self.tokenizer)}
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo | shared))
        return made

    def call(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        parameters: Mapping[str, Tensor],
    ) -> Any:
        """Return what a model makes of inputs, with other parameters where some are given by name."""
        if parameters:
            return torch.func.functional_call(model, dict(parameters), (), {**inputs, **options})
        return model(**inputs, **options)

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the stacks: ("self",), ("encoder", "decoder", "cross"), or one per tower."""
        return tuple(self.stack_table)

    @property
    def default_stack(self) -> str:
        """The stack that is shown when none is named."""
        preferred = (s for s in ("self", "encoder", "text") if s in self.stack_table)
        return next(preferred, self.stacks[0])

    @property
    def tokens(self) -> tuple[str, ...]:
        """Display strings of the default stack."""
        return self.axes()[0].tokens

    @property
    def units(self) -> Mapping[str, Unit]:
        """Units of the default stack's tokens, by name."""
        return MappingProxyType(dict(self.axes()[0].units))

    @property
    def text(self) -> str:
        """The text that was read; "" where there is none."""
        return self.axes()[0].text

    @property
    def boundary(self) -> int | None:
        """Index of the first generated token, in the decoder's tokens where there are two stacks."""
        stack = "decoder" if "decoder" in self.stack_table else self.default_stack
        return self.axes(stack)[0].boundary

    def _stack(self, stack: str | None) -> Stack:
        name = self.default_stack if stack is None else stack
        if name not in self.stack_table:
            known = ", ".join(repr(s) for s in self.stacks)
            raise ValueError(
                f"stack {name!r} is not in this trace, which has {known}.{suggest(name, self.stacks)}"
            )
        return self.stack_table[name]

    def axes(self, stack: str | None = None) -> tuple[TokenAxis, TokenAxis]:
        """Return the query and the key axis of a stack."""
        found = self._stack(stack)
        return found.query, found.key

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """What attention and all that is computed from it is kept in: float64 stays, the rest is float32."""
        layers = (layer for stack in self.stack_table.values() for layer in stack.layers)
        return "float64" if any(layer.dtype == torch.float64 for layer in layers) else "float32"

    def n_layers(self, stack: str | None = None) -> int:
        """Return the number of layers of a stack."""
        return len(self._stack(stack).layers)

    def n_heads(self, stack: str | None = None, layer: int | None = None) -> int:
        """Return the number of heads of a layer; without one, of the layer that has most."""
        layers = self._stack(stack).layers
        if layer is None:
            return max(found.shape[0] for found in layers)
        return layers[self._index(layer, stack)].shape[0]

    def _index(self, layer: int, stack: str | None) -> int:
        count = self.n_layers(stack)
        if not -count <= layer < count:
            name = self.default_stack if stack is None else stack
            raise IndexError(f"layer {layer} is out of range: stack {name!r} has layers 0 to {count - 1}")
        return layer % count

    def attention_layer(self, layer: int, stack: str | None = None) -> Tensor:
        """Return one layer's attention [head, query, key] in `dtype` on the CPU; rows are queries.

        Computed when first asked for, from recorded queries and keys, by the function that ran in the model;
        the model is not run. Kept while the byte budget allows, least recently used out first. Do not write
        into it.

        Raises:
            IndexError: If the layer is out of range; the message names the range.
            ValueError: If the stack is unknown.
        """
        name = self.default_stack if stack is None else stack
        found = self._stack(name)
        at = (name, self._index(layer, name))
        with self._lock:
            if at in self._kept:
                self._kept.move_to_end(at)
                return self._kept[at]
            weights = found.layers[at[1]].weights().to(getattr(torch, self.dtype))
            self._kept[at] = weights
            held = sum(kept.nbytes for kept in self._kept.values())
            while held > self.memory and self._kept:
                held -= self._kept.popitem(last=False)[1].nbytes
            return weights

    def attention_rows(
        self, layer: int, heads: Chosen = None, queries: Chosen = None, stack: str | None = None
    ) -> Tensor:
        """Return attention of some heads and queries [head, query, key] in `dtype` on the CPU.

        Equal to `attention_layer(layer)[heads][:, queries]`, but where that layer is not kept only these rows
        are computed: one row of one head takes time and memory in proportion to the number of keys. Do not
        write into it.

        Args:
            layer: Number of the layer; negative ones count from the last.
            heads: Numbers of heads in the order wanted, or a slice; all by default.
            queries: Numbers of queries in the order wanted, or a slice; all by default.
            stack: "encoder", "decoder" or "cross" of an encoder-decoder; the default one otherwise.

        Raises:
            IndexError: If the layer, a head or a query is out of range; the message names the range.
            ValueError: If the stack is unknown.
        """
        name = self.default_stack if stack is None else stack
        found = self._stack(name)
        at = (name, self._index(layer, name))
        with self._lock:
            kept = self._kept.get(at)
            if kept is not None:
                self._kept.move_to_end(at)
        source = found.layers[at[1]] if kept is None else GivenLayer(kept)
        return source.weights(heads, queries).to(getattr(torch, self.dtype))

    def attention_blocks(
        self, layer: int, stack: str | None = None, heads: Chosen = None, limit: int = BLOCK_BYTES
    ) -> Iterator[tuple[slice, Tensor]]:
        """Go through a layer's attention in blocks of queries; only one block is in memory at a time.

        Args:
            layer: Number of the layer.
            stack: "encoder", "decoder" or "cross" of an encoder-decoder; the default one otherwise.
            heads: Numbers of heads, or a slice; all by default.
            limit: About how many bytes a block has; none has fewer than 16 queries.

        Yields:
            Which queries, and their weights [head, query, key].

        Raises:
            IndexError: If the layer or a head is out of range; the message names the range.
            ValueError: If the stack is unknown.
        """
        n_heads, queries, keys = self._stack(stack).layers[self._index(layer, stack)].shape
        some = len(numbers(positions(heads, n_heads, "head")))
        size = getattr(torch, self.dtype).itemsize
        for rows in blocks(queries, some * keys * size, limit):
            yield rows, self.attention_rows(layer, heads, rows, stack)

    def query_key(self, layer: int, stack: str | None = None) -> tuple[Tensor, Tensor]:
        """Return a layer's queries [head, query, dim] and keys [kv head, key, dim], after rotary embedding.

        Raises:
            UnsupportedModelError: If only attention weights are known.
        """
        return self._recorded(layer, stack).query_key()

    def attention_settings(self, layer: int, stack: str | None = None) -> dict[str, Any]:
        """Return what a layer's attention was given beside queries and keys, as `attention_weights` takes it.

        "scaling" multiplies the scores (None: dim ** -0.5) and "softcap" bounds them; "position_bias" and
        "mask" [1, head or 1, query or 1, key] are added to them. None where there is none.

        Raises:
            UnsupportedModelError: If only attention weights are known.
        """
        return self._recorded(layer, stack).settings()

    def _recorded(self, layer: int, stack: str | None) -> RecordedLayer:
        found = self._stack(stack).layers[self._index(layer, stack)]
        if not isinstance(found, RecordedLayer):
            raise UnsupportedModelError(
                f"queries and keys were not recorded for {self.model_id or 'given numbers'}"
            )
        return found

    def is_causal(self, stack: str | None = None) -> bool:
        """Return whether no query reads a later key, in the first and the last layer; no layer is built."""
        name = self.default_stack if stack is None else stack
        query, key = self.axes(name)
        with self._lock:
            if name not in self._causal:
                ends = {0, self.n_layers(name) - 1} if len(query) == len(key) and len(query) > 1 else set()
                reads = [self._reads(layer, name) for layer in ends]
                # Of nothing but zeros nobody can tell.
                self._causal[name] = any(some for some, _ in reads) and not any(later for _, later in reads)
            return self._causal[name]

    def _reads(self, layer: int, stack: str) -> tuple[bool, bool]:
        """Return whether a layer's queries read any key, and whether any reads a later one."""
        found = self._stack(stack).layers[layer]
        if isinstance(found, RecordedLayer) and found.hides_later_keys():
            return True, False
        some = False
        # Small blocks: where later keys are read at all, the first queries do.
        for rows, weights in self.attention_blocks(layer, stack, limit=2**20):
            if torch.triu(weights, diagonal=rows.start + 1).any():
                return True, True
            some = some or bool(weights.any())
        return some, False

    def rows_sum_to_one(self, stack: str | None = None) -> bool | None:
        """Return True where weights are what a softmax returned; None where only the numbers can tell."""
        layers = self._stack(stack).layers
        own = all(isinstance(layer, RecordedLayer) and layer.call.weights is None for layer in layers)
        return True if own else None

    def is_signed(self, stack: str | None = None) -> bool:
        """Return whether a weight may be negative: a model's own are shares."""
        del stack
        return False

    @property
    def predictions_title(self) -> str:
        """What the predictions are of: "next token", "class", "[MASK] at 6", or "" where there are none."""
        return self.predicted[0]

    def rerun(self, *interventions: AbstractContextManager[Any]) -> Trace:
        """Return the trace of the same input with the model as it is now: one recorded pass.

        Args:
            interventions: What is to be in force meanwhile, beside what is already::

                trace.rerun(aw.ablate_heads(trace, {3: [1, 4]}))

        Raises:
            ValueError: If the trace has no model, or its attention was not recorded.
        """
        from attnwidgets.tracing.rerun_trace import again

        with ExitStack() as exits:
            for one in interventions:
                exits.enter_context(one)
            return again(self)

    def diff(self, other: Trace) -> Difference:
        """Return what differs between this trace and another of the same input: predictions and attention.

        Args:
            other: What `rerun` returned, or a trace of the same tokens by another model of the same shape.

        Raises:
            ValueError: If it is of other tokens.
        """
        from attnwidgets.tracing.trace_difference import difference

        return difference(self, other)

    def predictions(self, k: int = 10) -> tuple[Prediction, ...]:
        """Return the `k` most probable outputs, most probable first; () where the model predicts nothing."""
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        return self.predicted[1][:k]


def tower_names(paths: Sequence[str]) -> list[str]:
    """Return short names for stacks of layers: "self" for one, else the tower ("text", "vision", "audio")."""
    if len(paths) == 1:
        return ["self"]
    names = []
    for path in paths:
        kinds = (("vision", "vision"), ("audio", "audio"), ("text", "text"), ("language", "text"))
        names.append(next((name for mark, name in kinds if mark in path), path))
    return names if len(set(names)) == len(names) else list(paths)
