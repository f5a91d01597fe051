"""Targets and their cues in maps, as cue contribution and its strips read them."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.examples.examples import read
from attnwidgets.evaluate.metrics.ranking import TIES
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.examples.examples import Example, Pieces
    from attnwidgets.evaluate.examples.explained_input import Spec

PAPER = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers"
BASELINES = (RANDOM, ORACLE)
_CHOICES: dict[str, tuple[str, ...]] = {
    "unit": ("word", "token"),
    "pieces": ("first", "all"),
    "row": ("target", "before"),
    "normalize": ("row", "none"),
    "ranked": ("all", "others", "words"),
    "ties": TIES,
}


def default_methods(*, causal: bool) -> Sequence[Spec]:
    """Return the methods that are scored by default.

    GlobEnc's product of lengths leaves the range of float32 at the depth of today's decoders, so its rows are
    normalised there.
    """
    return (
        "attention",
        "rollout",
        ("attention_norm", {"variant": "res_ln"}),
        ("globenc", {"normalize": "row"}) if causal else "globenc",
        "alti",
        "value_zeroing",
    )


def require_choices(options: Mapping[str, str]) -> None:
    """Raise ValueError if an option is unknown; the message suggests the nearest."""
    for name, value in options.items():
        require_choice(name, value, _CHOICES[name])


def departures(options: Mapping[str, str], *, masked: bool, rankings: Sequence[str] = ()) -> list[str]:
    """Return the differences from the paper's computation, in words."""
    words = {
        "target masked": masked,
        "row of the token before the target": options["row"] == "before",
        "all pieces of a cue": options["pieces"] == "all",
        "rows as they are": options["normalize"] == "none",
        "ranked without the target": tuple(rankings) == ("others",),
        "ranked without target and special tokens": tuple(rankings) == ("words",),
        "ties together": options.get("ties") == "together",
    }
    return [phrase for phrase, holds in words.items() if holds]


@dataclass(frozen=True)
class Reading:
    """How examples are read, as the first of them and the model decide for all.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        unit: Unit of the indices.
        pieces: Which tokens of a cue count.
        causal: Whether the model reads from left to right; if so, cues after the target are left out.
        mask: Whether targets are masked.
        layers: Number of layers.
    """

    model: Any
    tokenizer: Any
    unit: str
    pieces: Pieces
    causal: bool
    mask: bool
    layers: int

    def examples(self, sources: Iterable[Any]) -> Iterator[Example]:
        """Yield examples as the model reads them.

        Raises:
            ValueError: If an example does not fit; the message names it.
        """
        for number, item in enumerate(sources):
            example = self._read(item, number)
            if not example.cues:
                raise ValueError(self._blind(number, sources))
            yield example

    def _read(self, item: Any, number: int) -> Example:
        example = read(
            self.model, self.tokenizer, item, number, unit=self.unit, pieces=self.pieces, mask=self.mask
        )
        if not self.causal:
            return example
        return replace(example, cues=tuple(cue for cue in example.cues if cue < min(example.target)))

    def _blind(self, number: int, sources: Iterable[Any]) -> str:
        counted = ""
        if isinstance(sources, Sized):
            count = sum(not self._read(item, index).cues for index, item in enumerate(sources))
            counted = f" (as in {count} of {len(sources)} examples)"
        return (
            f"examples[{number}]: every cue follows the target, and this model reads from left to right"
            f"{counted}; leave them out."
        )


def reading(
    model: Any, tokenizer: Any, first: Any, unit: str, pieces: Pieces, mask_target: bool | None
) -> Reading:
    """Return the `Reading` of a model's examples, checked on the first of them.

    Raises:
        ValueError: If it does not fit, or cannot be masked.
        TypeError: Without a text tokenizer.
    """
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.inputs import text_tokenizer
    from attnwidgets.tracing.recording.run import trace

    reader = text_tokenizer(tokenizer)
    if reader is None:
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__}; examples are read with a text tokenizer."
        )
    inner = unwrap(model)
    example = read(inner, tokenizer, first, 0, unit=unit, pieces=pieces, mask=False)
    run = trace(model, tokenizer, input_ids=list(example.ids))
    causal = bool(run.is_causal())
    can_mask = getattr(reader, "mask_token_id", None) is not None
    if mask_target and not can_mask:
        raise ValueError(f"mask_target=True needs a mask token, and {type(reader).__name__} has none.")
    mask = can_mask and not causal if mask_target is None else bool(mask_target)
    return Reading(inner, tokenizer, unit, pieces, causal, mask, run.n_layers())


def sink_warning(first: int, of: int) -> str:
    """Return a warning if cues stand where attention rests whatever the text says; "" if none does.

    Args:
        first: Number of examples in which a cue does, see `rests`.
        of: Number of examples.
    """
    if not first:
        return ""
    return (
        f"a cue is the first token in {first} of {of} examples: attention rests there whatever it "
        "says; a start token before the text tells the two apart"
    )


def rests(example: Example) -> bool:
    """Return whether a cue is the first token, and this token is not special."""
    return 0 in example.cues and not example.special[0]


def traced(model: Any, tokenizer: Any, examples: Sequence[Example]) -> list[Any]:
    """Return the trace of every example, run in batches."""
    import torch

    from attnwidgets.tracing.recording.run import trace

    width = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        mask[row, : len(example.ids)] = 1
    traces = trace(model, tokenizer, input_ids=ids, attention_mask=mask)
    return traces if isinstance(traces, list) else [traces]


def rows_read(example: Example, row: str) -> list[int]:
    """Return the rows that are read: the target's, or that of the token before it.

    Raises:
        ValueError: If no token stands before the target.
    """
    if row == "target":
        return list(example.target)
    first = min(example.target)
    if first == 0:
        raise ValueError(f"examples[{example.number}]: no token precedes the target; pass row='target'.")
    return [first - 1]


def seen(n: int, row: int, *, causal: bool) -> Bools:
    """Return which of n tokens a row can see."""
    return np.arange(n) <= row if causal else np.ones(n, dtype=bool)


def indicator(tokens: Sequence[int], n: int) -> Float:
    """Return the vector [n] that is 1 on some tokens and 0 elsewhere."""
    vector = np.zeros(n)
    vector[list(tokens)] = 1.0
    return vector


def shares(rows: Float, normalize: str) -> Float:
    """Return rows divided by the sums of their absolute values; a row of zeros stays zero."""
    if normalize == "none":
        return rows
    totals = np.abs(rows).sum(axis=-1, keepdims=True)
    return np.divide(rows, totals, out=np.zeros_like(rows), where=totals > 0)
