"""The logits that ALTI-Logit, DecompX and direct logit attribution explain, and their results.

`target_logits` resolves targets and foils to rows and columns of the logits. `decompose_logits` adds the
parts that sum to them (`tracing/algebra/logit_parts.py`). `TargetLogits.attributions` and `layer_map` make
the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from attnwidgets.explanations.mixing.block_maps import described_stack, measured_stack
from attnwidgets.explanations.registry.requirements import Need
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.description import TARGETS
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of, require_trace
from attnwidgets.explanations.targets.named import resolve_target, resolve_targets
from attnwidgets.tracing.text.units import TokenAxis, surplus_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.algebra.logit_parts import LogitParts
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

CURVED = "the head has an activation or soft cap, treated as linear through the origin at its real value"


def _reads_another(trace: Any, _: str) -> str:
    return "and this one also reads another sequence" if "cross" in getattr(trace, "stacks", ()) else ""


_OF_A_LOGIT: tuple[str | Need, ...] = (
    "logits",
    "target",
    Need("one sequence", "a model whose tokens read each other only", _reads_another),
)
LOGIT_NEEDS = ("itself", "every mixer", "every state", *_OF_A_LOGIT)
"""Requirements of decomposing a logit into the terms that blocks add."""

PROPAGATION_NEEDS = ("own sequence", "every mixer", *_OF_A_LOGIT)
"""Requirements of propagating vectors through all blocks to a logit."""

PART_NAMES = {
    "initial": "initial",
    "attention": "attention",
    "value_bias": "value bias",
    "output_bias": "output bias",
    "mlp": "mlp",
    "norm_bias": "norm bias",
    "final_bias": "final bias",
}
"""Display names of the parts of a logit, by their names in `LogitParts`."""


# Row (None for logits [class]) and column of a logit.
Cell = tuple[int | None, int]


@dataclass(frozen=True)
class TargetLogits:
    """The logits to explain, or differences of two logits.

    Attributes:
        stack: The stack that the head reads.
        targets: The targets.
        cells: Row and column of each target among the logits.
        foil: The target they are contrasted with, or None.
        foil_cells: Row and column of the foil, for each target; () without a foil.
        scores: The model's logits, less those of the foil, for each target.
        several: Whether the targets were given as a list.
    """

    stack: str
    targets: tuple[Target, ...]
    cells: tuple[Cell, ...]
    foil: Target | None
    foil_cells: tuple[Cell, ...]
    scores: tuple[float, ...]
    several: bool

    @property
    def labels(self) -> Any:
        """The targets' labels: a string, or a tuple for a list of targets."""
        labels = tuple(target.label for target in self.targets)
        return labels if self.several else labels[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how targets and foil were resolved."""
        foil = () if self.foil is None else (self.foil,)
        return tuple(target.note for target in (*self.targets, *foil))

    def numbers(self, by_target: Tensor | Float) -> Any:
        """Return numbers [target] as a list, or as a float for a single target."""
        return by_target.tolist() if self.several else float(by_target[0])

    def attributions(self, values: Float, **fields: Any) -> Attributions:
        """Return attributions of the targets.

        Args:
            values: Contributions [target, source].
            fields: Other arguments of `Attributions`.
        """
        return Attributions(
            values if self.several else values[0],
            target=self.labels,
            foil=None if self.foil is None else self.foil.label,
            residual=self.numbers(np.asarray(self.scores) - values.sum(-1)),
            **fields,
        )

    def axis(self, sources: TokenAxis) -> TokenAxis:
        """Return an axis of the targets that goes with any unit of `sources`."""
        unit = next(iter(sources.units))
        against = "" if self.foil is None else f" rather than {self.foil.label}"
        labels = [f"{target.label}{against}" for target in self.targets]
        return TokenAxis.plain(labels, name=unit)


@dataclass(frozen=True)
class DecomposedLogits(TargetLogits):
    """The logits to explain, with their parts.

    Attributes:
        parts: The parts that sum to the logits.
    """

    parts: LogitParts

    def summary(self) -> dict[str, Any]:
        """Return the logit, and each part's sum over layers, tokens and heads, by name."""
        parts = {
            name: self.numbers(getattr(self.parts, field).reshape(len(self.scores), -1).sum(1))
            for field, name in PART_NAMES.items()
        }
        return {"logit": list(self.scores) if self.several else self.scores[0], **parts}


def decompose_logits(
    trace: TraceLike, target: Any, foil: Any, *, method: str, stack: str | None, value_bias: bool
) -> DecomposedLogits:
    """Return the logits to explain, with their parts. Runs the model once, unless its blocks are cached.

    Raises:
        ValueError, TypeError, IndexError: see `target_logits`.
    """
    logits = target_logits(trace, target, foil, method=method, stack=stack, stack_of=measured_stack)
    from attnwidgets.tracing.algebra.logit_parts import logit_parts

    cells = [*logits.cells, *logits.foil_cells]
    parts = logit_parts(cast("Trace", trace), logits.stack, cells, method, value_bias=value_bias)
    n_targets = len(logits.cells)
    parts = parts[:n_targets] - parts[n_targets:] if logits.foil_cells else parts
    return DecomposedLogits(**vars(logits), parts=parts)


def target_logits(
    trace: TraceLike,
    target: Any,
    foil: Any,
    *,
    method: str,
    stack: str | None,
    stack_of: Callable[..., str] = described_stack,
) -> TargetLogits:
    """Return the logits to explain.

    `stack_of` resolves the stack: `described_stack`, or `measured_stack` if descriptions are not needed.

    Raises:
        ValueError: If a target is not a single logit or equals its foil, or the model has no head; as
            `UnsupportedModelError`, if no description fits its blocks or head.
        TypeError, IndexError: see `resolve_target`.
    """
    require_trace(trace, method)
    traced = cast("Trace", trace)
    if getattr(trace, "logits", None) is None:
        raise ValueError(
            f"{method} decomposes a logit, but this trace has no logits: its model has no head, or it was "
            "made from given numbers. Load the model with its head (AutoModelForCausalLM, "
            "AutoModelForSequenceClassification), or use maps, which need no head: "
            "aw.alti(trace, rolled_out=True), aw.value_zeroing(trace)."
        )
    if "cross" in trace.stacks:
        raise ValueError(
            f"{method} needs a model whose tokens read each other only, and {trace.model_id or 'this one'} "
            "also reads another sequence. Use relevance or gradients for its logits, and "
            'aw.value_zeroing(trace, stack="cross") or aw.attention(trace, stack="cross") for maps of the '
            "tokens it reads."
        )
    stack = stack_of(trace, stack, method, alone=method)
    surplus = surplus_keys(*trace.axes(stack))
    if surplus:
        raise ValueError(f"{method} follows a text's tokens, and {surplus}.")
    targets = resolve_targets(traced, target, method=method, logit=True)
    cells = tuple(_cell(resolved) for resolved in targets)
    foils = (
        ()
        if foil is None
        else tuple(
            resolve_target(traced, foil, method=method, name="foil", logit=True, like=resolved)
            for resolved in targets
        )
    )
    foil_cells = tuple(_cell(item) for item in foils)
    for resolved, cell, foil_cell in zip(targets, cells, foil_cells, strict=False):
        if cell == foil_cell:
            raise ValueError(
                f"foil {resolved.label!r} is the target itself, so every contribution would be zero; choose "
                "another one, or leave it out."
            )
    scores = [_score(traced, cell) for cell in cells]
    for number, cell in enumerate(foil_cells):
        scores[number] -= _score(traced, cell)
    several = isinstance(target, (list, tuple))
    return TargetLogits(stack, targets, cells, next(iter(foils), None), foil_cells, tuple(scores), several)


def _cell(target: Target) -> Cell:
    return target.position, cast("int", target.index)  # resolve_target(logit=True) gives an index


def _score(trace: Trace, cell: Cell) -> float:
    position, index = cell
    logits = cast("Tensor", trace.logits)
    return float((logits if position is None else logits[position])[index])


def logit_result(
    trace: TraceLike,
    logits: DecomposedLogits,
    method: str,
    *,
    title: str,
    paper: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments that attributions to logits and their map share."""
    notes = (*logits.notes, CURVED if logits.parts.curved else "")
    common = provenance_of(trace, logits.stack, method, paper=paper, options=options, notes=notes)
    common["provenance"] |= {"title": title, "parts": logits.summary(), "axes": TARGETS}
    return common


def layer_map(
    logits: DecomposedLogits,
    values: Callable[[int], Any],
    sources: TokenAxis,
    common: Mapping[str, Any],
    **options: Any,
) -> MixingMap:
    """Return a map of every layer's contributions to the targets [layer, head?, target, source]."""
    return MixingMap.lazy(
        values,
        query=logits.axis(sources),
        key=sources,
        unit=next(iter(sources.units)),
        causal=False,
        stochastic=False,
        signed=True,
        **options,
        **common,
    )
