"""Chosen heads: their selection, and their outputs set to zero, to a mean, or to those of other texts.

`chosen_heads` and `positions` read the arguments that interventions share. `HeadIntervention` changes the
weights or outputs of chosen heads of attention, and calls of kernels (`kernel_runs.py`). `ablate_heads` is
built on it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._errors import require_choice
from attnwidgets._selecting import pick
from attnwidgets.intervene.block_heads import BlockHeads, heads_of_blocks
from attnwidgets.intervene.kernel_runs import changed_kernels
from attnwidgets.intervene.preview import pass_options
from attnwidgets.tracing.anatomy.attention_modules import Turns, sites
from attnwidgets.tracing.interventions import Intervention, session_of
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.trace import Trace
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from attnwidgets.intervene.block_heads import KernelModule
    from attnwidgets.intervene.kernel_runs import KernelChange, KernelRun
    from attnwidgets.tracing.anatomy.attention_modules import AttentionModule
    from attnwidgets.tracing.interventions import Seen

    Change = Callable[[Seen, Tensor, list[int]], Tensor]

How = Literal["zero", "mean", "resample", "patch"]
HOWS: tuple[How, ...] = ("zero", "mean", "resample", "patch")
_EFFECT = {
    "zero": "set to zero",
    "mean": "replaced by their mean over {n} text{s}",
    "resample": "replaced by those of random tokens of {n} text{s}",
    "patch": "replaced by what they were in another trace",
}


class HeadIntervention(Intervention):
    """An intervention on some heads of a stack.

    Args:
        model: A model, or a trace of it.
        kind: Name of the public function that makes it.
        description: Its effect, in words.
        stack: Name of the stack.
        heads: Heads by layer, or all of them by their numbers in the maps of `blocks`.
        blocks: The heads of every block, if some of these heads are those of kernels.
        weigh: Takes a call, its weights [batch, head, query, key] and the layer's heads; returns new weights.
        write: The same for the outputs of heads [batch, head, query, dim].
        run: Changes calls of kernels.

    Raises:
        UnsupportedModelError: If a module is the kernel of several blocks.
    """

    def __init__(
        self,
        model: Any,
        kind: str,
        description: str,
        stack: str,
        heads: Mapping[int, Iterable[int]],
        *,
        blocks: Mapping[int, BlockHeads] | None = None,
        weigh: Change | None = None,
        write: Change | None = None,
        run: KernelChange | None = None,
    ) -> None:
        by_layer = {layer: list(numbers) for layer, numbers in heads.items()}
        heads_by_block = blocks or {}
        self._heads = {
            layer: heads_by_block[layer].of_attention(numbers) if layer in heads_by_block else numbers
            for layer, numbers in by_layer.items()
        }
        self._kernels: list[tuple[KernelModule, list[int], KernelChange]] = [
            (kernel, chosen, run)
            for layer, numbers in by_layer.items()
            for kernel in (heads_by_block[layer].kernels if layer in heads_by_block else ())
            if run is not None
            and (chosen := [number - kernel.first for number in numbers if number in kernel.numbers])
        ]
        _require_one_block_each(self._kernels, heads_by_block)
        where = frozenset((stack, layer) for layer, numbers in by_layer.items() if numbers)
        only_kernels = bool(self._kernels) and not any(self._heads.values())
        super().__init__(model, kind, description, where, {} if only_kernels else None)
        self._weigh, self._write = weigh, write
        self._only_kernels = only_kernels

    @property
    def changes_kernels(self) -> bool:
        """Whether it changes calls of kernels."""
        return bool(self._kernels)

    @property
    def acts_in_attention(self) -> bool:
        """Whether a pass must call attention, for the intervention to have an effect."""
        return not self._only_kernels

    @property
    def must_apply(self) -> bool:
        """Whether a pass in which it was applied nowhere is an error."""
        return bool(self.where)

    def attach(self, model: nn.Module, own: Callable[[], bool]) -> AbstractContextManager[None]:
        """Return a context in which the calls of kernels are changed."""
        if not self._kernels:
            return nullcontext()
        return changed_kernels(model, self._kernels, own, self._note_applied)

    def _note_applied(self) -> None:
        session = session_of(self._model)
        if session is not None:
            session.note_applied(self)

    def weigh(self, seen: Seen, weights: Tensor) -> Tensor:
        """Return the attention weights to continue with."""
        return weights if self._weigh is None else self._changed(self._weigh, seen, weights)

    def write(self, seen: Seen, output: Tensor) -> Tensor:
        """Return the outputs of heads to continue with."""
        return output if self._write is None else self._changed(self._write, seen, output)

    def _changed(self, change: Change, seen: Seen, by_head: Tensor) -> Tensor:
        heads = self._heads[seen.layer]
        if not heads:
            return by_head
        if heads[-1] >= by_head.shape[1]:
            raise IndexError(
                f"head {heads[-1]} does not exist in layer {seen.layer}, "
                f"which has heads 0 to {by_head.shape[1] - 1}."
            )
        return change(seen, by_head, heads)


def _require_one_block_each(
    kernels: Sequence[tuple[KernelModule, list[int], KernelChange]], blocks: Mapping[int, BlockHeads]
) -> None:
    for kernel, _, _ in kernels:
        shared = [
            layer for layer, block in blocks.items() if any(k.name == kernel.name for k in block.kernels)
        ]
        if len(shared) > 1:
            raise UnsupportedModelError(
                f"{kernel.name} serves as layers {spoken(shared)}, which cannot be changed one by one."
            )


def chosen_heads(
    heads: Any, blocks: Mapping[int, AttentionModule | BlockHeads], *, channels: bool = False
) -> dict[int, tuple[int, ...]]:
    """Return heads by layer.

    Args:
        heads: A pair (layer, head), several such pairs, heads by layer (a number, several, or "all"), or None
            for all heads of all layers.
        blocks: The attention modules, or all heads, by layer.
        channels: Whether a number may stand for all channels of a kernel without heads.

    Raises:
        IndexError: If the layer or head is out of range.
        TypeError: If `heads` has another form.
        UnsupportedModelError: If channels were chosen instead of heads (a ValueError).
    """
    present = {
        layer: block if isinstance(block, BlockHeads) else BlockHeads(block)
        for layer, block in blocks.items()
    }
    pairs = heads
    if heads is None:
        pairs = [(layer, "all") for layer, block in present.items() if block.numbers(channels=channels) != ()]
    elif isinstance(heads, Mapping):
        pairs = heads.items()
    elif isinstance(heads, tuple) and heads and not isinstance(heads[0], tuple):
        pairs = [heads]
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TypeError(_EXPECTED.format(heads))
    by_layer: dict[int, set[int]] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004 - layer and head
            raise TypeError(_EXPECTED.format(heads))
        layer = pick(pair[0], tuple(present), "layer")[0]
        by_layer.setdefault(layer, set()).update(_heads(pair[1], present[layer], layer, channels))
    return {layer: tuple(sorted(numbers)) for layer, numbers in sorted(by_layer.items())}


_EXPECTED = "heads must be (layer, head), a list of such pairs, or {{layer: heads}}, not {!r}."


def _heads(selection: Any, block: BlockHeads, layer: int, channels: bool) -> tuple[int, ...]:
    numbers = block.numbers(channels=channels)
    if isinstance(selection, str) and selection != "all":
        raise TypeError(_EXPECTED.format({layer: selection}))
    if isinstance(selection, (list, tuple, set, range)) and not selection:
        return ()
    if isinstance(selection, str) and numbers is None:
        raise ValueError(f"the number of heads of layer {layer} is only known from a trace: pass a trace.")
    chosen = numbers or ()
    if not isinstance(selection, str):
        try:
            all_numbers = block.numbers(channels=True)
            chosen = pick(selection, range(10**6) if all_numbers is None else all_numbers, "head")
        except IndexError as error:
            raise IndexError(f"layer {layer}: {error}") from error
    for kernel in block.kernels if not channels else ():
        if not kernel.n_heads and (not chosen or kernel.first in chosen):
            number = f", so that {kernel.first} is not a head" if kernel.first else ""
            raise UnsupportedModelError(
                f"layer {layer} has no heads: {kernel.name} mixes tokens channel by channel "
                f"({kernel.kind}){number}."
            )
    return tuple(chosen)


def some_layers(layers: Any, modules: Mapping[int, AttentionModule]) -> tuple[int, ...]:
    """Return the numbers of layers given by number, several numbers, a slice, or None for all."""
    return tuple(modules) if layers is None else pick(layers, tuple(modules), "layer")


def positions(tokens: Any, name: str, model: Any, stack: str, side: int) -> frozenset[int]:
    """Return positions of tokens.

    Args:
        tokens: A position, several, a range or a slice; negatives count from the end and need a trace.
        name: Name of the argument, for messages.
        model: A model, or a trace, which knows the number of tokens.
        stack: Stack of the tokens.
        side: 0 for queries, 1 for keys.

    Raises:
        ValueError: If a position is out of range.
        TypeError: If `tokens` is not a position or several.
    """
    count = len(model.axes(stack)[side]) if isinstance(model, Trace) else None
    if isinstance(tokens, slice):
        if count is None and (tokens.stop is None or min(tokens.start or 0, tokens.stop) < 0):
            raise ValueError(
                f"{name}={tokens}: the end of the text is only known from a trace: pass a trace."
            )
        tokens = range(*tokens.indices(tokens.stop if count is None else count))
    items = tokens if isinstance(tokens, Iterable) and not isinstance(tokens, str) else [tokens]
    unique = set()
    for item in items:
        if isinstance(item, (bool, str)) or not hasattr(item, "__index__"):
            raise TypeError(f"{name} must be positions of tokens (0, [3, 4], range(5, 9)), not {item!r}.")
        position = operator.index(item)
        if (count is None and position < 0) or (count is not None and not -count <= position < count):
            allowed = "0 or more (negative ones need a trace)" if count is None else f"0 to {count - 1}"
            raise ValueError(f"{name} has position {position}; allowed are {allowed}.")
        unique.add(position if count is None else position % count)
    return frozenset(unique)


def spoken(numbers: Iterable[int]) -> str:
    """Return "3 to 7, 12" or the like."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


