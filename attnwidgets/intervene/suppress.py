"""Suppression of attention between tokens: of some by others, or of tokens dropped for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.intervene.head_selection import (
    HeadIntervention,
    chosen_heads,
    describe_heads,
    positions,
    sites_of,
    spoken,
)
from attnwidgets.tracing.recording.attention_function import attention_weights

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.interventions import Intervention, Seen


def suppress(
    model: Any,
    source: Any,
    target: Any = None,
    *,
    heads: Any = None,
    renormalize: bool = True,
    stack: str | None = None,
) -> Intervention:
    """Prevent some tokens from reading others while a `with` block runs.

    The scores of these pairs are masked before the softmax, so that their weight goes to the other tokens
    that the query reads; a query without any other token takes nothing. Indirect paths between two tokens
    (through a third one, in another layer) stay open, unless the third is a target as well.

    Args:
        model: A transformers model, or a trace of one.
        source: Positions of the tokens that are not read.
        target: Positions of the tokens that do not read them; None for all tokens after the first source.
        heads: Only in these heads; see `aw.ablate_heads`. None for all heads of all layers.
        renormalize: Whether the rest of a row is scaled to sum to one; else the sources' weights become zero
            and the rest is not changed.
        stack: Which attention, in models with several stacks ("encoder", "decoder", "cross").

    Returns:
        A context manager; the model is restored on exit, even after an exception.

    Raises:
        ValueError: If a position is out of range, or the stack is unknown.
        IndexError: If the layer or head is out of range.

    Source: Bogdan et al. 2025, Thought Anchors, section 5 (of sentences, in all layers and heads); Geva et
    al. 2023, section 4 (attention knockout).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> suppressed = trace.rerun(aw.suppress(trace, source=2, target=[4, 5]))
        >>> suppressed.attention_layer(0)[:, 4, 2].max().item()
        0.0
    """
    stack, modules = sites_of(model, stack)
    chosen = chosen_heads(heads, modules)
    sources = positions(source, "source", model, stack, 1)
    targets = None if target is None else positions(target, "target", model, stack, 0)
    after = min(sources, default=0) if targets is None else None
    where = "" if heads is None else f" in {describe_heads(chosen)}"
    readers = "tokens after them" if targets is None else f"tokens {spoken(targets)}"
    description = f"tokens {spoken(sources)} not read by {readers}{where}"
    weigh = _Suppression(sources, targets, after, renormalize)
    return HeadIntervention(model, "suppress", description, stack, chosen if sources else {}, weigh=weigh)


def drop_tokens(model: Any, tokens: Any, *, stack: str | None = None) -> Intervention:
    """Prevent all other tokens from reading some tokens, in all layers and heads, while a `with` block runs.

    Equivalent to an attention mask that hides them, except for their own rows, which no token reads (a model
    that pools over all tokens, or is read at one of them, still does).

    Args:
        model: A transformers model, or a trace of one.
        tokens: Positions of the tokens.
        stack: Which attention, in models with several stacks ("encoder", "decoder", "cross").

    Returns:
        A context manager; the model is restored on exit, even after an exception.

    Raises:
        ValueError: If a position is out of range, or the stack is unknown.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> dropped = trace.rerun(aw.drop_tokens(trace, [2, 5]))
        >>> dropped.attention_layer(0)[:, 1, [2, 5]].max().item()
        0.0
    """
    stack, modules = sites_of(model, stack)
    chosen = chosen_heads(None, modules)
    dropped = positions(tokens, "tokens", model, stack, 1)
    description = f"tokens {spoken(dropped)} dropped"
    weigh = _Suppression(dropped, None, None, renormalize=True)
    return HeadIntervention(model, "drop_tokens", description, stack, chosen if dropped else {}, weigh=weigh)


@dataclass(frozen=True)
class _Suppression:
    """Suppresses attention; see `suppress` and `drop_tokens`.

    Args:
        sources: Positions of the tokens that are not read.
        targets: Positions of the tokens that do not read them; None for all.
        after: Only tokens after this position do not read them, or None.
        renormalize: Whether the rest of a row is scaled to sum to one.
    """

    sources: frozenset[int]
    targets: frozenset[int] | None
    after: int | None
    renormalize: bool

    def __call__(self, seen: Seen, weights: Tensor, heads: list[int]) -> Tensor:
        """Return weights [batch, head, query, key] without some pairs."""
        columns, rows = seen.keys(self.sources), seen.queries(self.targets)
        if self.after is not None:
            rows = [row for row in rows if row + seen.first_query > self.after]
        if not columns or not rows:
            return weights
        pairs = torch.zeros(weights.shape[2:], dtype=torch.bool)
        for row in rows:
            pairs[row, columns] = True
        if self.targets is None and seen.stack != "cross":
            # Tokens still read themselves.
            diagonal = torch.arange(len(pairs)) + seen.first_query - seen.first_key
            inside = (diagonal >= 0) & (diagonal < pairs.shape[1])
            pairs[inside.nonzero().flatten(), diagonal[inside]] = False
        suppressed = torch.zeros(weights.shape[1:], dtype=torch.bool)
        suppressed[heads] = pairs
        suppressed = suppressed.to(weights.device)
        rest = weights.masked_fill(suppressed, 0)
        if not self.renormalize:
            return rest
        if seen.changed:
            total = rest.sum(-1, keepdim=True)
            new = rest / torch.where(total > 0, total, torch.ones_like(total))
        else:
            new = _masked_softmax(seen, suppressed)
        return torch.where(suppressed.any(-1, keepdim=True), new, weights)


def _masked_softmax(seen: Seen, suppressed: Tensor) -> Tensor:
    """Return weights with some pairs masked before the softmax: exact even if the rest has little weight."""
    settings = dict(seen.settings)
    lowest = torch.finfo(seen.query.dtype).min
    hidden = torch.zeros(suppressed.shape, dtype=seen.query.dtype, device=suppressed.device)
    hidden = hidden.masked_fill(suppressed, lowest)[None]
    readable = seen.readable & ~suppressed
    mask = settings.get("mask")
    settings["mask"] = (
        hidden if mask is None else torch.where(readable, mask, torch.full_like(hidden, lowest))
    )
    weights = attention_weights(seen.query, seen.key, **settings)
    # If nothing can be read, a softmax over the lowest numbers would be uniform.
    return weights.masked_fill(suppressed | ~readable.any(-1, keepdim=True), 0)
