"""Gradients of targets by the embeddings of a stack's tokens, checked; for every gradient method.

`embedding_gradients` borrows a trace's model and yields `EmbeddingGradients`, which runs it at any embeddings
and returns checked gradients. `gradient_attributions` is a complete method for gradients of a single pass;
`target_attributions` makes its result, and those of other methods.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._tensors import widened
from attnwidgets.explanations.attribution.input_planes import (
    AT,
    At,
    InputPlane,
    plane_attributions,
    plane_values,
    reads_only_input,
    require_plane,
)
from attnwidgets.explanations.attribution.smoothing import NOT_SMOOTHED, Smoothing
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of, resolve_stack
from attnwidgets.explanations.targets.target_set import TargetSet, resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.gradients.differentiable import Graph, Runner
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.tracing.trace import Trace

Reduce = Literal["l2", "l1", "sum", "mean", "mean_abs", "mean_square"]

_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": lambda values: values.norm(dim=-1),
    "l1": lambda values: values.abs().sum(-1),
    "sum": lambda values: values.sum(-1),
    "mean": lambda values: values.mean(-1),
    "mean_abs": lambda values: values.abs().mean(-1),
    "mean_square": lambda values: values.square().mean(-1),
}

# Bytes of mean gradients in memory at a time; for more targets than fit, the points run again.
_MEAN_BYTES = 1 << 28
_TOGETHER = 10  # noisy copies that run in one batch; fewer where memory is short


def reduce_dimensions(values: Tensor, how: Reduce) -> Tensor:
    """Return [..., token] for values [..., token, dim].

    Raises:
        ValueError: If `how` is unknown.
    """
    require_reduction(how)
    return _REDUCTIONS[how](values)


def require_reduction(how: str) -> None:
    """Raise ValueError if the reduction is unknown."""
    require_choice("reduce", how, tuple(_REDUCTIONS))


@dataclass(frozen=True)
class EmbeddingGradients:
    """A traced model that returns every target's gradients at any embeddings of a stack.

    Made by `embedding_gradients`, which borrows the model. Each gradient is checked: NaN and
    infinity are refused, and so are zeros everywhere, with the layer where they arise. A pass that does not
    fit into memory is refused before it runs.

    Attributes:
        run: Runs the model on the trace's inputs.
        targets: The targets.
        stack: The stack whose embeddings are varied; those of the other stack stay as they are.
        during: Returns a context for passes with gradients, such as rules that replace them.
    """

    run: Runner
    targets: TargetSet
    stack: str
    during: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)

    @cached_property
    def _plain(self) -> Graph:
        return self._without_gradients(None)

    @property
    def embeddings(self) -> Tensor:
        """Embeddings of the text's tokens [token, dim]."""
        return leaf_of(self._plain, self.stack, self.run.purpose, self.run.trace).detach()[0]

    def scores(self, embeddings: Tensor | None = None) -> Tensor:
        """Return the score of every target [target], in float64; without gradients.

        Args:
            embeddings: [token, dim]; those of the text by default.
        """
        import torch

        graph = self._plain if embeddings is None else self._without_gradients({self.stack: embeddings[None]})
        return torch.stack([score.double()[0] for score in self.targets.scores(graph.outputs)]).cpu()

    def _without_gradients(self, embeddings: dict[str, Tensor] | None) -> Graph:

        with no_grad():
            return self.run(embeddings, reads=self.targets.reads)

    def at(
        self, embeddings: Tensor | None = None, *, allow_zero: Sequence[bool] = ()
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the gradients of each target in turn, from a single forward pass.

        Args:
            embeddings: [batch, token, dim]; by default those of the text, in a batch of 1.
            allow_zero: For each target, whether its gradients may be zero everywhere; not, by default.

        Yields:
            Gradients and their embeddings, [batch, token, dim] both.

        Raises:
            ValueError: If a target's gradients are NaN, infinite or all zero (the message names the layer),
                or if memory is too short.
        """
        from attnwidgets.tracing.gradients.differentiable import diagnosis, gradients, usable

        replaced = None if embeddings is None else {self.stack: embeddings}
        again = self.during is nullcontext
        graph = self.run(replaced, reads=self.targets.reads, during=self.during, again=again)
        leaf = leaf_of(graph, self.stack, self.run.purpose, self.run.trace)
        for number, score in enumerate(self.targets.scores(graph.outputs)):
            gradient = gradients(score, [leaf], again=True)[0]
            zero_is_fine = number < len(allow_zero) and allow_zero[number] and bool(gradient.isfinite().all())
            if not (zero_is_fine or usable([gradient], graph)):
                raise ValueError(diagnosis(score, graph, self.stack, self.run.purpose))
            yield gradient, leaf.detach()

    def means(
        self,
        points: Callable[[slice], Tensor],
        weights: ArrayLike,
        batch_size: int,
        factors: Callable[[slice], Tensor] | None = None,
    ) -> Iterator[Tensor]:
        """Yield weighted means of gradients over several points, with a progress bar.

        Args:
            points: Takes a slice of the points and returns their embeddings [batch, token, dim]; the same
                embeddings each time, since the points run more than once for several targets.
            weights: Weight of every point [point].
            batch_size: Number of points that run together; fewer where memory is short.
            factors: Takes a slice of the points and returns factors of their gradients [batch, token, dim].

        Yields:
            Mean gradients [target, token, dim] in float64, of the number of targets that fits into memory, in
            order.

        Raises:
            ValueError: If gradients are NaN or infinite at a point, or zero at all points.
        """
        import torch

        from attnwidgets.tracing.pass_memory import together

        embeddings, share = self.embeddings, torch.as_tensor(weights, dtype=torch.float64)
        size = together(self.run.model, self.run.trace, batch_size)
        for targets in self.targets.parts(max(1, _MEAN_BYTES // (8 * embeddings.numel()))):
            mean = torch.zeros(
                len(targets.targets), *embeddings.shape, dtype=torch.float64, device=embeddings.device
            )
            for first in progress(range(0, len(share), size), desc=self.run.purpose.replace("_", " ")):
                batch = slice(first, first + size)
                allowed = [batch.stop < len(share) or bool(so_far.any()) for so_far in mean]
                by_target = replace(self, targets=targets).at(points(batch), allow_zero=allowed)
                for number, (gradient, _) in enumerate(by_target):
                    terms = gradient.double() if factors is None else gradient.double() * factors(batch)
                    mean[number] += torch.einsum("s,std->td", share[batch].to(mean), terms)
            yield mean


@contextmanager
def embedding_gradients(
    trace: Trace,
    targets: TargetSet,
    method: str,
    stack: str,
    during: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[EmbeddingGradients]:
    """Borrow a trace's model and yield its `EmbeddingGradients` at a stack.

    Args:
        trace: A trace.
        targets: The targets.
        method: The method's name, for messages.
        stack: The stack; see `embedding_stack`.
        during: Returns a context for passes with gradients.

    Raises:
        ValueError: See `differentiable`.
    """
    from attnwidgets.tracing.gradients.differentiable import differentiable

    with differentiable(trace, method, entry=stack) as run:
        yield EmbeddingGradients(run, targets, stack, during)


def embedding_stack(trace: TraceLike, stack: str | None) -> str:
    """Return the stack whose tokens are explained; "cross" has no tokens.

    Raises:
        ValueError: If the trace lacks the stack.
    """
    stack = resolve_stack(trace, stack)
    if stack == "cross":
        raise ValueError('stack "cross" has no tokens of its own; pass stack="encoder" or "decoder".')
    return stack


def leaf_of(graph: Graph, stack: str, method: str, trace: Trace | None = None) -> Tensor:
    """Return the embeddings at which a stack's gradients end, [batch, token, dim].

    Raises:
        UnsupportedModelError: If gradients reach no embeddings of the stack, or these have other tokens than
            the trace.
    """
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    if stack not in graph.inputs:
        reached = ", ".join(map(repr, graph.inputs))
        raise UnsupportedModelError(
            f"{method} found no embeddings of stack {stack!r}; gradients reach {reached}."
        )
    leaf = graph.inputs[stack]
    if trace is not None:
        require_tokens(method, trace, leaf.shape[1], stack)
    return leaf


def require_tokens(method: str, trace: Trace, count: int, stack: str) -> None:
    """Raise UnsupportedModelError if a model's embeddings hold another number of tokens than the trace."""
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    axis = trace.axes(stack)[0]
    expected = len(axis)
    ids = trace.input_ids
    if (
        stack == trace.default_stack
        and ids is not None
        and len(ids) < expected
        and {*axis.kinds} == {"token"}
    ):
        raise UnsupportedModelError(
            f"{method}: {type(trace.model).__name__} reads {expected} vectors for {len(ids)} tokens, and "
            "which of them are the tokens is not known. aw.attention(trace) shows all."
        )
    if count != expected:
        raise UnsupportedModelError(
            f"{method}: the embeddings of {type(trace.model).__name__} hold {count} vectors for {expected} "
            f"tokens: {padded(count) if count > expected else TOKENS_FIRST}, which is not supported. "
            "aw.attention(trace) is."
        )


TOKENS_FIRST = "it reads [token, batch, width] and not [batch, token, width]"


def padded(count: int) -> str:
    """Return why a model has more vectors than tokens."""
    return (
        f"it pads the text itself, as Longformer does to a multiple of its window (a text of {count} tokens "
        "is explained), or adds vectors of its own"
    )


def gradient_attributions(
    trace: Trace,
    target: Any,
    foil: Any,
    read: Callable[[Tensor, Tensor], Tensor],
    *,
    reduce: Reduce,
    unit: str | None,
    stack: str | None,
    at: At = "embedding",
    during: Callable[[], AbstractContextManager[Any]] = nullcontext,
    smoothing: Smoothing = NOT_SMOOTHED,
    options: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    method: str,
    title: str,
    paper: str,
) -> Attributions:
    """Return attributions made of the gradients of a single pass, or of its mean over noisy inputs.

    `read` takes gradients and embeddings [1, token, dim] and returns the numbers that are reduced to a number
    for every token; the rest are arguments of the method, or name the result. With
    `at` "input" it takes gradients and the model's numeric input instead. With noise it takes the mean
    gradient.
    """
    require_reduction(reduce)
    require_choice("at", at, AT)
    targets = resolve_target_set(trace, target, foil, method)
    options = {"reduce": reduce, **(options or {}), **smoothing.options}
    notes = (*targets.notes, *notes)
    names: dict[str, Any] = {"method": method, "title": title, "paper": paper}
    if at == "input" or reads_only_input(trace):
        plane = require_plane(trace, method)
        cells = _input_values(trace, plane, targets, read, method, reduce, during, smoothing)
        common = provenance_of(trace, plane.stack, options=options | {"at": "input"}, notes=notes, **names)
        return plane_attributions(trace, plane, cells, targets, common, unit)
    stack = embedding_stack(trace, stack)
    import torch

    with embedding_gradients(trace, targets, method, stack, during) as model:
        if smoothing.noise:
            own = model.embeddings
            weights = np.full(smoothing.draws, 1 / smoothing.draws)
            parts = model.means(partial(smoothing.copies, own), weights, _TOGETHER)
            values = torch.cat([reduce_dimensions(read(part, own), reduce) for part in parts])
        else:
            values = torch.cat([reduce_dimensions(read(*pair), reduce) for pair in model.at()])
    common = provenance_of(trace, stack, options=options, notes=notes, **names)
    return target_attributions(trace, stack, values, targets, common, unit=unit)


def _input_values(
    trace: Trace,
    plane: InputPlane,
    targets: TargetSet,
    read: Callable[[Tensor, Tensor], Tensor],
    method: str,
    reduce: Reduce,
    during: Callable[[], AbstractContextManager[Any]],
    smoothing: Smoothing,
) -> NDArray[Any]:
    """Return the map of gradients by a model's pixels or spectrogram [target, row, column]."""
    from attnwidgets.tracing.gradients.differentiable import diagnosis, differentiable, gradients, usable

    total: list[Any] = [0.0] * len(targets.targets)
    values = widened(trace.inputs[plane.name])
    with differentiable(trace, method, place="input") as run:
        for draw in range(smoothing.count):
            graph = run(
                {plane.name: smoothing.copies(values[0], slice(draw, draw + 1))},
                reads=targets.reads,
                during=during,
                again=during is nullcontext,
            )
            leaf = graph.inputs[plane.name]
            for number, score in enumerate(targets.scores(graph.outputs)):
                gradient = gradients(score, [leaf], again=True)[0]
                if not usable([gradient], graph):
                    raise ValueError(diagnosis(score, graph, plane.stack, method))
                total[number] = total[number] + gradient.double() / smoothing.count
    rows = [plane_values(trace, plane, read(mean, values), reduce) for mean in total]
    return np.concatenate(rows)


def _without_relevance(axis: TokenAxis, values: NDArray[Any]) -> str:
    """Return which pieces of a picture, sound or soft prompt are all 0 in [target, token], in words."""
    is_zero = (values == 0).all(0)
    kinds = np.asarray(axis.kinds)
    zero = [
        kind for kind in ("patch", "frame", "soft prompt") if kind in kinds and is_zero[kinds == kind].all()
    ]
    if not zero or is_zero.all():
        return ""
    return f"the values of every {' and '.join(zero)} are exactly 0: the target does not depend on them"


def target_attributions(
    trace: Trace,
    stack: str,
    values: Any,
    targets: TargetSet,
    common: dict[str, Any],
    *,
    unit: Any = None,
    residual: Any = None,
    map: MixingMap | None = None,  # noqa: A002 - the attribute it becomes
) -> Attributions:
    """Return values [target, token] as Attributions in a unit, with the result of `provenance_of`."""
    axis = trace.axes(stack)[0]
    numbers = values.to("cpu").double().numpy() if hasattr(values, "detach") else np.asarray(values)
    common["warning"] = "; ".join(filter(None, (common["warning"], _without_relevance(axis, numbers))))
    result = Attributions(
        targets.of(numbers),
        axis=axis,
        unit=next(iter(axis.units)),
        residual=residual,
        reach=targets.reach(trace, stack),
        map=map,
        **targets.names(),
        **common,
    )
    return result if unit is None else result.to(unit)
