"""The rules of AttnLRP and CP-LRP, one per operation, and the forward and backward passes under them.

It neither changes nor knows the model's code. While the mode is on, torch passes it every operation of this
thread. Operations that are nonlinear, or that mix two tensors which both depend on the input, get the
gradient of their rule. An operation without a rule runs, and raises if relevance reaches it.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnwidgets._progress import progress
from attnwidgets.relevance import affine, attention, operations, products
from attnwidgets.relevance.backward import single_activations
from attnwidgets.relevance.kernels import whole_kernels
from attnwidgets.relevance.settings import Settings, live, run_without_rule
from attnwidgets.tracing.gradients.differentiable import cut_of, diagnosis, differentiable, gradients, usable
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from attnwidgets.relevance.settings import Bias, Gate, Rule
    from attnwidgets.tracing.gradients.differentiable import At, Graph, Place, Precision
    from attnwidgets.tracing.hooks.hook_point import HookPoint
    from attnwidgets.tracing.trace import Trace

    # (settings, operation, its arguments, its keywords) -> its output
    Handler = Callable[[Settings, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
    # Takes a model's outputs and returns the differentiable numbers to explain.
    Scores = Callable[[Any], Sequence[Tensor]]


# By trace and settings, the passes that `propagate` has recorded in a `shared_pass`.
_passes: ContextVar[dict[tuple[Any, ...], Graph] | None] = ContextVar("attnwidgets_passes", default=None)


@contextmanager
def shared_pass() -> Iterator[None]:
    """Let calls of `propagate` that differ in their scores alone go back through the same pass of the model.

    The pass stays in memory until the `with` block ends.
    """
    token = _passes.set({} if (shared := _passes.get()) is None else shared)
    try:
        yield
    finally:
        _passes.reset(token)


class Rules(TorchFunctionMode):
    """A context in which the rules apply to this thread.

    Args:
        rule: See `Settings`.
        bias: See `Settings`.
        insist: See `Settings`.
        gate: See `Settings`.

    Attributes:
        settings: The settings of the next operation, which may change on the way.
    """

    def __init__(
        self, rule: Rule, bias: Bias = "absorb", *, insist: bool = False, gate: Gate = "fixed"
    ) -> None:
        super().__init__()
        self.settings = Settings(rule, bias, insist, mode=self, gate=gate)
        self._table = table(bias)
        self._handlers: dict[Any, Handler | None] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation under its rule."""
        try:
            handler = self._handlers[func]
        except KeyError:
            handler = self._handlers[func] = self._handler(func)
        if handler is not None:
            return handler(self.settings, func, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)

    def _handler(self, func: Any) -> Handler | None:
        """Return the handler of an operation; None if its own gradient is the rule."""
        name = getattr(func, "__name__", str(func))
        outer = out_of_place(name)
        handler = self._table.get(outer or name, run_without_rule)
        return in_place(handler, str(outer)) if outer and handler is not None else handler


def out_of_place(name: str) -> str | None:
    """Return the out-of-place name of an in-place operation; None for other operations."""
    if name in ("__imul__", "__iadd__", "__isub__", "__idiv__", "__itruediv__", "__imatmul__", "__ipow__"):
        return {"truediv": "div"}.get(name[3:-2], name[3:-2])
    return name[:-1] if name.endswith("_") and not name.endswith("__") else None