def describe_heads(heads: Mapping[int, tuple[int, ...]]) -> str:
    """Return "heads 1, 4 of layer 3" or the like."""
    layers: dict[tuple[int, ...], list[int]] = {}
    for layer, numbers in heads.items():
        if numbers:
            layers.setdefault(numbers, []).append(layer)
    parts = [
        f"head{'s' * (len(numbers) != 1)} {spoken(numbers)} of layer{'s' * (len(some) != 1)} {spoken(some)}"
        for numbers, some in layers.items()
    ]
    return " and ".join(parts) or "no head"


def ablate_heads(
    model: Any,
    heads: Any,
    how: How = "zero",
    *,
    reference: Any = None,
    stack: str | None = None,
    seed: int = 0,
) -> Intervention:
    """Replace the outputs of heads while a `with` block runs.

    The output of a head is the mixture of values at every token, before the output projection; attention
    itself is not changed. With all heads of a layer at zero, attention adds only the projection's bias.

    With a trace, heads may also be those of a kernel without a softmax (Mamba 2, delta rules, lightning
    attention, mLSTM), by the number of the block. In a block that attends as well (Falcon-H1), they are
    counted on from the heads of attention, as in `aw.mixing`. They are zero as the kernel returns them. Where
    a norm over all heads follows (Mamba 2, MiniMax), the others grow, as they would if the model had no such
    head; contributions of heads, which fix the norm, do not count that::

        with aw.ablate_heads(model, {3: [1, 4]}):
            model.generate(...)
        trace.rerun(aw.ablate_heads(trace, (3, 1)))

    Args:
        model: A transformers model, or a trace of it.
        heads: (layer, head), a list of such pairs, or heads by layer: `{3: [1, 4], 5: "all"}`.
        how: "zero" (kernels allow no other); "mean", the mean over all tokens of `reference`; "resample", at
            every position the outputs at a random token of `reference`, the same token for all heads and
            layers; "patch", the outputs at the same position of `reference`, a single trace (later positions
            are not changed).
        reference: A trace or several by the same model; the model runs once on each, as it is now.
        stack: Which attention, in models with several stacks ("encoder", "decoder", "cross").
        seed: Seed of the random tokens of "resample".

    Returns:
        A context manager; the model is restored on exit, even after an exception.

    Raises:
        ValueError: If `how` or the stack is unknown, or the reference is missing, not needed, or by another
            model.
        IndexError: If the layer or head is out of range.
        TypeError: If `heads` has another form.
        UnsupportedModelError: If a layer has no heads (its channels have separate kernels), or `how` is
            not for kernels (a ValueError).

    Source: Michel et al. 2019, section 2.3 (zero); Wang et al. 2023, section 3 (mean); Chan et al.
    2022, Causal Scrubbing (resample).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> trace.rerun(aw.ablate_heads(trace, {1: [0, 1]})).interventions
        ('heads 0 to 1 of layer 1 set to zero',)
    """
    require_choice("how", how, HOWS)
    if (reference is None) != (how == "zero"):
        raise ValueError(
            f"reference is missing: how={how!r} takes head outputs from a trace or several."
            if reference is None
            else "reference is for how='mean', 'resample' or 'patch'; 'zero' needs none."
        )
    stack, blocks = heads_of_blocks(model, stack)
    chosen = chosen_heads(heads, blocks)
    kernels = [
        layer for layer, numbers in chosen.items() if blocks[layer].of_attention(numbers) != [*numbers]
    ]
    if kernels and how != "zero":
        raise UnsupportedModelError(
            f"how={how!r} replaces outputs of heads of attention, and layer{'s' * (len(kernels) > 1)} "
            f"{spoken(kernels)} mix{'es' * (len(kernels) == 1)} tokens without: use how='zero' there."
        )
    traces = list(reference) if isinstance(reference, (list, tuple)) else [reference]
    outputs = None if reference is None else _reference_outputs(model, traces, how, stack, tuple(chosen))
    description = f"{describe_heads(chosen)} {_EFFECT[how].format(n=len(traces), s='s' * (len(traces) != 1))}"
    return HeadIntervention(
        model,
        "ablate_heads",
        description,
        stack,
        chosen,
        blocks=blocks,
        write=_Ablation(how, outputs, seed),
        run=_silenced,
    )


