"""A traced model, run again with gradients at its embeddings, between its blocks and at its attention.

This needs nothing from the model's code: embeddings are the modules that receive the token ids, blocks are
the elements of module lists that contain a single attention, and attention passes through the function that
also records it. The methods decide which gradients to take, and under which rules. `differentiable` yields a
`Runner`; each of its calls is a pass and returns a `Graph`, whose tensors `gradients` differentiates by.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from attnwidgets._gradients import grad_mode
from attnwidgets._tensors import is_half, widened
from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.anatomy.block_names import block_names, recorded, word_embeddings
from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.gradients.gradient_hooks import (
    AttentionHooks,
    BlockHooks,
    EmbeddingHook,
    differentiable_model,
    traced_model,
)
from attnwidgets.tracing.pass_memory import room_for_pass, told_what_to_do
from attnwidgets.tracing.recording.batch import in_copies
from attnwidgets.tracing.recording.borrow import borrowed, implementation
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from attnwidgets.tracing.trace import Trace

Place = Literal["embedding", "block", "input"]
"""Where gradients are computed: at the word embeddings ("block" if there are none), at the input of the first
block (positions, token types and special tokens added), or at the model's numeric input (pixels, samples)."""

Precision = Literal["float32", "model"]
"""The precision in which a half-precision model is run."""

At = tuple[str, str, int, int]
"""The key of a tensor in a graph: kind, stack, layer, and index among several."""


@dataclass
class Graph:
    """A differentiable pass: the model's outputs and tensors of its graph, all with a batch axis.

    Attributes:
        outputs: The model's outputs.
        inputs: The leaves where gradients end, by stack (for "input" by the name of the model's input),
            [batch, token, width].
        states: By stack, the input of each block and, last, the output of the last block,
            [batch, token, width] each.
        other_inputs: By stack and block, block inputs that depend on the model's inputs (in a decoder,
            the encoder's states), a copy for each call.
        weights: By stack and layer, attention weights [batch, head, query, key].
        heads: By stack and layer, the heads' outputs [batch, head, query, dim].
    """

    outputs: Any = None
    inputs: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, list[Tensor]] = field(default_factory=dict)
    other_inputs: dict[str, list[tuple[Tensor, ...]]] = field(default_factory=dict)
    weights: dict[str, list[Tensor]] = field(default_factory=dict)
    heads: dict[str, list[Tensor]] = field(default_factory=dict)

    def tensors(self) -> dict[At, Tensor]:
        """Return the stored tensors of the graph, by key."""
        tensors: dict[At, Tensor] = {("inputs", name, 0, 0): leaf for name, leaf in self.inputs.items()}
        for kind in ("states", "weights", "heads"):
            for name, layers in getattr(self, kind).items():
                tensors |= {(kind, name, layer, 0): tensor for layer, tensor in enumerate(layers)}
        for name, blocks in self.other_inputs.items():
            for block, copies in enumerate(blocks):
                tensors |= {("other_inputs", name, block, i): tensor for i, tensor in enumerate(copies)}
        return tensors


def gradients(score: Tensor, at: Sequence[Tensor], *, again: bool = False) -> list[Tensor]:
    """Return the gradient of the sum of scores at tensors of a graph; zeros if it does not depend on them.

    No `.grad` is written, neither the parameters' nor any other.

    Args:
        score: Numbers to differentiate, [batch] or [].
        at: Tensors of the graph.
        again: Whether the graph is retained for another call.
    """
    if not score.requires_grad:
        return [torch.zeros_like(tensor) for tensor in at]
    # Inputs of a block other than its states may be constants.
    within = [tensor for tensor in at if tensor.requires_grad]
    options: dict[str, Any] = {"retain_graph": again, "allow_unused": True, "materialize_grads": True}
    by_tensor = iter(torch.autograd.grad(score.sum(), within, **options))
    return [next(by_tensor) if tensor.requires_grad else torch.zeros_like(tensor) for tensor in at]


