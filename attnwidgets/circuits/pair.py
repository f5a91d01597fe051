"""Two runs that are compared: traces of two texts by one model, where they differ, and aligned tokens."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._tensors import is_half
from attnwidgets.circuits.set_activations import activations_of, set_activations
from attnwidgets.explanations.results.trace_protocol import is_trace, require_trace, resolve_stack
from attnwidgets.figures.theme import printable
from attnwidgets.intervene.heads import spoken
from attnwidgets.intervene.preview import pass_options
from attnwidgets.tracing.algebra.block_runs import require_every_block
from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.text.alignment import align

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.intervene.activation_sites import Site
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.text.alignment import Alignment
    from attnwidgets.tracing.trace import Trace

_AROUND = 6  # tokens that are shown before and after those that differ


@dataclass(frozen=True)
class Pair:
    """A clean run and a corrupt run.

    Attributes:
        clean: The trace of the clean text.
        corrupt: The trace of the corrupt text.
        stack: The stack whose activations are patched.
        differs: Positions of the tokens in which they differ, of a picture those that lie where it does; of
            inputs without token ids, all.
        first: Position from which on activations can differ: in a causal stack that of the first token that
            does, otherwise 0.
    """

    clean: Trace
    corrupt: Trace
    stack: str
    differs: tuple[int, ...]
    first: int

    @property
    def n_tokens(self) -> int:
        """Number of tokens of either."""
        return len(self.clean.axes(self.stack)[0])

    @property
    def sides(self) -> tuple[Trace, Trace]:
        """The clean and the corrupt run."""
        return self.clean, self.corrupt

    @property
    def is_unequal(self) -> bool:
        """Whether the texts have different numbers of tokens."""
        return len(self.corrupt.axes(self.stack)[0]) != self.n_tokens


def pair_of(
    clean: Any,
    corrupt: Any,
    stack: str | None,
    function: str,
    model: Any = None,
    tokenizer: Any = None,
    *,
    unequal: bool = False,
) -> Pair:
    """Return two runs that can be patched into each other.

    Args:
        clean: A trace, or a text.
        corrupt: The same.
        stack: Name of the stack; None for the default stack.
        function: Name of the public function, for messages.
        model: The model of texts.
        tokenizer: Its tokenizer.
        unequal: Whether they may be of different length.

    Raises:
        ValueError: If the runs are of different models or lengths, or of the same tokens, or were recorded
            under other interventions than are active now.
        TypeError: If they are neither traces nor texts with a model.
    """
    traces = tuple(
        _traced(name, given, function, model, tokenizer)
        for name, given in (("clean", clean), ("corrupt", corrupt))
    )
    for trace in traces:
        require_same_model(trace, function)
        sites(trace)  # raises if its attention was not recorded
    first, second = traces
    if unwrap(first.model) is not unwrap(second.model):
        raise ValueError("clean and corrupt are traces of two models; patching needs two texts of one model.")
    stack = resolve_stack(first, stack)
    if stack not in second.stacks:
        raise ValueError(f"corrupt has no stack {stack!r}.")
    if not unequal:
        _require_same_length(first, second, stack)
    elif len(first.axes(stack)[0]) != len(second.axes(stack)[0]):
        return Pair(first, second, stack, (), 0)
    require_every_block(first, stack, function)
    differs = _differing(first, second, stack)
    start = differs[0] if stack == "self" and first.is_causal(stack) and second.is_causal(stack) else 0
    return Pair(first, second, stack, differs, start)


def _traced(name: str, given: Any, function: str, model: Any, tokenizer: Any) -> Trace:
    if isinstance(given, str):
        if model is None:
            raise TypeError(
                f"{name} is a text, and model is missing: {function}(..., model=model, tokenizer=tokenizer), "
                "or pass aw.trace(model, tokenizer, text)."
            )
        from attnwidgets.tracing.recording.run import trace

        return trace(model, tokenizer, given)
    if not is_trace(given):
        raise TypeError(
            f"{name} is a {type(given).__name__}; pass a trace, aw.trace(model, tokenizer, text)."
        )
    require_trace(given, f"circuits.{function}")
    if given.model is None:
        raise ValueError(f"{name} has no model, which {function} runs; make it with aw.trace(model, ...).")
    traced: Trace = given
    return traced


def _require_same_length(clean: Trace, corrupt: Trace, stack: str) -> None:
    axes = clean.axes(stack)[0], corrupt.axes(stack)[0]
    if len(axes[0]) == len(axes[1]):
        return
    raise ValueError(
        f"clean has {len(axes[0])} tokens and corrupt {len(axes[1])}, so that positions do not correspond:\n"
        f"{_rows(align(*axes))}\nChoose words of equally many tokens (a name for a name of one token), or "
        "patch what corresponds, column by column: "
        "aw.circuits.patch(..., sweep=aw.circuits.Sweep(align=True))."
    )


def _rows(columns: Alignment) -> str:
    """Return both rows of tokens, aligned, around the columns in which they differ."""
    differing = columns.differing
    start, end = max(0, differing[0] - _AROUND), min(len(columns), differing[-1] + 1 + _AROUND)
    shown = [
        [printable(columns.label(column, side)) or "·" for side in (0, 1)] for column in range(start, end)
    ]
    shown = [["…"] * 2] * (start > 0) + shown + [["…"] * 2] * (end < len(columns))
    lines = zip(*([item.ljust(max(map(len, pair))) for item in pair] for pair in shown), strict=True)
    return "\n".join(
        f"  {name}: {' | '.join(line).rstrip()}"
        for name, line in zip(("clean  ", "corrupt"), lines, strict=True)
    )


def require_full_precision(pair: Pair, function: str) -> None:
    """Raise if the model computes in half precision, which rounds differences of runs away."""
    if any(is_half(parameter) for parameter in unwrap(pair.clean.model).parameters()):
        raise ValueError(
            f"{function} takes differences of runs, which half precision rounds away; load the model in "
            "float32."
        )


def _differing(clean: Trace, corrupt: Trace, stack: str) -> tuple[int, ...]:
    """Return the positions at which the token ids of a stack differ; all positions for traces without ids."""
    name = "decoder_input_ids" if stack == "decoder" else "input_ids"
    ids, others = clean.inputs.get(name), corrupt.inputs.get(name)
    count = len(clean.axes(stack)[0])
    same = set(clean.inputs) == set(corrupt.inputs) and all(
        torch.equal(value, corrupt.inputs[key])
        if isinstance(value, torch.Tensor)
        else value is corrupt.inputs[key]
        for key, value in clean.inputs.items()
    )
    if same:
        raise ValueError(
            "clean and corrupt are the same input, so that no activation differs; change a token."
        )
    if not isinstance(ids, torch.Tensor) or not isinstance(others, torch.Tensor):
        return tuple(range(count))
    if ids.shape != (1, count) or others.shape != (1, count):
        return tuple(range(count))
    differing = {*torch.ne(ids, others)[0].nonzero().flatten().tolist(), *_repainted(clean, corrupt, stack)}
    return tuple(sorted(differing)) or tuple(range(count))


def _repainted(clean: Trace, corrupt: Trace, stack: str) -> list[int]:
    """Return the tokens of a picture in which two pictures differ; all of them, if their sizes do."""
    boxes = clean.axes(stack)[0].units["token"].boxes or ()
    inside = [(at, box) for at, box in enumerate(boxes) if box is not None]
    pictures = [trace.picture.given for trace in (clean, corrupt) if trace.picture is not None]
    if len(pictures) < 2 or any(picture is None for picture in pictures):  # noqa: PLR2004 - a pair
        return []
    first, second = (np.asarray(picture) for picture in pictures)
    if first.shape != second.shape:
        return [at for at, _ in inside]
    changed = (first != second).any(-1)
    return [
        at
        for at, (top, left, bottom, right) in inside
        if changed[math.floor(top) : math.ceil(bottom), math.floor(left) : math.ceil(right)].any()
    ]


def said_difference(pair: Pair) -> str:
    """Return where the texts differ, in words: "tokens 3, 7 to 8"."""
    several = "s" if len(pair.differs) != 1 else ""
    return f"token{several} {spoken(pair.differs)}"


def scored(trace: Trace, targets: TargetSet, interventions: Sequence[Intervention] = ()) -> float:
    """Return a target, less its foil, in a run of a trace's input under interventions."""
    model = unwrap(trace.model)
    with no_grad(), ExitStack() as exits:
        twin = exits.enter_context(borrowed(model))
        for intervention in interventions:
            exits.enter_context(intervention)
        exits.enter_context(recording(twin))
        options = pass_options(twin) | dict.fromkeys(targets.reads, True)
        outputs = trace.call(twin, trace.inputs, options, {})
        return float(targets.scores(outputs)[0].double()[0])