def _silenced(run: KernelRun, heads: list[int]) -> Tensor:
    """Return the outputs of a kernel with those of some heads set to zero."""
    return run.output.index_fill(2, torch.tensor(heads, device=run.output.device), 0)


@dataclass(frozen=True)
class _Ablation:
    """Replaces the outputs of heads; see `ablate_heads`.

    Args:
        how: A name in `HOWS`.
        reference: Outputs of heads in the reference, by layer [head, token, dim]; None for "zero".
        seed: Seed of "resample".
    """

    how: How
    reference: Mapping[int, Tensor] | None
    seed: int

    def __call__(self, seen: Seen, output: Tensor, heads: list[int]) -> Tensor:
        """Return outputs [batch, head, query, dim] with those of some heads replaced."""
        output = output.clone()
        if self.reference is None:
            output[:, heads] = 0
            return output
        reference = self.reference[seen.layer][heads].to(output)
        positions = range(seen.first_query, seen.first_query + output.shape[2])
        if self.how == "mean":
            output[:, heads] = reference.mean(1, keepdim=True)
        elif self.how == "resample":
            output[:, heads] = reference[
                :, [self._drawn(position, reference.shape[1]) for position in positions]
            ]
        else:
            rows = [row for row, position in enumerate(positions) if position < reference.shape[1]]
            for head, of_head in zip(heads, reference, strict=True):
                output[:, head, rows] = of_head[[positions[row] for row in rows]]
        return output

    def _drawn(self, position: int, n: int) -> int:
        """Return the reference token drawn for a position, always the same."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + position)
        return int(torch.randint(n, (1,), generator=generator))


def _reference_outputs(
    model: Any, traces: Sequence[Any], how: How, stack: str, layers: Sequence[int]
) -> dict[int, Tensor]:
    """Return the outputs of heads in the reference, by layer [head, token, dim].

    Raises:
        ValueError: If the reference is missing, is several traces for "patch", or is by another model.
    """
    inner = unwrap(model.model if isinstance(model, Trace) else model)
    if not traces or (how == "patch" and len(traces) > 1):
        raise ValueError(
            f"reference: how={how!r} takes {'one trace' if how == 'patch' else 'a trace or several'}."
        )
    for number, trace in enumerate(traces):
        if not isinstance(trace, Trace) or trace.model is None or unwrap(trace.model) is not inner:
            raise ValueError(
                f"reference[{number}] is not a trace by this model; make it with aw.trace(model, ...)."
            )
    outputs = [head_outputs(trace, stack) for trace in traces]
    return {layer: torch.cat([output[layer] for output in outputs], dim=1) for layer in layers}


def head_outputs(trace: Trace, stack: str) -> dict[int, Tensor]:
    """Return the outputs of a stack's heads for a trace's input, by layer [head, token, dim]."""
    model = unwrap(trace.model)
    turns = Turns(sites(trace))
    outputs: dict[int, Tensor] = {}

    def listen(module: nn.Module, output: Tensor) -> None:
        call = turns.of(module)
        if call is not None and call[0] == stack:
            outputs[call[1]] = output[0].detach()

    with borrowed(model) as twin, recording(twin, (), [listen]):
        trace.call(twin, trace.inputs, pass_options(model, logits=False), {})
    return outputs
