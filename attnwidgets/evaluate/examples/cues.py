"""Targets and their cues in maps: what cue contribution and its strips share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets.evaluate.examples.examples import read
from attnwidgets.evaluate.examples.maps import named
from attnwidgets.evaluate.metrics.ranking import TIES
from attnwidgets.evaluate.scorecards.scored import ORACLE, RANDOM
from attnwidgets.explanations.selecting import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.examples.examples import Example

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
_AT_ONCE = 32  # traces that are held while their maps are read


def default_methods(*, causal: bool) -> dict[str, Callable[[Any], Any]]:
    """Return the methods that are scored where none is named.

    The product of lengths that is GlobEnc leaves the range of float32 in the depth of today's decoders, so
    that its rows are normalised there.
    """
    return named(
        (
            "attention",
            "rollout",
            ("attention_norm", {"variant": "res_ln"}),
            ("globenc", {"normalize": "row"}) if causal else "globenc",
            "alti",
            "value_zeroing",
        )
    )


def check(options: Mapping[str, str]) -> None:
    """Raise ValueError where an option is none of those taken; the message names the nearest."""
    for name, value in options.items():
        if value not in _CHOICES[name]:
            near = suggest(str(value), _CHOICES[name])
            message = f"{name} {value!r} is not one of {listed(_CHOICES[name])}.{near}"
            raise ValueError(message)


def departures(options: Mapping[str, str], *, masked: bool, rankings: Sequence[str] = ()) -> list[str]:
    """Return in words what a reader must know of how it was done."""
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


def prepare(
    model: Any, tokenizer: Any, examples: Iterable[Any], unit: str, pieces: Any, mask_target: bool | None
) -> tuple[list[Example], bool, bool]:
    """Return examples as the model reads them, whether it is causal, and whether targets are masked.

    Raises:
        ValueError: Where an example does not fit; the message names it.
        TypeError: Where there is no text tokenizer.
    """
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.inputs import text_tokenizer
    from attnwidgets.tracing.recording.run import trace as run

    given = list(examples)
    if not given:
        message = "examples is empty: give at least one, with words (or text), target and cues."
        raise ValueError(message)
    reader = text_tokenizer(tokenizer)
    if reader is None:
        message = f"tokenizer is a {type(tokenizer).__name__}; examples are read with a text tokenizer."
        raise TypeError(message)
    inner = unwrap(model)
    first = read(inner, tokenizer, given[0], 0, unit=unit, pieces=pieces, mask=False)
    causal = bool(run(model, tokenizer, input_ids=list(first.ids)).is_causal())
    can_mask = getattr(reader, "mask_token_id", None) is not None
    if mask_target and not can_mask:
        message = f"mask_target=True needs a mask token, and {type(reader).__name__} has none."
        raise ValueError(message)
    mask = can_mask and not causal if mask_target is None else bool(mask_target)
    prepared = [
        read(inner, tokenizer, item, number, unit=unit, pieces=pieces, mask=mask)
        for number, item in enumerate(given)
    ]
    if not causal:
        return prepared, causal, mask
    return _seen_cues(prepared), causal, mask


def _seen_cues(prepared: list[Example]) -> list[Example]:
    """Return examples of a causal model with the cues that it can have read: those before the target."""
    cut = [replace(ex, cues=tuple(cue for cue in ex.cues if cue < min(ex.target))) for ex in prepared]
    blind = [example.number for example in cut if not example.cues]
    if blind:
        message = (
            f"examples[{blind[0]}]: every cue follows the target, and this model reads from left to right "
            f"({len(blind)} of {len(cut)} examples are so); leave them out."
        )
        raise ValueError(message)
    return cut


def sink_warning(prepared: Sequence[Example]) -> str:
    """Return what a reader must know where cues stand in the place to which attention goes for nothing."""
    first = sum(0 in example.cues and not example.special[0] for example in prepared)
    if not first:
        return ""
    return (
        f"a cue is the first token in {first} of {len(prepared)} examples: attention rests there whatever it "
        "says; a start token before the text tells the two apart"
    )


def traced(model: Any, tokenizer: Any, prepared: Sequence[Example]) -> Iterator[tuple[Example, Any]]:
    """Yield every example with its trace, run in batches."""
    import torch

    from attnwidgets.tracing.recording.run import trace as run

    def paired() -> Iterator[tuple[Example, Any]]:
        for start in range(0, len(prepared), _AT_ONCE):
            part = prepared[start : start + _AT_ONCE]
            width = max(len(example.ids) for example in part)
            ids = torch.zeros(len(part), width, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for place, example in enumerate(part):
                ids[place, : len(example.ids)] = torch.tensor(example.ids)
                mask[place, : len(example.ids)] = 1
            traces = run(model, tokenizer, input_ids=ids, attention_mask=mask)
            yield from zip(part, traces if isinstance(traces, list) else [traces], strict=True)

    yield from progress(paired(), desc="cue contribution", total=len(prepared))


def rows_read(example: Example, row: str) -> list[int]:
    """Return the rows that are read: the target's, or that of the token before it.

    Raises:
        ValueError: Where no token stands before the target.
    """
    if row == "target":
        return list(example.target)
    first = min(example.target)
    if first == 0:
        message = f"examples[{example.number}]: no token stands before the target; pass row='target'."
        raise ValueError(message)
    return [first - 1]


def seen(n: int, row: int, *, causal: bool) -> NDArray[np.bool_]:
    """Return which of n tokens a row can see."""
    return np.arange(n) <= row if causal else np.ones(n, dtype=bool)


def indicator(tokens: Sequence[int], n: int) -> NDArray[np.float64]:
    """Return the vector [n] that is 1 on some tokens and 0 elsewhere."""
    vector = np.zeros(n)
    vector[list(tokens)] = 1.0
    return vector


def shares(rows: NDArray[np.float64], normalize: str) -> NDArray[np.float64]:
    """Return rows divided by the sums of their absolute values; a row of zeros stays zero."""
    if normalize == "none":
        return rows
    totals = np.abs(rows).sum(axis=-1, keepdims=True)
    divided: NDArray[np.float64] = np.divide(rows, totals, out=np.zeros_like(rows), where=totals > 0)
    return divided
