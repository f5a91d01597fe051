"""Tokens that others may not read: of some by some, or dropped for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.intervene.head_selection import (
    chosen_heads,
    positions,
    said_heads,
    sites_of,
    some_layers,
    spoken,
)
from attnwidgets.tracing.interventions import Intervention
from attnwidgets.tracing.recording.attention_function import attention_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attnwidgets.tracing.interventions import Seen


def suppress(
    model: Any,
    source: Any,
    target: Any = None,
    *,
    heads: Any = None,
    renormalize: bool = True,
    stack: str | None = None,
) -> Intervention:
    """Let some tokens not be read by some others, while a `with` block runs.

    The scores of these pairs are masked before the softmax, so that what a query took from them goes to the
    others that it reads; a query that is left with none takes nothing. Other ways between two tokens (through
    a third one, in another layer) stay open, unless the third is a target as well.

    Args:
        model: A transformers model, or a trace of one.
        source: Positions of the tokens that are not read.
        target: Positions of the tokens that do not read them; None for all that come after the first source.
        heads: Only in these heads; see `aw.ablate_heads`. None for all of all layers.
        renormalize: Whether what is left of a row is scaled to sum to one; else the sources' weights are
            zeros and the rest is as it was.
        stack: Which attention, where there are several ("encoder", "decoder", "cross").

    Returns:
        A context manager; the model is as it was when it is left, also after an exception.

    Raises:
        ValueError: Where a position is out of range, or the stack is unknown.
        IndexError: Where there is no such layer or head.

    Source: Bogdan et al. 2025, Thought Anchors, section 5 (of sentences, in all layers and heads); Geva et
    al. 2023, section 4 (attention knockout).
    """
    name, own = sites_of(model, stack)
    chosen = chosen_heads(dict.fromkeys(some_layers(None, own), "all") if heads is None else heads, own)
    sources = positions(source, "source", model, name, 1)
    targets = None if target is None else positions(target, "target", model, name, 0)
    where = "" if heads is None else f" in {said_heads(chosen)}"
    readers = "tokens after them" if targets is None else f"tokens {spoken(targets)}"
    said = f"tokens {spoken(sources)} not read by {readers}{where}"
    after = min(sources, default=0) if targets is None else None
    return _Suppression(
        model, "suppress", said, name, chosen, sources, targets, after, renormalize=renormalize
    )


def drop_tokens(model: Any, tokens: Any, *, stack: str | None = None) -> Intervention:
    """Let no other token read some tokens, in all layers and heads, while a `with` block runs.

    The same as an attention mask that hides them, but for their own rows, which nobody reads (a model that
    pools over all tokens, or is read at one of them, still does).

    Args:
        model: A transformers model, or a trace of one.
        tokens: Their positions.
        stack: Which attention, where there are several ("encoder", "decoder", "cross").

    Returns:
        A context manager; the model is as it was when it is left, also after an exception.

    Raises:
        ValueError: Where a position is out of range, or the stack is unknown.
    """
    name, own = sites_of(model, stack)
    chosen = chosen_heads(dict.fromkeys(some_layers(None, own), "all"), own)
    dropped = positions(tokens, "tokens", model, name, 1)
    said = f"tokens {spoken(dropped)} dropped"
    return _Suppression(model, "drop_tokens", said, name, chosen, dropped, None, None, renormalize=True)


class _Suppression(Intervention):
    """See `suppress` and `drop_tokens`."""

    def __init__(
        self,
        model: Any,
        kind: str,
        said: str,
        stack: str,
        heads: Mapping[int, tuple[int, ...]],
        sources: frozenset[int],
        targets: frozenset[int] | None,
        after: int | None,
        *,
        renormalize: bool,
    ) -> None:
        where = frozenset((stack, layer) for layer, own in heads.items() if own and sources)
        super().__init__(model, kind, said, where)
        self._heads, self._sources, self._targets = heads, sources, targets
        self._after, self._renormalize = after, renormalize

    def weigh(self, seen: Seen, weights: Tensor) -> Tensor:
        """Return weights without some pairs."""
        heads = list(self._heads[seen.layer])
        columns, rows = seen.keys(self._sources), seen.queries(self._targets)
        if self._after is not None:
            rows = [row for row in rows if row + seen.first_query > self._after]
        if not columns or not rows:
            return weights
        pairs = torch.zeros(weights.shape[2:], dtype=torch.bool)
        for row in rows:
            pairs[row, columns] = True
        if self._targets is None and seen.stack != "cross":
            # A token goes on reading itself.
            own = torch.arange(len(pairs)) + seen.first_query - seen.first_key
            there = (own >= 0) & (own < pairs.shape[1])
            pairs[there.nonzero().flatten(), own[there]] = False
        gone = torch.zeros(weights.shape[1:], dtype=torch.bool)
        gone[heads] = pairs
        gone = gone.to(weights.device)
        left = weights.masked_fill(gone, 0)
        if not self._renormalize:
            return left
        if seen.changed:
            total = left.sum(-1, keepdim=True)
            new = left / torch.where(total > 0, total, torch.ones_like(total))
        else:
            new = self._again(seen, gone)
        touched = gone.any(-1, keepdim=True)
        return torch.where(touched, new, weights)

    def _again(self, seen: Seen, gone: Tensor) -> Tensor:
        """Return the softmax over what is left: exact also where the rest has hardly any weight."""
        settings = dict(seen.settings)
        lowest = torch.finfo(seen.query.dtype).min
        hidden = torch.zeros(gone.shape, dtype=seen.query.dtype, device=gone.device)
        hidden = hidden.masked_fill(gone, lowest)[None]
        readable = seen.readable & ~gone
        mask = settings.get("mask")
        settings["mask"] = (
            hidden if mask is None else torch.where(readable, mask, torch.full_like(hidden, lowest))
        )
        weights = attention_weights(seen.query, seen.key, **settings)
        # Where nothing is left, a softmax over the lowest numbers would be uniform.
        return weights.masked_fill(gone | ~readable.any(-1, keepdim=True), 0)