def in_place(handler: Handler, name: str) -> Handler:
    """Return a handler for the in-place form of an operation."""

    def handle(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer = getattr(Tensor, name, None)
        if outer is None or not any(map(live, args)):
            return func(*args, **kwargs)
        # A copy, so that tensors saved for the gradient are not overwritten.
        return args[0].copy_(handler(settings, outer, (args[0].clone(), *args[1:]), kwargs))

    return handle


def table(bias: Bias) -> Mapping[str, Handler | None]:
    """Return the handlers by name of operation; None if an operation's own gradient is the rule."""
    groups: list[tuple[frozenset[str], Handler | None]] = [
        (operations.LINEAR, None),
        (operations.SUMS, None if bias == "absorb" else affine.add),
        (operations.PRODUCTS, products.product),
        (operations.CONTRACTIONS, products.contraction),
        (operations.ADDED_PRODUCTS, products.added_product),
        (operations.QUOTIENTS, products.quotient),
        (operations.SIZES, products.size),
        (operations.SIZES_AND_MEANS, products.size_and_mean),
        (operations.ACTIVATIONS, products.activation),
        (operations.OFFSET_ACTIVATIONS, products.offset_activation),
        (operations.GATES, products.gate),
        (operations.CLAMPS, products.clamp),
        (operations.POWERS, products.power),
        (operations.CONVOLUTIONS, affine.convolution),
    ]
    single: dict[str, Handler] = {
        "linear": affine.linear,
        "bilinear": products.bilinear,
        "glu": products.glu,
        "layer_norm": affine.layer_norm,
        "group_norm": affine.group_norm,
        "instance_norm": affine.instance_norm,
        "rms_norm": affine.rms_norm,
        "batch_norm": affine.batch_norm,
        "normalize": affine.normalize,
        "softmax": attention.softmax,
        "scaled_dot_product_attention": attention.scaled_dot_product_attention,
        "multi_head_attention_forward": attention.multi_head_attention,
    }
    if bias in ("drop", "share"):
        single["__getitem__"] = affine.getitem
    return {name: handler for names, handler in groups for name in names} | single


@dataclass
class Relevances:
    """The relevances of several targets, on the CPU, in the precision of the pass.

    Attributes:
        scores: The explained numbers [target].
        inputs: By stack, relevance of the input tokens [target, token], float64; for place "input", by name
            of the model's input, [target, ...].
        states: By stack, relevance of each block's input and, last, of the last block's output
            [target, layer, token].
        other_inputs: By stack, relevance of the blocks' other inputs (in a decoder, the encoder's states)
            [target, block].
        heads: By stack and layer, relevance of the heads' outputs [target, head, token].
        values: By name of a hook point, the states there [token, width].
        gradients: By name of a hook point, the gradients there [target, token, width].
    """

    scores: Tensor
    inputs: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, Tensor] = field(default_factory=dict)
    other_inputs: dict[str, Tensor] = field(default_factory=dict)
    heads: dict[str, list[Tensor]] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def total(self, stack: str, layer: int) -> Tensor:
        """Return the total relevance at a layer of a stack [target].

        This includes the other inputs of the blocks from this layer on (in a decoder, the encoder's states),
        or else the inputs of the other stacks.
        """
        relevance = self.states[stack][:, layer].sum(-1)
        other_inputs = self.other_inputs.get(stack)
        if other_inputs is not None and bool(other_inputs.any()):
            return relevance + other_inputs[:, layer:].sum(-1)
        return relevance + sum(other[:, 0].sum(-1) for name, other in self.states.items() if name != stack)


