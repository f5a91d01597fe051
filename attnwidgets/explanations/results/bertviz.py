"""m.to_bertviz(): a map as arguments of bertviz' views, if bertviz can show it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.results.mixing_map import MixingMap

TOKENS = {"head": 128, "model": 64}
"""Most tokens for which bertviz' views open in seconds: they draw every pair as an element of the page."""
VALUES = 3_000_000
"""Most weights for which its page stays below about 50 MB: it holds them twice, as text."""
_DECIMALS = 4


def to_bertviz(
    shown: MixingMap, view: Literal["head", "model"] = "head", *, force: bool = False
) -> dict[str, Any]:
    """Return a map as the arguments of bertviz' views: `head_view(**m.to_bertviz())`.

    Weights are rounded to four decimals, in float64, so that bertviz' page holds "0.0312" and not seventeen
    digits. A map by word, or of rollout, is passed on as it is: with words for tokens, and with one head.

    Args:
        shown: The map.
        view: "head" for bertviz' `head_view`, "model" for its `model_view`, which shows fewer tokens.
        force: Whether to return more than bertviz can show in reasonable time.

    Returns:
        attention (a list of tensors (1, head, token, token)), tokens, sentence_b_start for a pair of texts;
        for a map between two sequences cross_attention, encoder_tokens and decoder_tokens. If the layers are
        not 0, 1, ..., also include_layers, so that they keep their numbers. bertviz counts heads from 0.

    Raises:
        ValueError: If the map is too large, has negative values, or its layers have
            different numbers of heads.
    """
    import torch

    require_choice("view", view, tuple(TOKENS))
    _refuse_large(shown, view, force=force)
    if shown.known("signed"):
        raise ValueError(f"{shown.title} has negative values, and bertviz draws weights as opacity.")
    tensors: dict[int, Any] = {}
    for number in shown.layers:
        values = np.asarray(shown.layer(number), dtype=np.float64)
        values = values if shown.heads is not None else values[None]
        if values.min() < 0:
            raise ValueError(f"layer {number} has negative values, and bertviz draws weights as opacity.")
        tensors[number] = torch.from_numpy(np.round(values, _DECIMALS))[None]
    counts = sorted({tensor.shape[1] for tensor in tensors.values()})
    if len(counts) > 1:
        raise ValueError(
            f"layers have {counts[0]} to {counts[-1]} heads, and bertviz accepts one number: "
            ".select(layer=...) those that are alike, or .mean()."
        )
    # bertviz finds layers by their index in the list: missing ones are filled in with the first.
    first = tensors[shown.layers[0]]
    numbers = range(max(shown.layers) + 1)
    layers = [tensors.get(number, first) for number in numbers]
    extra = {} if shown.layers == tuple(numbers) else {"include_layers": list(shown.layers)}
    queries, keys = _spelled(shown.query_labels), _spelled(shown.key_labels)
    if shown.query is not shown.key and shown.query != shown.key:
        return {"cross_attention": layers, "encoder_tokens": keys, "decoder_tokens": queries} | extra
    second = _second_text(shown)
    pair = {} if second is None else {"sentence_b_start": second}
    return {"attention": layers, "tokens": queries} | pair | extra


def _refuse_large(shown: MixingMap, view: str, *, force: bool) -> None:
    longest, total = max(shown.shape[-2:]), int(np.prod(shown.shape))
    if force:
        return
    if longest > TOKENS[view]:
        raise ValueError(
            f"bertviz' {view} view cannot show {longest} {shown.unit}s: it draws every pair, and hangs above "
            f"about {TOKENS[view]}. Read the map by word or sentence, .to('word'), show it here "
            "(aw.Explorer), or pass force=True."
        )
    if total > VALUES:
        raise ValueError(
            f"bertviz' page would hold {total:,} weights twice, as text (about {total * 16 // 10**6} MB). "
            ".select(layer=..., head=...) some, show it here (aw.Explorer), or pass force=True."
        )


def _second_text(shown: MixingMap) -> int | None:
    """Return the first element of the second text of a pair."""
    segment = shown.query.segment
    return next((i for i, span in enumerate(shown.query_unit.spans) if span and segment[span[0]]), None)


def _spelled(labels: Sequence[str]) -> list[str]:
    """Return labels that cannot end the script that bertviz writes them into."""
    return [re.sub(r"<(?=/script|!--)", "<\u200b", label, flags=re.IGNORECASE) for label in labels]