@dataclass(frozen=True)
class Runner:
    """A borrowed model, ready to run on a trace's inputs with gradients. Made by `differentiable`."""

    model: nn.Module
    trace: Trace
    place: Place
    purpose: str
    wide: Mapping[str, Tensor]
    entry: str = ""

    def __call__(
        self,
        replace: Mapping[str, Tensor] | None = None,
        *,
        keep: Sequence[Literal["weights", "heads"]] = (),
        reads: Collection[str] = (),
        during: Callable[[], AbstractContextManager[Any]] = nullcontext,
        again: bool = False,
    ) -> Graph:
        """Run the model once.

        Args:
            replace: Inputs to use instead of the trace's, by stack, [batch, token, width]; the trace's
                other inputs are repeated for a batch of several.
            keep: Tensors of the attention to store as well.
            reads: Names of options by which the outputs hold more, such as "output_hidden_states".
            during: Returns a context to call the model in, such as rules that replace gradients.
            again: Whether gradients are computed once, and not of gradients, and that context may be entered
                again meanwhile. Then weights of a long text are computed twice instead of being kept.

        Raises:
            UnsupportedModelError: If no input of the model is differentiable.
            ValueError: If the pass does not fit in memory.
        """
        replace = dict(replace or {})
        batch = next((len(states) for states in replace.values()), 1)
        inputs = in_copies({name: self._input(value) for name, value in self.trace.inputs.items()}, batch)
        graph = Graph()
        bare = not any(table.layers for table in self.trace.stack_table.values())
        if self.place == "input" or bare:
            for name, value in inputs.items():
                if isinstance(value, Tensor) and value.is_floating_point() and "mask" not in name:
                    end = self.trace.default_stack if bare and self.place != "input" else name
                    leaf = replace.get(end, value).detach().clone().requires_grad_()
                    graph.inputs[end], inputs[name] = leaf, leaf.clone()
        options: dict[str, Any] = {"return_dict": True}
        takes = forward_parameters(self.model)
        if "use_cache" in takes:
            options["use_cache"] = False
        options |= dict.fromkeys(reads, True)
        context = during if again and "output_attentions" not in reads else None
        room = room_for_pass(
            self.model,
            self.trace,
            self.purpose,
            batch,
            maps_kept="weights" in keep,
            again=context is not None and "weights" not in keep,
        )
        with room, ExitStack() as exits:
            self._hook(exits, graph, inputs, replace, keep, context)
            exits.enter_context(during())
            graph.outputs = self.trace.call(self.model, inputs, options, self.wide)
        if not graph.inputs:
            raise UnsupportedModelError(
                f"{self.purpose} found no differentiable input in {type(self.model).__name__}: no embedding "
                "receives the token ids, no block was found, and all inputs are integers"
            )
        return graph

    def _input(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if self.wide:
            value = widened(value)
        # Traces made under inference mode have tensors that autograd cannot keep.
        return value.clone() if value.is_inference() else value

    def _hook(
        self,
        exits: ExitStack,
        graph: Graph,
        inputs: Mapping[str, Any],
        replace: dict[str, Tensor],
        keep: Sequence[str],
        again: Callable[[], AbstractContextManager[Any]] | None,
    ) -> None:
        """Register the hooks of a pass; they are removed when `exits` closes."""
        if self.place == "embedding":
            self._hook_embeddings(exits, graph, inputs, replace)
        for stack, names in block_names(self.trace, self.model).items():
            graph.states[stack], graph.other_inputs[stack] = [], []
            hooks = BlockHooks(graph, stack, len(names), replace.get(stack), ends=self.place != "input")
            for module in dict.fromkeys(self.model.get_submodule(name) for name in names):
                exits.callback(module.register_forward_pre_hook(hooks.before, with_kwargs=True).remove)
                exits.callback(module.register_forward_hook(hooks.after, prepend=True).remove)
        if not any(table.layers for table in self.trace.stack_table.values()):
            return  # the model runs as it is
        if recorded(self.trace):
            attention_hooks = AttentionHooks(graph, sites(self.trace), keep)
            edits = [attention_hooks.weights] if "weights" in keep else []
            fuses = again is not None  # blocks of a long text's queries then read earlier keys alone
            exits.enter_context(
                recording(self.model, edits, [attention_hooks.heads], fuses=fuses, again=again)
            )
        else:
            exits.enter_context(implementation(self.model, "eager"))

    def _is_all(self, stack: str, ids: Tensor) -> bool:
        """Return whether gradients of a stack end at the embeddings of its ids.

        They do not if pictures and sounds replace some of these, or soft prompts precede them: then they end
        at the input of the first block of `entry`. Those of other stacks have to pass through their blocks.
        """
        if stack != self.entry or stack not in block_names(self.trace, self.model):
            return True
        config: Any = getattr(self.model, "config", None)
        media = [
            number
            for kind in ("image", "video", "audio")
            for name in (f"{kind}_token_id", f"{kind}_token_index")
            if isinstance(number := getattr(config, name, None), int)
        ]
        is_replaced = bool(torch.isin(ids, torch.tensor(media, device=ids.device)).any())
        return len(self.trace.axes(stack)[0]) == ids.shape[1] and not is_replaced

    def _hook_embeddings(
        self, exits: ExitStack, graph: Graph, inputs: Mapping[str, Any], replace: dict[str, Tensor]
    ) -> None:
        """Make the word embeddings of each stack that reads token ids the leaves of the graph."""
        ids: dict[str, Tensor] = {}
        for name, stack in (("input_ids", self.trace.default_stack), ("decoder_input_ids", "decoder")):
            token_ids = inputs.get(name)
            if (
                isinstance(token_ids, Tensor)
                and stack in self.trace.stack_table
                and self._is_all(stack, token_ids)
            ):
                ids[stack] = token_ids
        for module in word_embeddings(self.model):
            hook = EmbeddingHook(graph, ids, replace)
            exits.callback(module.register_forward_hook(hook, prepend=True).remove)


@contextmanager
def differentiable(
    trace: Trace,
    purpose: str,
    *,
    place: Place = "embedding",
    precision: Precision = "float32",
    back: bool = True,
    entry: str = "",
) -> Iterator[Runner]:
    """Borrow a trace's model and yield a function that runs it on the trace's inputs with gradients.

    It runs on a twin whose parameters require no gradients, so tensors that require some depend on inputs. A
    model in half precision runs in float32, on a copy of its weights, unless `precision` is "model".

    Args:
        trace: Trace returned by `aw.trace`.
        purpose: The method's name, for messages.
        place: Where gradients end; see `Place`.
        precision: Precision in which a half-precision model is run.
        back: Whether gradients are computed. Otherwise the model only runs, so its weights may be quantised.
        entry: The stack that is explained: if it reads more than the embeddings of its tokens, gradients end
            at the input of its first block.

    Raises:
        ValueError: If gradients are computed under `torch.inference_mode()` or with quantised weights.
        UnsupportedModelError: If the trace has no model.
    """
    original = differentiable_model(trace, purpose) if back else traced_model(trace, purpose)
    require_same_model(trace, purpose)
    with ExitStack() as exits:
        model = exits.enter_context(borrowed(original))
        if not back:
            # Tensors made here belong to no graph, and hooks can still read and replace them.
            exits.enter_context(torch.inference_mode(mode=False))
        exits.enter_context(grad_mode(enabled=back))
        exits.enter_context(told_what_to_do(model, trace, purpose))
        wide: dict[str, Tensor] = {}
        if precision == "float32":
            wide = {n: t.float() for n, t in model.named_buffers() if is_half(t)}
            wide |= {
                name: nn.Parameter(parameter.detach().float(), requires_grad=False)
                for name, parameter in model.named_parameters()
                if is_half(parameter)
            }
        yield Runner(model, trace, place, purpose, wide, entry)


def usable(grads: Sequence[Tensor], graph: Graph) -> bool:
    """Return whether gradients are finite and not all zero.

    Zeros are a valid result for a single module, such as a ReLU below zero; in a model they are a fault.
    """
    if not all(bool(gradient.isfinite().all()) for gradient in grads):
        return False
    return not graph.states or any(bool(gradient.any()) for gradient in grads)


def cut_of(graph: Graph) -> str:
    """Return a clause on states that the model itself computes without gradients; "" if it has none."""
    for stack, states in graph.states.items():
        reached = [state.requires_grad for state in states]
        cut = [layer for layer, reaches in enumerate(reached) if not reaches and any(reached[:layer])]
        if cut:
            return (
                f"the model computes the states before layer {cut[0]} of stack {stack!r} without gradients "
                "(torch.no_grad() or detach() in its code), so that none pass through earlier layers"
            )
    return ""


def diagnosis(score: Tensor, graph: Graph, stack: str, method: str) -> str:
    """Return a message that says why a gradient cannot be used, and at which layer it failed."""
    states = graph.states.get(stack, [])
    for layer, state in enumerate(states):
        if not state.isfinite().all():
            where = "the embeddings" if layer == 0 else f"layer {layer - 1}"
            return (
                f"{method}: the states after {where} hold NaN or infinite numbers, the first to do so; check "
                "the model's weights and precision."
            )
    if not score.isfinite().all():
        return f"{method}: the target is {float(score.flatten()[0])}; there is nothing to explain."
    cut = cut_of(graph)
    if cut:
        return f"{method}: {cut}."
    backwards = list(enumerate(gradients(score, states, again=True) if states else []))[::-1]
    for layer, gradient in backwards:
        last = layer == len(states) - 1
        after = "into the last layer's output" if last else f"into layer {layer}'s input"
        if not gradient.isfinite().all():
            return f"{method}: the gradient becomes NaN or infinite on its way {after}."
        if not gradient.any():
            return (
                f"{method}: the gradient is zero everywhere on its way {after}, so the target does not "
                "depend on the input, or an operation without a gradient (rounding, a choice) lies between."
            )
    return (
        f"{method}: the gradient is zero or NaN at the embeddings of stack {stack!r}, before layer 0: the "
        "target does not depend on them."
    )