def propagate(
    trace: Trace,
    scores: Scores,
    purpose: str,
    *,
    rule: Rule,
    bias: Bias = "absorb",
    place: Place = "embedding",
    entry: str = "",
    plane: str = "",
    heads: bool = False,
    hook_points: Sequence[HookPoint] = (),
    reads: Collection[str] = (),
    precision: Precision = "float32",
    insist: bool = False,
) -> Relevances:
    """Run a trace's model once under the rules, and backward once per score.

    Args:
        trace: Trace returned by `aw.trace`.
        scores: Returns the numbers to explain, given the model's outputs.
        purpose: The method's name, for messages.
        rule: See `Settings`.
        bias: See `Settings`.
        place: See `differentiable`.
        entry: The stack that is explained; see `differentiable`.
        plane: The input whose numbers are not vectors of tokens but pixels, or bins of a spectrogram.
        heads: Whether the relevance of the heads' outputs is returned.
        hook_points: Hook points in the model where states and gradients are returned whole.
        reads: Outputs besides logits that the scores read; see `Target`.
        precision: See `differentiable`.
        insist: See `Settings`.

    Raises:
        UnsupportedModelError: If the trace has no model, relevance reaches an operation without a rule, or a
            pass does not reach one of `hook_points`.
        ValueError: If gradients are unavailable, all zero, or NaN (the message names the layer).
    """
    passing: dict[str, Tensor] = {}
    rules = Rules(rule, bias, insist=insist)
    with (
        differentiable(trace, purpose, place=place, precision=precision, entry=entry) as run,
        single_activations(run.model),
        whole_kernels(run.model, rules.settings),
        ExitStack() as stack,
    ):
        for hook_point in hook_points:
            from attnwidgets.tracing.hooks.hook import hooked

            stack.enter_context(hooked(run.model, hook_point, _keeper(passing, hook_point.name)))
        passes = _passes.get()
        key = (trace, rule, bias, place, entry, heads, *sorted(reads), precision, insist)
        graph = passes.get(key) if passes else None
        if graph is None or hook_points:
            graph = run(
                keep=("heads",) if heads else (),
                reads=reads,
                during=lambda: rules,
                again=True,
            )
            if passes is not None:
                passes[key] = graph
        if cut := cut_of(graph):
            raise UnsupportedModelError(f"{purpose}: {cut}")
        values = [score.sum() for score in scores(graph.outputs)]
        tensors = graph.tensors() | {("hooks", name, 0, 0): tensor for name, tensor in passing.items()}
        summaries: dict[At, list[Tensor]] = {at: [] for at in tensors}
        for value in progress(values, "relevance"):
            # The graph is kept even after the last value, for the diagnosis.
            grads = dict(zip(tensors, gradients(value, list(tensors.values()), again=True), strict=True))
            if not usable([grads[at] for at in tensors if at[0] == "inputs"], graph):
                raise ValueError(diagnosis(value, graph, trace.default_stack, purpose))
            for at, tensor in tensors.items():
                summaries[at].append(_summary(at[0], tensor.detach(), grads[at], whole=at[1] == plane))
        explained = torch.stack([value.detach().cpu() for value in values])
    relevances = _relevances(graph, explained, {at: torch.stack(rows) for at, rows in summaries.items()})
    for hook_point in hook_points:
        name = hook_point.name
        if name not in passing:
            raise UnsupportedModelError(
                f"{purpose}: a pass of {type(run.model).__name__} does not reach the hook point {name!r}"
            )
        relevances.values[name] = passing[name].detach()[0].cpu()
        relevances.gradients[name] = torch.stack(summaries["hooks", name, 0, 0])
    return relevances


def _keeper(passing: dict[str, Tensor], name: str) -> Callable[[Tensor], Tensor]:
    def keep(states: Tensor) -> Tensor:
        passing[name] = states
        # The model continues with a copy, so that in-place operations leave these states alone.
        return states.clone()

    return keep


def _summary(kind: str, values: Tensor, gradient: Tensor, *, whole: bool) -> Tensor:
    """Return the result for one tensor: relevance summed over the width, or the gradient at a hook point."""
    if kind == "hooks":
        return gradient[0].cpu()
    # Tiles of a picture, or its patches in a row, are no batch.
    relevance = values * gradient if whole and len(values) > 1 else values[0] * gradient[0]
    if kind == "other_inputs":
        return relevance.sum().cpu()
    if kind == "inputs":
        # The method decides how to sum the numbers of an image or of sound.
        vectors = not whole and relevance.dim() == len(("token", "width"))
        return relevance.double().sum(-1).cpu() if vectors else relevance.cpu()
    return relevance.sum(-1).cpu()


def _relevances(graph: Graph, scores: Tensor, summaries: dict[At, Tensor]) -> Relevances:
    def rows(kind: str, name: str) -> list[Tensor]:
        return [tensor for at, tensor in summaries.items() if at[:2] == (kind, name)]

    for name in graph.states:
        if len({len(states[0]) for states in rows("states", name)}) > 1:
            raise UnsupportedModelError(
                f"relevance of stack {name!r} is not available: its blocks return different numbers of states"
            )
    other_inputs = {}
    for stack, blocks in graph.other_inputs.items():
        sums = [
            sum(
                (summaries["other_inputs", stack, block, i] for i in range(len(copies))),
                torch.zeros_like(scores),
            )
            for block, copies in enumerate(blocks)
        ]
        other_inputs[stack] = torch.stack(sums, dim=1) if sums else torch.zeros(len(scores), 0)
    return Relevances(
        scores,
        {name: rows("inputs", name)[0] for name in graph.inputs},
        {name: torch.stack(rows("states", name), dim=1) for name, states in graph.states.items() if states},
        other_inputs,
        {name: rows("heads", name) for name in graph.heads},
    )
