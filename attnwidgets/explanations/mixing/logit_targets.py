"""Logits to take apart: what ALTI-Logit and direct logit attribution share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from attnwidgets.explanations.mixing.block_maps import own_stack
from attnwidgets.explanations.registry.requirements import Need
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of, require_trace
from attnwidgets.explanations.targets.named import resolve_target, resolve_targets
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.algebra.logit_parts import LogitParts
    from attnwidgets.tracing.trace import Trace

CURVED = (
    "the head has an activation or soft cap, which is taken as linear through the origin at its real value"
)


def _reads_another(trace: Any, _: str) -> str:
    return "and this one also reads another sequence" if "cross" in getattr(trace, "stacks", ()) else ""


LOGIT_NEEDS = (
    "own blocks",
    "logits",
    "target",
    Need("one sequence", "a model whose tokens read each other only", _reads_another),
)
"""What taking logits apart needs of a trace."""

PART_NAMES = {
    "initial": "initial",
    "attention": "attention",
    "value_bias": "value bias",
    "output_bias": "output bias",
    "mlp": "mlp",
    "norm_bias": "norm bias",
    "final_bias": "final bias",
}
"""What the parts of a logit are called, by their names in `LogitParts`."""


# Row (None for logits [class]) and column of a logit.
Place = tuple[int | None, int]


@dataclass(frozen=True)
class Asked:
    """Logits, or differences of two.

    Attributes:
        stack: The stack that the head reads.
        targets: The targets.
        places: Where each is among the logits.
        foil: What they are contrasted with, or None.
        foils: Where that is, for each target; () for none.
        scores: The model's own numbers, one for each target.
        several: Whether a list was asked for.
    """

    stack: str
    targets: tuple[Target, ...]
    places: tuple[Place, ...]
    foil: Target | None
    foils: tuple[Place, ...]
    scores: tuple[float, ...]
    several: bool

    @property
    def labels(self) -> Any:
        """The targets' labels: one, or a tuple where a list was asked for."""
        labels = tuple(target.label for target in self.targets)
        return labels if self.several else labels[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of how targets and foil were named."""
        foil = () if self.foil is None else (self.foil,)
        return tuple(one.note for one in (*self.targets, *foil))

    def numbers(self, found: Tensor) -> Any:
        """Return one number, or a list of them where a list was asked for."""
        return found.tolist() if self.several else float(found[0])

    def axis(self, sources: TokenAxis) -> TokenAxis:
        """Return an axis of the targets, to be read beside any unit of `sources`."""
        unit = next(iter(sources.units))
        against = "" if self.foil is None else f" rather than {self.foil.label}"
        labels = [f"{target.label}{against}" for target in self.targets]
        return TokenAxis.plain(labels, name=unit)


@dataclass(frozen=True)
class Wanted(Asked):
    """Logits, or differences of two, and what they are made of.

    Attributes:
        parts: What they are made of.
    """

    parts: LogitParts

    def summary(self) -> dict[str, Any]:
        """Return every part's sum over layers, tokens and heads, by name, and the logit itself."""
        parts = {
            name: self.numbers(getattr(self.parts, field).flatten(1).sum(1))
            if getattr(self.parts, field).dim() > 1
            else self.numbers(getattr(self.parts, field))
            for field, name in PART_NAMES.items()
        }
        return {"logit": list(self.scores) if self.several else self.scores[0], **parts}


def wanted_logits(
    trace: TraceLike, target: Any, foil: Any, *, method: str, stack: str | None, value_bias: bool
) -> Wanted:
    """Return the logits that are meant, with their parts. Runs the model once, unless its blocks are known.

    Raises:
        ValueError, TypeError, IndexError: see `asked_logits`.
    """
    asked = asked_logits(trace, target, foil, method=method, stack=stack)
    from attnwidgets.tracing.algebra.logit_parts import logit_parts

    everything = [*asked.places, *asked.foils]
    traced = cast("Trace", trace)
    several = logit_parts(traced, asked.stack, everything, method, value_bias=value_bias)
    parts = several[: len(asked.places)]
    parts = parts - several[len(asked.places) :] if asked.foils else parts
    return Wanted(**vars(asked), parts=parts)


def asked_logits(trace: TraceLike, target: Any, foil: Any, *, method: str, stack: str | None) -> Asked:
    """Return the logits that are meant.

    Raises:
        ValueError: Where a target is no single logit, is its own foil, or the model has no head; where its
            blocks or head are not described (`UnsupportedModelError`).
        TypeError, IndexError: see `resolve_target`.
    """
    require_trace(trace, method)
    traced = cast("Trace", trace)
    if getattr(trace, "logits", None) is None:
        raise ValueError(
            f"{method} takes a logit apart, and this trace has none: its model has no head, or it was made "
            "of given numbers. Load the model with its head (AutoModelForCausalLM, "
            "AutoModelForSequenceClassification); maps need none: aw.alti(trace, rolled_out=True), "
            "aw.value_zeroing(trace)."
        )
    if "cross" in trace.stacks:
        raise ValueError(
            f"{method} is of models whose tokens read each other only, and {trace.model_id or 'this'} also "
            "reads another sequence. Relevance and gradients explain its logits; aw.value_zeroing(trace, "
            'stack="cross") and aw.attention(trace, stack="cross") are maps of what it reads.'
        )
    stack = own_stack(trace, stack, method)
    query, key = trace.axes(stack)
    if len(query) != len(key):
        raise ValueError(
            f"{method} follows tokens, and {len(key) - len(query)} of the {len(key)} keys here are none (a "
            "prefix, or a cache); trace the text without them."
        )
    targets = resolve_targets(traced, target, method=method, logit=True)
    against = None
    places = tuple(_place(one) for one in targets)
    foils: tuple[Place, ...] = ()
    if foil is not None:
        against = resolve_target(traced, foil, method=method, name="foil", logit=True, like=targets[0])
        foils = tuple(
            _place(resolve_target(traced, foil, method=method, name="foil", logit=True, like=one))
            for one in targets
        )
        same = [one.label for one, place, other in zip(targets, places, foils, strict=True) if place == other]
        if same:
            raise ValueError(
                f"foil {same[0]!r} is the target itself, so that every contribution would be zero; name "
                "another one, or leave it out."
            )
    scores = [_score(traced, place) for place in places]
    for number, place in enumerate(foils):
        scores[number] -= _score(traced, place)
    several = isinstance(target, (list, tuple))
    return Asked(stack, targets, places, against, foils, tuple(scores), several)


def _place(target: Target) -> Place:
    if target.index is None:  # refused by resolve_target already
        raise ValueError(f"{target.label!r} is not one logit.")
    return target.position, target.index


def _score(trace: Trace, place: Place) -> float:
    position, index = place
    logits = trace.logits
    if logits is None:
        raise ValueError("there are no logits.")
    return float((logits if position is None else logits[position])[index])


def logit_result(
    trace: TraceLike, wanted: Wanted, method: str, *, title: str, paper: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what attributions to logits carry: the arguments that `Attributions` and their map share."""
    notes = (*wanted.notes, CURVED if wanted.parts.curved else "")
    common = provenance_of(trace, wanted.stack, method, paper=paper, options=options, notes=notes)
    common["provenance"] |= {"title": title, "parts": wanted.summary()}
    return common


def layer_map(
    wanted: Wanted,
    values: Callable[[int], Any],
    sources: TokenAxis,
    common: Mapping[str, Any],
    **options: Any,
) -> MixingMap:
    """Return a map of what every layer says of the targets [layer, head?, target, source]."""
    return MixingMap.lazy(
        values,
        query=wanted.axis(sources),
        key=sources,
        unit=next(iter(sources.units)),
        causal=False,
        stochastic=False,
        signed=True,
        **options,
        **common,
    )
