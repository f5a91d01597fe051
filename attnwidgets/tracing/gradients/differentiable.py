"""Run a traced model again with gradients: at its embeddings, between its blocks, at its attention.

Nothing of the model's own code is needed for it: embeddings are the modules that were given the token ids,
blocks are the elements of lists of modules that hold one attention, and attention passes through the one
function that also records it. What a gradient is taken of, and under which rules, is the methods' business.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from attnwidgets.tracing.block_names import block_names, recorded, word_embeddings
from attnwidgets.tracing.gradients.differentiability import differentiable_model, traced_model
from attnwidgets.tracing.gradients.gradient_hooks import AttentionTaps, BlockTaps, EmbeddingTap
from attnwidgets.tracing.interventions import require_same_interventions
from attnwidgets.tracing.layers import RecordedLayer
from attnwidgets.tracing.pass_memory import room_for_pass, told_what_to_do
from attnwidgets.tracing.precision import HALF, widened
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.borrow import borrowed, implementation
from attnwidgets.tracing.recording.recorder import forward_parameters, recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from attnwidgets.tracing.trace import Trace

Place = Literal["embedding", "block", "input"]
"""Where gradients are taken: at the word embeddings (elsewhere as "block"), at what the first block is given
(positions, token types and special tokens added), or at the numbers the model reads (pixels, samples)."""


Precision = Literal["float32", "model"]
"""What a half-precision model is computed in."""

At = tuple[str, str, int, int]
"""Where a tensor stands in a graph: kind, stack, layer, and which of several."""


@dataclass
class Graph:
    """One differentiable pass: what the model returned, and tensors of its graph, all with a batch axis.

    Attributes:
        outputs: What the model returned.
        inputs: Where gradients end, by stack (for "input" by the name of the model's input): leaves
            [batch, token, width].
        states: By stack, what every block was given and, last, what the last block returned:
            [batch, token, width] each.
        beside: By stack and block, what else a block was given that depends on the inputs (a decoder's
            blocks: the encoder's states), each call with its own copy.
        weights: By stack and layer, attention weights [batch, head, query, key].
        heads: By stack and layer, what each head returned, [batch, head, query, dim].
    """

    outputs: Any = None
    inputs: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, list[Tensor]] = field(default_factory=dict)
    beside: dict[str, list[tuple[Tensor, ...]]] = field(default_factory=dict)
    weights: dict[str, list[Tensor]] = field(default_factory=dict)
    heads: dict[str, list[Tensor]] = field(default_factory=dict)

    def tensors(self) -> dict[At, Tensor]:
        """Return every tensor of the graph that was kept, by where it stands."""
        found: dict[At, Tensor] = {}
        for name, leaf in self.inputs.items():
            found["inputs", name, 0, 0] = leaf
        for kind in ("states", "weights", "heads"):
            for name, layers in getattr(self, kind).items():
                found |= {(kind, name, layer, 0): tensor for layer, tensor in enumerate(layers)}
        for name, blocks in self.beside.items():
            for block, given in enumerate(blocks):
                found |= {("beside", name, block, i): tensor for i, tensor in enumerate(given)}
        return found


def gradients(score: Tensor, at: Sequence[Tensor], *, again: bool = False) -> list[Tensor]:
    """Return the gradient of the sum of scores at tensors of a graph; zeros where nothing depends on one.

    No `.grad` is written, of the model's parameters or any other.

    Args:
        score: Numbers to differentiate, [batch] or one.
        at: Tensors of the graph.
        again: Whether the graph is kept for another call.
    """
    if not score.requires_grad:
        return [torch.zeros_like(one) for one in at]
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
        hidden_states: bool = False,
        during: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Graph:
        """Run the model once.

        Args:
            replace: What stands in place of the recorded inputs, by stack, [batch, token, width]; a batch of
                several runs the trace's other inputs so often.
            keep: What of attention is kept as well.
            hidden_states: Whether the outputs hold hidden states.
            during: Makes the context in which the model is called (rules that replace gradients).

        Raises:
            UnsupportedModelError: If the model reads nothing that a gradient can reach.
            ValueError: If the pass does not fit the memory there is.
        """
        replace = dict(replace or {})
        batch = next((len(given) for given in replace.values()), 1)
        inputs = {name: self._input(value, batch) for name, value in self.trace.inputs.items()}
        graph = Graph()
        bare = not any(table.layers for table in self.trace.stack_table.values())
        if self.place == "input" or bare:
            for name, value in inputs.items():
                if isinstance(value, Tensor) and value.is_floating_point() and "mask" not in name:
                    end = self.trace.default_stack if bare else name
                    leaf = replace.get(end, value).detach().clone().requires_grad_()
                    graph.inputs[end], inputs[name] = leaf, leaf.clone()
        options: dict[str, Any] = {"return_dict": True}
        takes = forward_parameters(self.model)
        if "use_cache" in takes:
            options["use_cache"] = False
        if hidden_states:
            options["output_hidden_states"] = True
        room = room_for_pass(self.model, self.trace, self.purpose, batch, maps_kept="weights" in keep)
        with room, ExitStack() as exits:
            self._tap(exits, graph, inputs, replace, keep)
            exits.enter_context(during())
            graph.outputs = self.trace.call(self.model, inputs, options, self.wide)
        if not graph.inputs:
            raise UnsupportedModelError(
                f"{self.purpose} found nothing in {type(self.model).__name__} that a gradient can reach: no "
                "embedding was given the token ids, and no block was found; its inputs are integers only"
            )
        return graph

    def _input(self, value: Any, batch: int) -> Any:
        if not isinstance(value, Tensor):
            return value
        if self.wide:
            value = widened(value)
        # A trace made under inference mode holds tensors that no graph may keep.
        value = value.clone() if value.is_inference() else value
        return (
            value.expand(batch, *value.shape[1:]) if batch > 1 and value.dim() and len(value) == 1 else value
        )

    def _tap(
        self,
        exits: ExitStack,
        graph: Graph,
        inputs: Mapping[str, Any],
        replace: dict[str, Tensor],
        keep: Sequence[str],
    ) -> None:
        """Hook up what a pass is asked for; everything is unhooked when `exits` closes."""
        if self.place == "embedding":
            self._embed(exits, graph, inputs, replace)
        for stack, names in block_names(self.trace, self.model).items():
            graph.states[stack], graph.beside[stack] = [], []
            taps = BlockTaps(graph, stack, len(names), replace.get(stack), ends=self.place != "input")
            for module in dict.fromkeys(self.model.get_submodule(name) for name in names):
                exits.callback(module.register_forward_pre_hook(taps.before, with_kwargs=True).remove)
                exits.callback(module.register_forward_hook(taps.after, prepend=True).remove)
        if recorded(self.trace):
            owner = {
                layer.call.name: stack
                for stack, found in self.trace.stack_table.items()
                for layer in found.layers
                if isinstance(layer, RecordedLayer)
            }
            seen = AttentionTaps(graph, owner, keep, {id(m): n for n, m in self.model.named_modules()})
            exits.enter_context(recording(self.model, [seen.weights], [seen.heads]))
        else:
            exits.enter_context(implementation(self.model, "eager"))

    def _embed(
        self, exits: ExitStack, graph: Graph, inputs: Mapping[str, Any], replace: dict[str, Tensor]
    ) -> None:
        """Let gradients end at the word embeddings of every stack that reads token ids."""
        ids: dict[str, Tensor] = {}
        for name, stack in (("input_ids", self.trace.default_stack), ("decoder_input_ids", "decoder")):
            if isinstance(inputs.get(name), Tensor) and stack in self.trace.stack_table:
                ids[stack] = inputs[name]
        for module in word_embeddings(self.model):
            tap = EmbeddingTap(graph, ids, replace)
            exits.callback(module.register_forward_hook(tap, prepend=True).remove)


@contextmanager
def differentiable(
    trace: Trace,
    purpose: str,
    *,
    place: Place = "embedding",
    precision: Precision = "float32",
    back: bool = True,
) -> Iterator[Runner]:
    """Borrow a trace's model and yield a function that runs it on the trace's inputs with gradients.

    It runs on a twin, no parameter of which requires a gradient, so that what does depends on the inputs. A
    model in half precision runs in float32, on a copy of its weights, unless `precision` is "model".

    Args:
        trace: What `aw.trace` returned.
        purpose: The method's name, for messages.
        place: Where gradients end; see `Place`.
        precision: What a half-precision model is computed in.
        back: Whether gradients are taken; else the model only runs, and whatever its weights are will do.

    Raises:
        ValueError: Under `torch.inference_mode()`, or with quantised weights, where gradients are taken.
        UnsupportedModelError: If the trace has no model.
    """
    own = differentiable_model(trace, purpose) if back else traced_model(trace, purpose)
    require_same_interventions(trace, purpose)
    with ExitStack() as exits:
        model = exits.enter_context(borrowed(own))
        if not back:
            # What is made in here stands in no graph, and may all the same be read and replaced.
            exits.enter_context(torch.inference_mode(mode=False))
        exits.enter_context(torch.set_grad_enabled(back))
        exits.enter_context(told_what_to_do(model, trace, purpose))
        wide: dict[str, Tensor] = {}
        if precision == "float32":
            wide = {n: t.float() for n, t in model.named_buffers() if t.dtype in HALF}
            wide |= {
                name: nn.Parameter(parameter.detach().float(), requires_grad=False)
                for name, parameter in model.named_parameters()
                if parameter.dtype in HALF
            }
        yield Runner(model, trace, place, purpose, wide)