class AlignedTexts:
    """Two traces of different length, column by column.

    Args:
        clean: The trace of the clean text.
        corrupt: The trace of the corrupt text.
        stack: The stack whose activations are patched.

    Attributes:
        columns: The alignment.
    """

    def __init__(self, clean: Trace, corrupt: Trace, stack: str) -> None:
        self.sides, self._stack = (clean, corrupt), stack
        self.columns: Alignment = align(clean.axes(stack)[0], corrupt.axes(stack)[0])

    def tokens(self, side: int) -> tuple[str, ...]:
        """Return the tokens of the clean (0) or corrupt (1) text by column; "" for columns that it lacks."""
        return tuple(self.columns.label(column, side) for column in range(len(self.columns)))

    def sweep(
        self, sites: Sequence[Site], base: int, targets: Sequence[TargetSet]
    ) -> tuple[dict[Site, NDArray[np.float64]], tuple[float, float]]:
        """Return m(patched) - m(base) of every cell, and m of both runs.

        Args:
            sites: The sites.
            base: The run that is changed: 0 for the clean, 1 for the corrupt run.
            targets: The target as each run reads it, at its last token.

        Returns:
            By site [layer, column], of heads [layer, head]; NaN for columns that a text lacks.
        """
        ours, other = self.sides[base], self.sides[1 - base]
        before = [scored(trace, of) for trace, of in zip(self.sides, targets, strict=True)]
        pairs = {
            number: (column.of(base)[0], column.of(1 - base)[0])
            for number, column in enumerate(self.columns.columns)
            if column.first and column.second
        }
        causal = ours.is_causal(self._stack)
        first = self.columns.differing[0] if causal and self.columns.differing else 0
        layers = ours.layers(self._stack)
        raw: dict[Site, NDArray[np.float64]] = {}
        for site in sites:
            activations = activations_of(other, site, list(layers), self._stack)
            width = ours.n_heads(self._stack) if site == "head" else len(self.columns)
            raw[site] = np.full((len(layers), width), np.nan)
            for layer in progress(layers, f"patching {site}"):
                for position in self._positions(site, layer, list(pairs)):
                    if site != "head" and position < first:
                        raw[site][layer, position] = 0.0  # equal in both runs: before the first difference
                        continue
                    change = self._change(site, layer, position, activations[layer], pairs, ours)
                    raw[site][layer, position] = scored(ours, targets[base], [change]) - before[base]
        return raw, (before[0], before[1])

    def _positions(self, site: Site, layer: int, columns: list[int]) -> list[int]:
        return list(range(self.sides[0].n_heads(self._stack, layer))) if site == "head" else columns

    def _change(
        self,
        site: Site,
        layer: int,
        position: int,
        activations: Any,
        pairs: dict[int, tuple[int, int]],
        ours: Trace,
    ) -> Intervention:
        """Return the intervention that patches a column, or all columns of a head, from the other run."""
        if site == "head":
            ours_at, theirs_at = ([pair[side] for pair in pairs.values()] for side in (0, 1))
            numbers, heads = activations[:, theirs_at], [position]
            return set_activations(ours, site, layer, numbers, tokens=ours_at, heads=heads, stack=self._stack)
        at, from_ = pairs[position]
        return set_activations(ours, site, layer, activations[[from_]], tokens=[at], stack=self._stack)
