"""Trace: one recorded pass of a model, with its attention computed layer by layer on demand.

A trace holds stacks of layers (`layers.py`), which compute weights from recorded queries and keys. The layers
used last stay in memory, up to `memory` bytes; rows and blocks of rows are computed without their layer.
Pickles of earlier versions open as well (`__setstate__`).

The methods stand in this order: copies and pickles; stacks, axes and blocks; attention by layers, rows
and blocks; queries, keys and sinks; properties of the weights; running again, differences, predictions.
Those that end in `_array` return numpy arrays, whether or not torch is installed.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import Suggesting, quoted, suggest
from attnwidgets._selecting import position, spoken_range
from attnwidgets._tensors import as_array, as_tensor, kept_dtype
from attnwidgets.tracing.anatomy.answer import Answer
from attnwidgets.tracing.anatomy.blocks import Anatomy, attention_blocks, left_out
from attnwidgets.tracing.causal_mask import readable, whole
from attnwidgets.tracing.free_memory import require_room
from attnwidgets.tracing.layers import (
    FollowedLayer,
    GivenLayer,
    RecordedLayer,  # noqa: F401 - see Stream
    SoftmaxLayer,
    Stack,
)
from attnwidgets.tracing.media.picture import know
from attnwidgets.tracing.row_selection import BLOCK_BYTES, blocks, numbers, positions
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.anatomy.blocks import Block
    from attnwidgets.tracing.media.picture import Picture
    from attnwidgets.tracing.media.sound import Sound
    from attnwidgets.tracing.prediction import Prediction
    from attnwidgets.tracing.recording.asked import Asked
    from attnwidgets.tracing.row_selection import Chosen
    from attnwidgets.tracing.text.messages import Message
    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace_difference import Difference

# Older pickles name layers as classes of this module; "Stream" was the name of `Stack` then.
Stream = Stack


@dataclass(eq=False)
class Trace(Suggesting):
    """One recorded pass. `aw.trace` makes it, methods read it, views never do.

    A trace can be pickled together with its model, if the model can. `copy.deepcopy` returns a trace with
    copies of the numbers and the same model and tokenizer; `copy.copy` shares the numbers as well.

    Args:
        tokens: Display strings of the default stack's queries (see `axes` for the others).
        input_ids: [token], or None for images, audio and given numbers.
        model: The user's model, or None.
        tokenizer: The user's tokenizer or processor, or None.
        model_id: Name of the model.
        boundary: Index of the first generated token, or None.
        warning: Warnings for readers (a text was cut, how it was recorded); "" if there are none.
        logits: The model's logits for this text, on the CPU: [token, vocabulary] or [class]; None without a
            head.
        inputs: The model's inputs for this text alone, to run it again.
        interventions: Descriptions of the interventions in force while it was recorded.
        asked: The arguments of `aw.trace`; None if the trace was made otherwise.
        picture: The user's picture, and as the model saw it (`.given`, `.seen`, `.box(...)`), or None.
        sound: The user's sound (`.wave`, `.rate`, `.heard`), or None.
        no_attention: Why attention from every token to every token is missing, as in a model that is
            convolutional or attends in windows; "" if it is present.
        added: By stack, how many tokens interventions had appended.
        answer: The meaning of the logits: names of their columns, how a probability comes about.
        state: The state of the model when it was traced (`model_state.state_of`), in this session.
        unrecorded: Blocks that attend and are in no stack, by the path of their list; see `anatomy`.
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
    answer: Answer = field(default_factory=Answer, repr=False)
    predicted: tuple[Prediction, ...] = field(default=(), repr=False)
    interventions: tuple[str, ...] = field(default=(), repr=False)
    asked: Asked | None = field(default=None, repr=False)
    picture: Picture | None = field(default=None, repr=False)
    sound: Sound | None = field(default=None, repr=False)
    no_attention: str = field(default="", repr=False)
    added: Mapping[str, int] = field(default_factory=dict, repr=False)
    state: int = field(default=0, repr=False)
    unrecorded: Mapping[str, tuple[Block, ...]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: OrderedDict[tuple[str, int], NDArray[np.floating]] = OrderedDict()
        self._causal: dict[str, bool] = {}
        know(self)

    def __repr__(self) -> str:
        sizes = {
            name: f"[layer {self.n_layers(name)}, head {self.n_heads(name)}]"
            for name in self.stacks
            if self.has_attention(name)
        }
        size = sizes.get("self") or ", ".join(f"{name} {size}" for name, size in sizes.items())
        size = size or "without attention"
        count = f"{len(self.tokens)} token{'' if len(self.tokens) == 1 else 's'}"
        parts = [f"{type(self).__name__} {size} of {count}", self.model_id]
        parts += [quoted(self.text) if self.text else "", self.warning]
        return f"<{'; '.join(filter(None, parts))}>"

    def __getstate__(self) -> dict[str, Any]:
        # A lock belongs to its process; attention is computed again on demand.
        return {**vars(self), "_lock": None, "_kept": OrderedDict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({"added": {}, "unrecorded": {}} | state | {"state": 0}, _lock=threading.RLock())
        if "answer" not in state:  # pickled when `predicted` had the title, too
            title, predictions = state["predicted"]
            self.predicted = predictions
            row = -1 if title == "next token" else int(title.rpartition(" ")[2]) if " at " in title else None
            self.answer = Answer(title, row=row)
        if "stream_table" in state:  # pickled when stacks were called streams
            self.stack_table = vars(self).pop("stream_table")

    def __deepcopy__(self, memo: dict[int, Any]) -> Trace:
        """Return a copy of the trace and its numbers; it shares the model and the tokenizer."""
        duplicate = memo[id(self)] = object.__new__(type(self))
        shared = {id(item): item for item in (self.model, self.tokenizer)}
        duplicate.__setstate__(copy.deepcopy(self.__getstate__(), memo | shared))
        return duplicate

    def call(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        parameters: Mapping[str, Tensor],
    ) -> Any:
        """Return a model's outputs for inputs, with some of its parameters replaced by name."""
        from attnwidgets.tracing.failed_pass import told_of_pass

        with told_of_pass(model, inputs):
            if parameters:
                import torch

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
        return self.axes()[0].units

    @property
    def text(self) -> str:
        """The text that was read; "" if there is none."""
        return self.axes()[0].text

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of a chat, their tokens and parts that its template dropped; () for other texts."""
        return self.axes()[0].messages

    @property
    def boundary(self) -> int | None:
        """Index of the first generated token, among the decoder's tokens in an encoder-decoder."""
        stack = "decoder" if "decoder" in self.stack_table else self.default_stack
        return self.axes(stack)[0].boundary

    def _stack(self, stack: str | None) -> Stack:
        name = self.default_stack if stack is None else stack
        if name not in self.stack_table:
            present = ", ".join(repr(s) for s in self.stacks)
            raise ValueError(
                f"stack {name!r} is not in this trace, which has {present}.{suggest(name, self.stacks)}"
            )
        return self.stack_table[name]

    def axes(self, stack: str | None = None) -> tuple[TokenAxis, TokenAxis]:
        """Return the query and the key axis of a stack."""
        own_stack = self._stack(stack)
        return own_stack.query, own_stack.key

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """Precision of attention and of everything computed from it: float64 stays, the rest is float32."""
        layers = (layer for stack in self.stack_table.values() for layer in stack.layers)
        return "float64" if any(layer.dtype == np.float64 for layer in layers) else "float32"

    def layers(self, stack: str | None = None) -> tuple[int, ...]:
        """Return the numbers of a stack's layers: the model's blocks with recorded attention, from 0.

        In a model whose blocks all attend, these are 0 to n - 1. Of others, `trace.anatomy` names all blocks.
        Wherever a layer of attention is named, a negative number counts from the last of these; where states
        of blocks are read (`aw.concepts.states`, `aw.lrp`, `aw.vision.token_norms`), from the last block.
        """
        return self._stack(stack).numbers

    def n_layers(self, stack: str | None = None) -> int:
        """Return the number of layers of a stack; see `layers` for their numbers."""
        return len(self._stack(stack).layers)

    @property
    def anatomy(self) -> Anatomy:
        """The blocks of every stack, numbered as in the model, with their mixers, and its positions.

        Example:
            >>> aw.trace(*aw.demo_model("encoder"), "The cat sat.").anatomy
            self: 6 blocks: 0 to 5 attention (12 heads)
              positions: special tokens 0, 5; tokens 1 to 4
        """
        recorded = {
            name: stack.blocks or attention_blocks([layer.shape[0] for layer in stack.layers], name)
            for name, stack in self.stack_table.items()
        }
        positions = {name: stack.key.kinds for name, stack in self.stack_table.items()}
        return Anatomy({**recorded, **self.unrecorded}, positions)

    def left_out(self, stack: str | None = None, *, attention: bool = True) -> str:
        """Return the mixers of a stack that its maps leave out, in words; "" if there are none.

        Args:
            stack: The stack; the default stack if omitted.
            attention: Whether the maps are of attention. Others (`aw.attention_norm`, `aw.alti`) also show
                blocks that mix tokens without it.
        """
        name = self.default_stack if stack is None else stack
        return left_out(self._stack(name).blocks, name, attention=attention)

    def mixing_layers(self, stack: str | None = None) -> tuple[int, ...]:
        """Return the numbers of all blocks of a stack with recorded mixing, by attention or otherwise."""
        return self._stack(stack).mixing_numbers

    def has_attention(self, stack: str | None = None) -> bool:
        """Return whether attention of a stack was recorded or given; see `no_attention`."""
        return bool(self._stack(stack).layers)

    def n_heads(self, stack: str | None = None, layer: int | None = None) -> int:
        """Return the number of heads of a layer; without one, the largest number that any layer has.

        Raises:
            UnsupportedModelError: If the trace has no attention; the message says why.
        """
        layers = self._with_attention(stack).layers
        if layer is None:
            return max(item.shape[0] for item in layers)
        return layers[self._index(layer, stack)[1]].shape[0]

    def _with_attention(self, stack: str | None) -> Stack:
        """Return a stack, or raise an UnsupportedModelError if it has no attention."""
        own_stack = self._stack(stack)
        if not own_stack.layers:
            why = self.no_attention or f"{self.model_id or 'this module'} has none"
            raise UnsupportedModelError(
                f"this trace has no attention: {why}. aw.methods(trace) says which methods explain it."
            )
        return own_stack

    def _index(self, layer: int, stack: str | None) -> tuple[str, int]:
        """Return the name of a stack and the position of a layer, given by its number, among its layers."""
        name = self.default_stack if stack is None else stack
        own_stack = self._with_attention(name)
        try:
            return name, position(layer, own_stack.numbers, "layer")
        except IndexError as error:
            where = f"stack {name!r} has layer{'s' * (len(own_stack.layers) > 1)}"
            why = next((block.description for block in own_stack.blocks if block.number == layer), "")
            raise IndexError(
                f"layer {layer} is out of range: {where} {spoken_range(own_stack.numbers)}"
                + (f"; block {layer} has no attention over its tokens, but {why}" if why else "")
            ) from error

    def attention_layer(self, layer: int, stack: str | None = None) -> Tensor:
        """Return a layer's attention [head, query, key] in `dtype` on the CPU; rows are queries.

        A torch tensor; where torch is not installed, a numpy array of the same numbers. Computed on first
        access from the recorded queries and keys, by the function that ran in the model; the model itself
        does not run. Cached within the byte budget, least recently used out first. Do not write into it.

        Raises:
            IndexError: If the layer is out of range; the message names the range.
            ValueError: If the stack is unknown, or the layer does not fit into memory.
        """
        return as_tensor(self.layer_array(layer, stack))

    def layer_array(self, layer: int, stack: str | None = None) -> NDArray[np.floating]:
        """Return `attention_layer` as a numpy array, whether or not torch is installed."""
        name, number = self._index(layer, stack)
        with self._lock:
            weights = self._cached_layer(name, number)
            if weights is None:
                source = self.stack_table[name].layers[number]
                heads, queries, keys = source.shape
                require_room(
                    f"the attention of layer {self.layers(name)[number]} over {queries:,} tokens",
                    heads * queries * keys * np.dtype(self.dtype).itemsize,
                    None,
                    "Read some rows with attention_rows, blocks of them with attention_blocks, or sums with "
                    "aw.circuits.sentence_attribution(trace, 'attention')",
                    can_force=False,
                )
                weights = self._kept[name, number] = source.weights().astype(self.dtype, copy=False)
                cached_bytes = sum(cached.nbytes for cached in self._kept.values())
                while cached_bytes > self.memory and self._kept:
                    cached_bytes -= self._kept.popitem(last=False)[1].nbytes
            return weights

    def _cached_layer(self, stack: str, number: int) -> NDArray[np.floating] | None:
        """Return a layer's attention if it is cached, and mark it as used last."""
        with self._lock:
            if (stack, number) in self._kept:
                self._kept.move_to_end((stack, number))
            return self._kept.get((stack, number))

    def attention_rows(
        self, layer: int, heads: Chosen = None, queries: Chosen = None, stack: str | None = None
    ) -> Tensor:
        """Return attention of some heads and queries [head, query, key] in `dtype` on the CPU.

        Equal to `attention_layer(layer)[heads][:, queries]`, but unless that layer is cached only these rows
        are computed: a row of a head takes time and memory in proportion to the number of keys. Do not write
        into it.

        Args:
            layer: Number of the layer; negative ones count from the last.
            heads: Numbers of heads in the order of the result, or a slice; all by default.
            queries: Numbers of queries in the order of the result, or a slice; all by default.
            stack: "encoder", "decoder" or "cross" of an encoder-decoder; the default stack otherwise.

        Raises:
            IndexError: If the layer, a head or a query is out of range; the message names the range.
            ValueError: If the stack is unknown.
        """
        return as_tensor(self.rows_array(layer, heads, queries, stack))

    def rows_array(
        self, layer: int, heads: Chosen = None, queries: Chosen = None, stack: str | None = None
    ) -> NDArray[np.floating]:
        """Return `attention_rows` as a numpy array, whether or not torch is installed."""
        name, number = self._index(layer, stack)
        cached = self._cached_layer(name, number)
        source = self.stack_table[name].layers[number] if cached is None else GivenLayer(cached)
        return source.weights(heads, queries).astype(self.dtype, copy=False)

    def attention_blocks(
        self, layer: int, stack: str | None = None, heads: Chosen = None, limit: int = BLOCK_BYTES
    ) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over a layer's attention in blocks of queries; a single block is in memory at a time.

        Args:
            layer: Number of the layer.
            stack: "encoder", "decoder" or "cross" of an encoder-decoder; the default stack otherwise.
            heads: Numbers of heads, or a slice; all by default.
            limit: Approximate bytes of a block; every block has at least 16 queries.

        Yields:
            A slice of queries, and their weights [head, query, key].

        Raises:
            IndexError: If the layer or a head is out of range; the message names the range.
            ValueError: If the stack is unknown.
        """
        for rows, weights in self._blocks(layer, stack, heads, limit):
            yield rows, as_tensor(weights)

    def _blocks(
        self, layer: int, stack: str | None, heads: Chosen, limit: int
    ) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        name, number = self._index(layer, stack)
        n_heads, queries, keys = self.stack_table[name].layers[number].shape
        n_chosen = len(numbers(positions(heads, n_heads, "head")))
        size = kept_dtype(self.dtype).itemsize
        for rows in blocks(queries, n_chosen * keys * size, limit):
            yield rows, self.rows_array(layer, heads, rows, stack)

    def query_key(self, layer: int, stack: str | None = None) -> tuple[Tensor, Tensor]:
        """Return a layer's queries [head, query, dim] and keys [kv head, key, dim], after rotary embedding.

        Raises:
            UnsupportedModelError: If only attention weights were recorded.
        """
        query, key = self._recorded(layer, stack).query_key()
        return as_tensor(query), as_tensor(key)

    def attention_settings(
        self, layer: int, stack: str | None = None, query: int | None = None
    ) -> dict[str, Any]:
        """Return a layer's attention inputs other than queries and keys, as `attention_weights` takes them.

        Of all queries, or of a single `query`, since a long text's mask is large.

        "scaling" multiplies the scores (None: dim ** -0.5) and "softcap" bounds them; "position_bias" and
        "mask" [1, head or 1, query or 1, key] are added to them; "sink" [1, head, query or 1, 1] is an
        additional score of a row, which no key has. Absent settings are None. If scores are additive, there
        is "additive" [head, dim], the weights v of v . tanh(q + k).

        Raises:
            UnsupportedModelError: If only attention weights were recorded.
        """
        settings = self._recorded(layer, stack).settings()
        return {name: as_tensor(whole(value, query)) for name, value in settings.items()}

    def sink_share(self, layer: int, stack: str | None = None) -> Tensor:
        """Return the part of each row of a layer that goes to its sink, to no key at all [head, query].

        A model with a sink, as gpt-oss, gives every row a score in addition to those of the keys: its weights
        sum to 1 minus the sink's share, and that share adds nothing to the output. 0 to 1; 0 for a layer
        without a sink. Where an intervention changed the weights, it is 1 minus the sum of a row.

        Raises:
            UnsupportedModelError: If only attention weights were recorded, which do not show why a row sums
                to less than 1.
            IndexError: If the layer is out of range.
            ValueError: If the stack is unknown.
        """
        source = self._recorded(layer, stack)
        share = np.zeros(source.shape[:2], dtype=self.dtype)
        if source.has_sink:
            for rows, weights in self._blocks(layer, stack, None, BLOCK_BYTES):
                share[:, rows] = 1.0 - weights.sum(axis=-1, dtype=np.float64)
        return as_tensor(share.clip(0.0, 1.0))

    def readable_keys(self, layer: int, stack: str | None = None) -> Tensor:
        """Return which keys each query of a layer may read, as booleans [query, key].

        A query is compared with these keys only: a causal mask or a window hides the others, or the layer
        chose some keys for every query (DeepSeek V3.2). Their weight is 0 without a score. Where masks differ
        by head, a key counts if any head may read it.

        Raises:
            UnsupportedModelError: If only attention weights were recorded.
            IndexError: If the layer is out of range.
            ValueError: If the stack is unknown.
        """
        self._recorded(layer, stack)
        return as_tensor(self.readable_array(layer, stack))

    def readable_array(self, layer: int, stack: str | None = None) -> NDArray[np.bool_] | None:
        """Return `readable_keys` as a numpy array; None if only attention weights were recorded."""
        name, number = self._index(layer, stack)
        source = self.stack_table[name].layers[number]
        if not isinstance(source, SoftmaxLayer):
            return None
        mask = whole(source.settings()["mask"])
        allowed: Any = np.ones((1, 1), dtype=bool) if mask is None else as_array(readable(mask))
        # Of a mask [1, head or 1, query or 1, key].
        allowed = allowed.any(axis=tuple(range(allowed.ndim - 2)))
        return np.broadcast_to(allowed, source.shape[1:]).copy()

    def query_key_arrays(
        self, layer: int, stack: str | None = None
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]] | None:
        """Return scaled queries and repeated keys [head, token, dim] whose products are a layer's scores.

        None if the weights are not the softmax of products and a mask alone.
        """
        name, number = self._index(layer, stack)
        source = self.stack_table[name].layers[number]
        if not isinstance(source, SoftmaxLayer) or not source.is_softmax():
            return None
        settings = dict(source.settings())
        settings.pop("mask")
        scaling = settings.pop("scaling")
        if any(value is not None for value in settings.values()):
            return None
        query, key = map(as_array, source.query_key())
        scaled = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        return scaled, key.repeat(len(query) // len(key), axis=0)

    def _recorded(self, layer: int, stack: str | None) -> SoftmaxLayer:
        name, number = self._index(layer, stack)
        source = self.stack_table[name].layers[number]
        if not isinstance(source, SoftmaxLayer):
            why = (
                f": {source.call.name} computes its scores outside transformers' attention interface"
                if isinstance(source, FollowedLayer)
                else ""
            )
            raise UnsupportedModelError(
                f"queries and keys were not recorded for {self.model_id or 'given numbers'}{why}"
            )
        return source

    def is_causal(self, stack: str | None = None) -> bool:
        """Return whether no query reads a later key in the first and the last layer; builds no layer."""
        name = self.default_stack if stack is None else stack
        query, key = self.axes(name)
        with self._lock:
            if name not in self._causal:
                table = self._stack(name)
                numbers = table.numbers
                ends = {numbers[0], numbers[-1]} if len(query) == len(key) > 1 and numbers else set()
                reads = [self._reads(layer, name) for layer in ends]
                # Kernels without attention never read later tokens.
                reads += [(len(query) > 1, not block.is_causal) for block in table.mixing.values()]
                # Weights that are all zero say nothing.
                self._causal[name] = any(some for some, _ in reads) and not any(later for _, later in reads)
            return self._causal[name]

    def _reads(self, layer: int, stack: str) -> tuple[bool, bool]:
        """Return whether a layer's queries read any key, and whether any query reads a later key."""
        source = self._stack(stack).layers[self._index(layer, stack)[1]]
        if isinstance(source, SoftmaxLayer) and source.hides_later_keys():
            return True, False
        some = False
        # Small blocks: if any query reads later keys, the first queries do.
        for rows, weights in self._blocks(layer, stack, None, 2**20):
            if np.triu(weights, k=rows.start + 1).any():
                return True, True
            some = some or bool(weights.any())
        return some, False

    def rows_sum_to_one(self, stack: str | None = None) -> bool | None:
        """Return True if all weights come from a softmax over keys, False if sinks take a part of some rows.

        None if only the numbers can tell.
        """
        layers = self._stack(stack).layers
        if not all(isinstance(layer, SoftmaxLayer) and layer.is_softmax() for layer in layers):
            return None
        return not self.has_sinks(stack)

    def has_sinks(self, stack: str | None = None) -> bool:
        """Return whether a layer of a stack has a sink, which takes a part of its rows; see `sink_share`."""
        return any(isinstance(layer, SoftmaxLayer) and layer.has_sink for layer in self._stack(stack).layers)

    def is_signed(self, stack: str | None = None) -> bool:
        """Return whether weights may be negative; weights of a model never are."""
        del stack
        return False

    @property
    def predictions_title(self) -> str:
        """Kind of the outputs: "next token", "class", "[MASK] at 6", "answer", "number"; "" without any."""
        return self.answer.title

    def rerun(self, *interventions: AbstractContextManager[Any]) -> Trace:
        """Return the trace of the same input with the model as it is now: one recorded pass.

        Args:
            interventions: Interventions for this pass, added to those already in force::

                trace.rerun(aw.ablate_heads(trace, {3: [1, 4]}))

        Raises:
            ValueError: If the trace has no model, or its attention was not recorded.
        """
        if self.model is None:
            raise UnsupportedModelError(
                "this trace has no model to run again; make it with aw.trace(model, tokenizer, text)"
            )
        from attnwidgets.tracing.rerun_trace import again

        with ExitStack() as exits:
            for intervention in interventions:
                exits.enter_context(intervention)
            return again(self)

    def diff(self, other: Trace) -> Difference:
        """Return the difference between this trace and another: in predictions and in attention.

        Tokens of two texts are aligned by edit distance, tokens of two tokenizers by the characters that they
        spell (`.alignment`). Tokens without a partner count whole, so that sums are complete.

        Args:
            other: Result of `rerun`, or a trace of another text, or by another model of the same shape.

        Raises:
            ValueError: If they have no stack in common, or the texts differ too much to be aligned.

        Example:
            >>> model = aw.demo_model("classifier")
            >>> good, bad = (aw.trace(*model, f"The film was {word}.") for word in ("good", "not good"))
            >>> good.diff(bad).alignment
            <Alignment of 8 columns by token; 'nothing' for 'not'>
        """
        from attnwidgets.tracing.trace_difference import difference

        return difference(self, other)

    def predictions(self, k: int = 10) -> tuple[Prediction, ...]:
        """Return the `k` most probable outputs, most probable first; () if the model predicts nothing.

        Numbers of a regression stand in their order; their probability is NaN. An extractive answer's id is
        start * tokens + end, its last token included. Of a model with several heads they are the first's;
        `warning` names the others, which a function of the outputs explains::

            aw.lrp(trace, lambda outputs: outputs.seq_relationship_logits[:, 0])   # BertForPreTraining
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        return self.predicted[:k]
