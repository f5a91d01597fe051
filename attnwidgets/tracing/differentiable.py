"""Run a traced model again with gradients: at its embeddings, between its blocks, at its attention.

Nothing of the model's own code is needed for it: embeddings are the modules that were given the token ids,
blocks are the elements of lists of modules that hold one attention, and attention passes through the one
function that also records it. What a gradient is taken of, and under which rules, is the methods' business.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from attnwidgets._errors import suggest
from attnwidgets.tracing.attention_function import UnsupportedModelError
from attnwidgets.tracing.borrow import borrowed, implementation, unwrap
from attnwidgets.tracing.recorder import forward_parameters, recording
from attnwidgets.tracing.rerun import HALF, first_tensor
from attnwidgets.tracing.trace import RecordedLayer
from attnwidgets.tracing.watching import is_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from attnwidgets.tracing.trace import Trace

Place = Literal["embedding", "block", "input"]
"""Where gradients are taken: at the word embeddings (elsewhere as "block"), at what the first block is given
(positions, token types and special tokens added), or at the numbers the model reads (pixels, samples)."""

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_frozen: dict[int, tuple[int, bool]] = {}
_frozen_guard = threading.Lock()


@dataclass
class Graph:
    """One differentiable pass: what the model returned, and tensors of its graph, all with a batch axis.

    Attributes:
        outputs: What the model returned.
        inputs: Where gradients end, by stream (for "input" by the name of the model's input): leaves
            [batch, token, width].
        states: By stream, what every block was given and, last, what the last block returned:
            [batch, token, width] each.
        beside: By stream and block, what else a block was given that depends on the inputs (a decoder's
            blocks: the encoder's states), each call with its own copy.
        weights: By stream and layer, attention weights [batch, head, query, key].
        heads: By stream and layer, what each head returned, [batch, head, query, dim].
        inside: What named modules were given, [..., width] each.
    """

    outputs: Any = None
    inputs: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, list[Tensor]] = field(default_factory=dict)
    beside: dict[str, list[tuple[Tensor, ...]]] = field(default_factory=dict)
    weights: dict[str, list[Tensor]] = field(default_factory=dict)
    heads: dict[str, list[Tensor]] = field(default_factory=dict)
    inside: dict[str, list[Tensor]] = field(default_factory=dict)


def gradients(score: Tensor, at: Sequence[Tensor], *, again: bool = False) -> list[Tensor]:
    """Return the gradient of the sum of scores at tensors of a graph; zeros where nothing depends on one.

    No `.grad` is written, of the model's parameters or any other.

    Args:
        score: Numbers to differentiate, [batch] or one.
        at: Tensors of the graph.
        again: Whether the graph is kept for another call.
    """
    found = torch.autograd.grad(score.sum(), list(at), retain_graph=again, allow_unused=True)
    return [torch.zeros_like(one) if grad is None else grad for one, grad in zip(at, found, strict=True)]


@dataclass(frozen=True)
class Runner:
    """A borrowed model, ready to run on a trace's inputs with gradients. Made by `differentiable`."""

    model: nn.Module
    trace: Trace
    place: Place
    purpose: str
    wide: Mapping[str, Tensor]

    def __call__(
        self,
        replace: Mapping[str, Tensor] | None = None,
        *,
        keep: Sequence[Literal["weights", "heads"]] = (),
        inside: Sequence[str] = (),
        hidden_states: bool = False,
        during: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Graph:
        """Run the model once.

        Args:
            replace: What stands in place of the recorded inputs, by stream, [batch, token, width]; a batch of
                several runs the trace's other inputs so often.
            keep: What of attention is kept as well.
            inside: Names of modules whose inputs are kept.
            hidden_states: Whether the outputs hold hidden states.
            during: Makes the context in which the model is called (rules that replace gradients).

        Raises:
            UnsupportedModelError: If the model reads nothing that a gradient can reach.
        """
        replace = dict(replace or {})
        batch = next((len(given) for given in replace.values()), 1)
        inputs = {name: self._input(value, batch) for name, value in self.trace.inputs.items()}
        graph = Graph()
        if self.place == "input":
            for name, value in inputs.items():
                if isinstance(value, Tensor) and value.is_floating_point() and "mask" not in name:
                    leaf = replace.get(name, value).detach().clone().requires_grad_()
                    graph.inputs[name], inputs[name] = leaf, leaf.clone()
        options: dict[str, Any] = {"return_dict": True}
        takes = forward_parameters(self.model)
        if "use_cache" in takes:
            options["use_cache"] = False
        if hidden_states:
            options["output_hidden_states"] = True
        with ExitStack() as stack:
            self._tap(stack, graph, inputs, replace, keep, inside)
            stack.enter_context(during())
            if self.wide:
                call = torch.func.functional_call
                graph.outputs = call(self.model, dict(self.wide), (), inputs | options)
            else:
                graph.outputs = self.model(**inputs, **options)
        if not graph.inputs:
            raise UnsupportedModelError(
                f"{self.purpose} found nothing in {type(self.model).__name__} that a gradient can reach: no "
                "embedding was given the token ids, and no block was found; its inputs are integers only"
            )
        return graph

    def _input(self, value: Any, batch: int) -> Any:
        if not isinstance(value, Tensor):
            return value
        if self.wide and value.dtype in HALF:
            value = value.float()
        # A trace made under inference mode holds tensors that no graph may keep.
        value = value.clone() if value.is_inference() else value
        return (
            value.expand(batch, *value.shape[1:]) if batch > 1 and value.dim() and len(value) == 1 else value
        )

    def _tap(
        self,
        stack: ExitStack,
        graph: Graph,
        inputs: Mapping[str, Any],
        replace: dict[str, Tensor],
        keep: Sequence[str],
        inside: Sequence[str],
    ) -> None:
        """Hook up what a pass is asked for; everything is unhooked when `stack` closes."""
        if self.place == "embedding":
            self._embed(stack, graph, inputs, replace)
        for stream, names in block_names(self.trace, self.model).items():
            graph.states[stream], graph.beside[stream] = [], []
            taps = _BlockTaps(graph, stream, len(names), replace.get(stream), ends=self.place != "input")
            for module in dict.fromkeys(self.model.get_submodule(name) for name in names):
                stack.callback(module.register_forward_pre_hook(taps.before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(taps.after, prepend=True).remove)
        for name in inside:
            graph.inside[name] = []
            stack.callback(_module(self.model, name).register_forward_pre_hook(_Inside(graph, name)).remove)
        if _recorded(self.trace):
            owner = {
                layer.call.name: stream
                for stream, found in self.trace.stream_table.items()
                for layer in found.layers
                if isinstance(layer, RecordedLayer)
            }
            seen = _AttentionTaps(graph, owner, keep, {id(m): n for n, m in self.model.named_modules()})
            stack.enter_context(recording(self.model, [seen.weights], [seen.heads]))
        else:
            stack.enter_context(implementation(self.model, "eager"))

    def _embed(
        self, stack: ExitStack, graph: Graph, inputs: Mapping[str, Any], replace: dict[str, Tensor]
    ) -> None:
        """Let gradients end at the word embeddings of every stream that reads token ids."""
        ids: dict[str, Tensor] = {}
        for name, stream in (("input_ids", self.trace.default_stream), ("decoder_input_ids", "decoder")):
            if isinstance(inputs.get(name), Tensor) and stream in self.trace.stream_table:
                ids[stream] = inputs[name]
        for module in _word_embeddings(self.model):
            tap = _EmbeddingTap(graph, ids, replace)
            stack.callback(module.register_forward_hook(tap, prepend=True).remove)


@contextmanager
def differentiable(
    trace: Trace,
    purpose: str,
    *,
    place: Place = "embedding",
    precision: Literal["float32", "model"] = "float32",
) -> Iterator[Runner]:
    """Borrow a trace's model and yield a function that runs it on the trace's inputs with gradients.

    Meanwhile no parameter requires a gradient, so that what does depends on the inputs; afterwards every flag
    is as it was. A model in half precision runs in float32, on a copy of its weights, unless `precision` is
    "model".

    Args:
        trace: What `aw.trace` returned.
        purpose: The method's name, for messages.
        place: Where gradients end; see `Place`.
        precision: What a half-precision model is computed in.

    Raises:
        ValueError: Under `torch.inference_mode()`, or with quantised weights.
        UnsupportedModelError: If the trace has no model.
    """
    if getattr(trace, "model", None) is None or not hasattr(trace, "stream_table"):
        raise UnsupportedModelError(
            f"{purpose} runs the model again, and this trace has none; "
            "make it with aw.trace(model, tokenizer, text)"
        )
    model = unwrap(trace.model)
    require_gradients(model, purpose)
    with borrowed(model), frozen(model), torch.enable_grad():
        wide = {}
        if precision == "float32":
            wide = {
                name: tensor.detach().float()
                for name, tensor in (*model.named_parameters(), *model.named_buffers())
                if tensor.dtype in HALF
            }
        yield Runner(model, trace, place, purpose, wide)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no tensor of a model require a gradient for the duration; models that share tensors may overlap."""
    tensors = [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_leaf)]
    done: list[Tensor] = []
    try:
        for tensor in tensors:
            with _frozen_guard:
                count, before = _frozen.get(id(tensor), (0, tensor.requires_grad))
                _frozen[id(tensor)] = (count + 1, before)
                done.append(tensor)
                if tensor.requires_grad:
                    tensor.requires_grad = False
        yield
    finally:
        for tensor in done:
            with _frozen_guard:
                count, before = _frozen[id(tensor)]
                if count > 1:
                    _frozen[id(tensor)] = (count - 1, before)
                else:
                    del _frozen[id(tensor)]
                    if before:
                        tensor.requires_grad = True


def require_gradients(model: nn.Module, purpose: str) -> None:
    """Raise ValueError where no gradient can be had: under inference mode, or of quantised weights."""
    if torch.is_inference_mode_enabled():
        raise ValueError(
            f"{purpose} needs gradients, which torch.inference_mode() rules out; call it outside of that "
            "block (torch.no_grad() is no obstacle)"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_inference():
            raise ValueError(
                f"{purpose} needs gradients, and {name} was made under torch.inference_mode(); load the "
                "model outside of that block"
            )
        quantised = parameter.is_quantized or not (parameter.is_floating_point() or parameter.is_complex())
        if quantised or hasattr(parameter, "quant_state"):
            raise ValueError(
                f"{purpose} cannot follow gradients through quantised weights, as {name} "
                f"({str(parameter.dtype).removeprefix('torch.')}); load the model without quantisation"
            )
    for name, module in model.named_modules():
        kind = f"{type(module).__module__}.{type(module).__name__}".lower()
        if "quantized" in kind or any(mark in kind for mark in ("bitsandbytes", "quantlinear", "qlinear")):
            raise ValueError(
                f"{purpose} cannot follow gradients through quantised weights, as those of {name} "
                f"({type(module).__name__}); load the model without quantisation"
            )


def block_names(trace: Trace, model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the modules of every stream's blocks, in order; without streams whose blocks are not found.

    A block is the outermost element of a list of modules that holds one attention of its stream; where
    attention is not recorded, an element of the one list that is as long as the stream has layers.
    """
    modules = dict(model.named_modules())
    elements = {
        f"{name}.{child}" if name else child
        for name, module in modules.items()
        if isinstance(module, _LISTS)
        for child, _ in module.named_children()
    }
    found: dict[str, tuple[str, ...]] = {}
    for stream, table in trace.stream_table.items():
        if stream == "cross":
            continue
        names = [layer.call.name for layer in table.layers if isinstance(layer, RecordedLayer)]
        if len(names) == len(table.layers):
            blocks = [_block_of(name, set(names), elements) for name in names]
        else:
            lists = [
                [f"{name}.{child}" if name else child for child, _ in module.named_children()]
                for name, module in modules.items()
                if isinstance(module, nn.ModuleList) and len(module) == len(table.layers)
            ]
            blocks = list(lists[0]) if len(lists) == 1 else []
        if blocks and all(block is not None and block in modules for block in blocks):
            found[stream] = tuple(str(block) for block in blocks)
    return found


def _block_of(attention: str, own: set[str], elements: set[str]) -> str | None:
    parts = attention.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        inside = [other for other in own if other == name or other.startswith(f"{name}.")]
        if name in elements and len(inside) == 1:
            return name
    return None


def _recorded(trace: Trace) -> bool:
    return all(
        isinstance(layer, RecordedLayer) for found in trace.stream_table.values() for layer in found.layers
    )


def _word_embeddings(model: nn.Module) -> list[nn.Module]:
    """Return the tables of words: the one the model names and its like, or else every embedding."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    try:
        named = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    except NotImplementedError:
        # Models of two towers have no one table.
        named = None
    if not isinstance(named, nn.Embedding):
        return tables
    # A decoder may hold its own module over the same numbers (BART).
    return [module for module in tables if module is named or module.num_embeddings == named.num_embeddings]


def _module(model: nn.Module, name: str) -> nn.Module:
    known = [found for found, _ in model.named_modules() if found]
    if name not in known:
        raise ValueError(f"{type(model).__name__} has no module {name!r}.{suggest(name, known)}")
    return model.get_submodule(name)


@dataclass
class _EmbeddingTap:
    """Makes what an embedding returns for a stream's token ids the leaf of that stream."""

    graph: Graph
    ids: Mapping[str, Tensor]
    replace: Mapping[str, Tensor]

    def __call__(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not args or not is_hidden(output) or not isinstance(args[0], Tensor):
            return output
        for stream, ids in self.ids.items():
            given = args[0]
            if stream not in self.graph.inputs and given.shape == ids.shape and torch.equal(given, ids):
                leaf = self.replace.get(stream, output).detach().clone().requires_grad_()
                self.graph.inputs[stream] = leaf
                # A copy: the model may add positions in place, which a leaf does not allow.
                return leaf.clone()
        return output


@dataclass
class _BlockTaps:
    """Keeps what the blocks of a stream are given, on copies, so that nothing done in place changes it."""

    graph: Graph
    stream: str
    count: int
    replace: Tensor | None
    ends: bool

    def before(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Keep a block's hidden states and what else of the graph it is given: a forward pre-hook."""
        states = self.graph.states[self.stream]
        beside: list[Tensor] = []
        seen = False

        def kept(value: Any) -> Any:
            nonlocal seen
            if is_hidden(value) and not seen:
                seen = True
                # What no embedding stands before ends here: patches, frames.
                if self.ends and not states and self.stream not in self.graph.inputs:
                    value = value if self.replace is None else self.replace
                    value = value.detach().clone().requires_grad_()
                    self.graph.inputs[self.stream] = value
                states.append(value)
                return value.clone()
            if isinstance(value, Tensor) and value.requires_grad:
                beside.append(value.clone())
                return beside[-1]
            return value

        args = tuple(kept(value) for value in args)
        order = sorted(kwargs, key=lambda name: name != "hidden_states")
        changed = {name: kept(kwargs[name]) for name in order}
        self.graph.beside[self.stream].append(tuple(beside))
        return args, {name: changed[name] for name in kwargs}

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        """Keep what the last block returns: a forward hook."""
        states = self.graph.states[self.stream]
        if len(states) == self.count:
            states.append(first_tensor(output))


@dataclass
class _Inside:
    graph: Graph
    name: str

    def __call__(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not args or not isinstance(args[0], Tensor):
            return None
        self.graph.inside[self.name].append(args[0])
        return (args[0].clone(), *args[1:])


@dataclass
class _AttentionTaps:
    """Keeps attention weights and what heads return, as they stand in the graph."""

    graph: Graph
    owner: Mapping[str, str]
    keep: Sequence[str]
    names: Mapping[int, str]

    def weights(self, _: int, module: nn.Module, weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep weights: an edit that changes nothing."""
        self._put("weights", self.graph.weights, module, weights)
        return weights, values

    def heads(self, module: nn.Module, output: Tensor) -> None:
        """Keep what the heads of one call return."""
        self._put("heads", self.graph.heads, module, output)

    def _put(self, what: str, where: dict[str, list[Tensor]], module: nn.Module, tensor: Tensor) -> None:
        stream = self.owner.get(self.names.get(id(module), ""))
        if what in self.keep and stream is not None:
            where.setdefault(stream, []).append(tensor)
