"""Heads without what they write: zero, their mean, another text's, or what another trace recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.intervene.head_selection import chosen_heads, said_heads, sites_of
from attnwidgets.tracing.attention_modules import Turns, sites
from attnwidgets.tracing.interventions import Intervention
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import forward_parameters, recording
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.interventions import Seen

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
    """Take away what heads write, while a `with` block runs.

    What is replaced is the head's output at every token, the mixed values before the output projection; its
    attention stays as it is. With all heads of a layer at zero, attention adds the projection's bias alone::

        with aw.ablate_heads(model, {3: [1, 4]}):
            model.generate(...)
        trace.rerun(aw.ablate_heads(trace, (3, 1)))

    Args:
        model: A transformers model, or a trace of one.
        heads: (layer, head), a list of such pairs, or heads by layer: `{3: [1, 4], 5: "all"}`.
        how: "zero"; "mean", over all tokens of `reference`; "resample", at every position what the heads
            write at a random token of `reference`, the same token for all heads and layers; "patch", what
            they write at the same position in the one trace that `reference` is (positions beyond it stay).
        reference: A trace or several, by the same model; the model runs once on each, as it is now.
        stack: Which attention, where there are several ("encoder", "decoder", "cross").
        seed: Of what "resample" draws.

    Returns:
        A context manager; the model is as it was when it is left, also after an exception.

    Raises:
        ValueError: For an unknown `how` or stack; a reference that is missing, not needed, or by another
            model.
        IndexError: Where there is no such layer or head.
        TypeError: Where `heads` are none.

    Source: Michel et al. 2019, section 2.3 (zero); Wang et al. 2023, section 3 (mean); Chan et al.
    2022, Causal Scrubbing (resample).
    """
    if how not in HOWS:
        raise ValueError(f"how {how!r} is not one of {listed(HOWS)}.{suggest(str(how), HOWS)}")
    if (reference is None) != (how == "zero"):
        raise ValueError(
            f"reference is missing: how={how!r} takes what heads write in a trace or several."
            if reference is None
            else "reference is for how='mean', 'resample' or 'patch'; 'zero' needs none."
        )
    name, own = sites_of(model, stack)
    chosen = chosen_heads(heads, own)
    written = None
    several: list[Trace] = []
    if reference is not None:
        several = list(reference) if isinstance(reference, (list, tuple)) else [reference]
        written = _reference(model, several, how, name, tuple(chosen))
    said = _SAID[how].format(n=len(several), s="s" * (len(several) != 1))
    return _Ablation(model, name, chosen, how, written, seed, f"{said_heads(chosen)} {said}")


class _Ablation(Intervention):
    """See `ablate_heads`."""

    def __init__(
        self,
        model: Any,
        stack: str,
        heads: Mapping[int, tuple[int, ...]],
        how: How,
        written: Mapping[int, Tensor] | None,
        seed: int,
        said: str,
    ) -> None:
        where = frozenset((stack, layer) for layer, own in heads.items() if own)
        super().__init__(model, "ablate_heads", said, where)
        self._heads, self._how, self._written, self._seed = heads, how, written, seed

    def write(self, seen: Seen, output: Tensor) -> Tensor:
        """Return what the heads return, without what some of them do."""
        heads = list(self._heads[seen.layer])
        if heads[-1] >= output.shape[1]:
            raise IndexError(
                f"layer {seen.layer} has heads 0 to {output.shape[1] - 1}, and no head {heads[-1]}."
            )
        output = output.clone()
        if self._written is None:
            output[:, heads] = 0
            return output
        known = self._written[seen.layer][heads].to(output)
        places = range(seen.first_query, seen.first_query + output.shape[2])
        if self._how == "mean":
            output[:, heads] = known.mean(1, keepdim=True)
        elif self._how == "resample":
            output[:, heads] = known[:, [self._drawn(place, known.shape[1]) for place in places]]
        else:
            rows = [at for at, place in enumerate(places) if place < known.shape[1]]
            for head, own in zip(heads, known, strict=True):
                output[:, head, rows] = own[[places[at] for at in rows]]
        return output

    def _drawn(self, place: int, n: int) -> int:
        """Return which token of the reference stands for a position: the same whenever it is asked."""
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + place)
        return int(torch.randint(n, (1,), generator=generator))


def _reference(
    model: Any, traces: Sequence[Any], how: How, stack: str, layers: Sequence[int]
) -> dict[int, Tensor]:
    """Return what heads write in the reference, by layer [head, token, dim].

    Raises:
        ValueError: Where there is no reference, several for "patch", or it is by another model.
    """
    inner = unwrap(model.model if isinstance(model, Trace) else model)
    if not traces or (how == "patch" and len(traces) > 1):
        raise ValueError(
            f"reference: how={how!r} takes {'one trace' if how == 'patch' else 'a trace or several'}."
        )
    found: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    for number, trace in enumerate(traces):
        if not isinstance(trace, Trace) or trace.model is None or unwrap(trace.model) is not inner:
            raise ValueError(
                f"reference[{number}] is no trace by this model; make it with aw.trace(model, ...)."
            )
        for layer, own in written(trace, stack).items():
            if layer in found:
                found[layer].append(own)
    return {layer: torch.cat(several, dim=1) for layer, several in found.items()}


def written(trace: Trace, stack: str) -> dict[int, Tensor]:
    """Return what the heads of a stack write for a trace's input, by layer [head, token, dim]."""
    model = unwrap(trace.model)
    turns = Turns(sites(trace))
    found: dict[int, Tensor] = {}

    def listen(module: nn.Module, output: Tensor) -> None:
        place = turns.of(module)
        if place is not None and place[0] == stack:
            found[place[1]] = output[0].detach()

    options: dict[str, Any] = {"return_dict": True}
    if "use_cache" in forward_parameters(model):
        options["use_cache"] = False
    with borrowed(model) as twin, recording(twin, (), [listen]):
        trace.call(twin, trace.inputs, options, {})
    return found
