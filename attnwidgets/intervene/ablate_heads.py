"""Ablation of heads: their outputs set to zero, to a mean, or to those of other texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._errors import require_choice
from attnwidgets.intervene.head_selection import HeadIntervention, chosen_heads, describe_heads, sites_of
from attnwidgets.intervene.preview import pass_options
from attnwidgets.tracing.anatomy.attention_modules import Turns, sites
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.interventions import Intervention, Seen

How = Literal["zero", "mean", "resample", "patch"]
HOWS: tuple[How, ...] = ("zero", "mean", "resample", "patch")
_SAID = {
    "zero": "set to zero",
    "mean": "replaced by their mean over {n} text{s}",
    "resample": "replaced by those of random tokens of {n} text{s}",
    "patch": "replaced by what they were in another trace",
}


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
    itself is not changed. With all heads of a layer at zero, attention adds only the projection's bias::

        with aw.ablate_heads(model, {3: [1, 4]}):
            model.generate(...)
        trace.rerun(aw.ablate_heads(trace, (3, 1)))

    Args:
        model: A transformers model, or a trace of one.
        heads: (layer, head), a list of such pairs, or heads by layer: `{3: [1, 4], 5: "all"}`.
        how: "zero"; "mean", the mean over all tokens of `reference`; "resample", at every position the
            outputs at a random token of `reference`, the same token for all heads and layers; "patch", the
            outputs at the same position of `reference`, a single trace (later positions are not changed).
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
    stack, modules = sites_of(model, stack)
    chosen = chosen_heads(heads, modules)
    traces = list(reference) if isinstance(reference, (list, tuple)) else [reference]
    known = None if reference is None else _reference_outputs(model, traces, how, stack, tuple(chosen))
    description = f"{describe_heads(chosen)} {_SAID[how].format(n=len(traces), s='s' * (len(traces) != 1))}"
    return HeadIntervention(
        model, "ablate_heads", description, stack, chosen, write=_Ablation(how, known, seed)
    )


@dataclass(frozen=True)
class _Ablation:
    """Replaces the outputs of heads; see `ablate_heads`.

    Args:
        how: One of `HOWS`.
        known: Outputs of heads in the reference, by layer [head, token, dim]; None for "zero".
        seed: Seed of "resample".
    """

    how: How
    known: Mapping[int, Tensor] | None
    seed: int

    def __call__(self, seen: Seen, output: Tensor, heads: list[int]) -> Tensor:
        """Return outputs [batch, head, query, dim] with those of some heads replaced."""
        output = output.clone()
        if self.known is None:
            output[:, heads] = 0
            return output
        known = self.known[seen.layer][heads].to(output)
        positions = range(seen.first_query, seen.first_query + output.shape[2])
        if self.how == "mean":
            output[:, heads] = known.mean(1, keepdim=True)
        elif self.how == "resample":
            output[:, heads] = known[:, [self._drawn(position, known.shape[1]) for position in positions]]
        else:
            rows = [row for row, position in enumerate(positions) if position < known.shape[1]]
            for head, of_head in zip(heads, known, strict=True):
                output[:, head, rows] = of_head[[positions[row] for row in rows]]
        return output

    def _drawn(self, position: int, n: int) -> int:
        """Return the reference token drawn for a position, always the same one."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + position)
        return int(torch.randint(n, (1,), generator=generator))


def _reference_outputs(
    model: Any, traces: Sequence[Any], how: How, stack: str, layers: Sequence[int]
) -> dict[int, Tensor]:
    """Return the outputs of heads in the reference, by layer [head, token, dim].

    Raises:
        ValueError: If the reference is missing, several for "patch", or one by another model.
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
        trace.call(twin, trace.inputs, pass_options(model), {})
    return outputs
