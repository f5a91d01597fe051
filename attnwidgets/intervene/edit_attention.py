"""Editing of attention: rows made uniform, permuted or given; tokens suppressed or dropped.

Each function returns a `HeadIntervention` with two changes: of attention weights (`_Edit` with the new rows
of `_uniform`, `_OneHot`, `_Permuted` or `_Matrix`; `_Suppression`), and of kernels without a softmax
(`kernel_rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.intervene.block_heads import heads_of_blocks, require_known_kernels
from attnwidgets.intervene.heads import (
    HeadIntervention,
    chosen_heads,
    describe_heads,
    positions,
    spoken,
)
from attnwidgets.intervene.kernel_rows import RowEdit, Suppression
from attnwidgets.tracing.recording.attention_function import attention_weights
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from attnwidgets.intervene.block_heads import BlockHeads, KernelModule
    from attnwidgets.tracing.interventions import Intervention, Seen
    from attnwidgets.tracing.recording.attention_function import Scored

    # A call, its rows [batch, head, row, key], which keys they may read, the rows' indices -> new rows.
    NewRows = Callable[[Seen, Tensor, Tensor, list[int]], Tensor]

KINDS = ("uniform", "permuted", "one_hot")
_MAP, _MAPS = 2, 3


def edit_attention(
    model: Any,
    heads: Any = None,
    to: Any = "uniform",
    *,
    query: Any = None,
    key: int | None = None,
    stack: str | None = None,
    seed: int = 0,
) -> Intervention:
    """Replace rows of attention while a `with` block runs; everything after attention follows from them.

        with aw.edit_attention(model, (3, 1), "uniform"):
            ...

    Rows of a kernel without a softmax (`aw.mixing(trace, "kernel")`) are replaced as well, in a trace, where
    its heads are named: by a matrix, whose weights may be negative and sum to anything, or by "one_hot". Its
    columns are positions after a short convolution, and a query's output becomes the sum of their values, as
    the kernel mixes them, with these weights.

    Args:
        model: A transformers model, or a trace of it.
        heads: (layer, head), a list of such pairs, heads by layer, or None for all heads of attention of all
            layers. The number of a map that stands for all channels of a kernel may be named as well.
        to: "uniform", equal weight on every key that a query may read; "permuted", the weights of the row in
            random order on these keys; "one_hot", all weight on `key`, if the query may read it (other rows
            are not changed); or a matrix [query, key] or [head, query, key] (heads as chosen in a layer),
            used as it is. Rows beyond a matrix (of generated tokens) are not changed, columns are zero.
        query: Positions of the rows; None for all.
        key: Position of the token for "one_hot".
        stack: Which attention, in models with several stacks ("encoder", "decoder", "cross").
        seed: Seed of "permuted".

    Returns:
        A context manager; the model is restored on exit, even after an exception. In a call that continues
        from a cache, kernels whose rows are replaced there raise an UnsupportedModelError: `generate()` needs
        `use_cache=False`.

    Raises:
        ValueError: If `to` or the stack is unknown, `key` is missing or not needed, or a matrix has another
            shape, infinite numbers, negative ones for attention, or weight where a query may not read (when
            the model runs).
        IndexError: If the layer or head is out of range.
        UnsupportedModelError: If `to` is "uniform" or "permuted" for a kernel, whose rows share out nothing
            (a ValueError).

    Source: Jain and Wallace 2019, section 4.2.1 (permuted); Wiegreffe and Pinter 2019, section 3.2 (uniform).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> edited = trace.rerun(aw.edit_attention(trace, (0, 1), "one_hot", key=2))
        >>> edited.attention_layer(0)[1, :, 2].tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    stack, blocks = heads_of_blocks(model, stack)
    chosen = _named_heads(heads, blocks)
    if isinstance(to, str) and to not in KINDS:
        raise ValueError(f"to {to!r} is not one of {listed(KINDS)}, nor a matrix.{suggest(to, KINDS)}")
    one_hot = isinstance(to, str) and to == "one_hot"
    if (key is None) == one_hot:
        raise ValueError(
            "key is missing: to='one_hot' needs the token to read."
            if key is None
            else f"key is for to='one_hot', but to is {to if isinstance(to, str) else 'matrix'!r}."
        )
    kernels = list(_kernels_of(chosen, blocks))
    for layer, kernel, numbers in kernels:
        if isinstance(to, str) and to != "one_hot":
            raise UnsupportedModelError(
                f"to={to!r} deals out the weights of attention, which sum to one; those of layer {layer} "
                f"({kernel.kind}) are signed and need not: give a matrix, or to='one_hot'."
            )
        if not isinstance(to, str) and np.ndim(to) == _MAPS and list(chosen[layer]) != numbers:
            raise ValueError(
                f"heads of layer {layer} are of several mixers: give a matrix [query, key] for all, or name "
                "the heads of one."
            )
    queries = None if query is None else positions(query, "query", model, stack, 0)
    new_rows: NewRows
    if key is not None:
        column = min(positions(key, "key", model, stack, 1))
        new_rows, description = _OneHot(column), f"all on token {column}"
        run = RowEdit(queries, column=column)
    elif isinstance(to, str):
        new_rows, description = (_uniform if to == "uniform" else _Permuted(seed)), to
        run = None
    else:
        only_kernels = bool(kernels) and not any(
            blocks[layer].of_attention(numbers) for layer, numbers in chosen.items()
        )
        matrix = _checked_matrix(to, chosen, signed=only_kernels)
        new_rows, description = _Matrix(matrix), "set to a matrix"
        run = RowEdit(queries, matrix=matrix)
    where = "" if queries is None else f" at token{'s' * (len(queries) != 1)} {spoken(queries)}"
    description = f"{'rows' if kernels else 'attention'} of {describe_heads(chosen)}{where} {description}"
    return HeadIntervention(
        model,
        "edit_attention",
        description,
        stack,
        chosen,
        blocks=blocks,
        weigh=_Edit(new_rows, queries),
        run=run,
    )


def _named_heads(heads: Any, blocks: Mapping[int, BlockHeads]) -> dict[int, tuple[int, ...]]:
    """Return heads by layer; those of attention if none are named."""
    if heads is not None:
        return chosen_heads(heads, blocks, channels=True)
    attending = {layer: block.attention for layer, block in blocks.items() if block.attention is not None}
    if not attending:
        raise ValueError("heads is missing: this stack has no attention; name heads of its kernels.")
    return chosen_heads(None, attending)


@dataclass(frozen=True)
class _Edit:
    """Replaces attention rows; see `edit_attention`.

    Args:
        new_rows: Returns the new rows.
        queries: Positions of the rows, or None for all.
    """

    new_rows: NewRows
    queries: frozenset[int] | None

    def __call__(self, seen: Seen, weights: Tensor, heads: list[int]) -> Tensor:
        """Return weights [batch, head, query, key] with some rows of some heads replaced."""
        rows = seen.queries(self.queries)
        if not rows:
            return weights
        old = weights[:, heads][:, :, rows]
        # In some models a mask has a single row for all queries (LayoutLM), or for each head (Parakeet).
        readable = seen.readable.expand(weights.shape)[:, heads][:, :, rows]
        new = self.new_rows(seen, old, readable, rows)
        # A row that may read nothing (padding) is not changed.
        new = torch.where(readable.any(-1, keepdim=True), new, old)
        weights = weights.clone()
        for index, head in enumerate(heads):
            weights[:, head, rows] = new[:, index]
        return weights


def _uniform(_: Seen, old: Tensor, readable: Tensor, __: list[int]) -> Tensor:
    return (readable / readable.sum(-1, keepdim=True).clamp_min(1)).to(old)


@dataclass(frozen=True)
class _OneHot:
    column: int

    def __call__(self, seen: Seen, old: Tensor, readable: Tensor, _: list[int]) -> Tensor:
        columns = seen.keys(frozenset([self.column]))
        if not columns:
            return old
        new = torch.zeros_like(old)
        new[..., columns] = 1
        return torch.where(readable[..., columns], new, old)


@dataclass(frozen=True)
class _Permuted:
    seed: int

    def __call__(self, seen: Seen, old: Tensor, readable: Tensor, rows: list[int]) -> Tensor:
        # The seed depends on the position of a row, so that a cache does not change it.
        seeds = (1_000_003 * self.seed + 1_009 * seen.layer + seen.first_query + row for row in rows)
        size = old.shape[1], seen.first_key + old.shape[-1]
        draws = [torch.rand(size, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        noise = torch.stack([draw[:, seen.first_key :] for draw in draws], dim=1).to(old.device)
        return rearranged(old, readable, noise)


def rearranged(old: Tensor, readable: Tensor, noise: Tensor) -> Tensor:
    """Return rows [..., key] with their weights in the order of noise in [0, 1), on keys they may read."""
    last = torch.full_like(noise, 2.0)
    order = torch.where(readable, noise, last).argsort(dim=-1, stable=True)
    columns = torch.where(readable, torch.zeros_like(noise), last).argsort(dim=-1, stable=True)
    return torch.zeros_like(old).scatter(-1, columns, old.gather(-1, order))


@dataclass(frozen=True)
class _Matrix:
    matrix: Tensor

    def __call__(self, seen: Seen, old: Tensor, readable: Tensor, rows: list[int]) -> Tensor:
        new = old.clone()
        first, n_keys = seen.first_key, old.shape[-1]
        for index, row in enumerate(rows):
            position = seen.first_query + row
            if position >= self.matrix.shape[1]:
                continue
            line = torch.zeros(len(self.matrix), n_keys, dtype=old.dtype, device=old.device)
            part = self.matrix[:, position, first : first + n_keys].to(old)
            line[:, : part.shape[-1]] = part
            outside = self.matrix[:, position, first + n_keys :]
            refused = (line > 0) & ~readable[:, :, index].all(0)
            if bool(refused.any()) or bool((outside > 0).any()):
                key = first + int(refused.any(0).nonzero()[0]) if bool(refused.any()) else first + n_keys
                raise ValueError(
                    f"the matrix lets token {position} read token {key}, which this model does not allow."
                )
            new[:, :, index] = line.expand(old.shape[1], -1)
        return new


def _checked_matrix(matrix: Any, heads: Mapping[int, tuple[int, ...]], *, signed: bool) -> Tensor:
    """Return a matrix [head or 1, query, key] of finite weights, none negative unless they may be."""
    # A copy, because an array may be read-only or change later.
    weights = matrix.detach().clone() if isinstance(matrix, torch.Tensor) else torch.tensor(np.array(matrix))
    counts = {len(of_layer) for of_layer in heads.values() if of_layer}
    if weights.dim() == _MAP:
        weights = weights[None]
    if weights.dim() != _MAPS or (len(weights) > 1 and counts != {len(weights)}):
        raise ValueError(
            f"to has shape {tuple(np.shape(matrix))}; a matrix is [query, key], or "
            f"[head, query, key] for the {'/'.join(map(str, sorted(counts)))} heads chosen."
        )
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    if not bool(torch.isfinite(weights).all()) or (not signed and bool((weights < 0).any())):
        raise ValueError(
            "to contains infinite numbers."
            if signed
            else "to contains negative or infinite numbers; attention weights are 0 or more."
        )
    return weights


def suppress(
    model: Any,
    source: Any,
    target: Any = None,
    *,
    heads: Any = None,
    renormalize: bool = True,
    forget: bool = False,
    stack: str | None = None,
) -> Intervention:
    """Prevent some tokens from reading others while a `with` block runs.

    The scores of these pairs are masked before the softmax, so that their weight goes to the other tokens
    that the query reads; a query without any other token takes nothing. Indirect paths between two tokens
    (through a third token, in another layer) stay open, unless that token is a target as well.

    In blocks that mix tokens without a softmax (state-space models, delta rules, linear attention,
    recurrences, gated convolutions; `aw.mixing`) a source adds nothing to the targets, neither directly nor
    through a short convolution. The state still decays at the source, and a delta rule still erases there:
    `forget=True` lets the state pass the source unchanged. Gates, queries and keys of other tokens are not
    changed, though a short convolution may have mixed the source into them.

    Args:
        model: A transformers model, or a trace of it, which models with such blocks need.
        source: Positions of the tokens that are not read.
        target: Positions of the tokens that do not read them; None for all tokens after the first source.
        heads: Only in these heads; see `aw.ablate_heads`. None for all heads of all layers, and all channels.
            The number of a map that stands for all channels of a kernel may be named as well.
        renormalize: Whether the rest of a row of attention is scaled to sum to 1; else the sources' weights
            become zero and the rest is not changed, as always in kernels.
        forget: Whether kernels skip the sources, as if they were not there (step sizes, beta and log decay of
            zero), and with them the values of a short convolution there; by default decay remains.
        stack: Which attention, in models with several stacks ("encoder", "decoder", "cross").

    Returns:
        A context manager; the model is restored on exit, even after an exception. In a call that continues
        from a cache, kernels raise an UnsupportedModelError: `generate()` needs `use_cache=False` for them.

    Raises:
        ValueError: If a position is out of range, the stack is unknown, or `forget` has no effect.
        IndexError: If the layer or head is out of range.
        UnsupportedModelError: If a model without a trace has blocks without attention (a ValueError).

    Source: Bogdan et al. 2025, Thought Anchors, section 5 (of sentences, in all layers and heads); Geva et
    al. 2023, section 4 (attention knockout).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A moving and very funny film.")
        >>> suppressed = trace.rerun(aw.suppress(trace, source=2, target=[4, 5]))
        >>> suppressed.attention_layer(0)[:, 4, 2].max().item()
        0.0
    """
    require_known_kernels(model, "suppress")
    stack, blocks = heads_of_blocks(model, stack)
    chosen = chosen_heads(heads, blocks, channels=True)
    sources = positions(source, "source", model, stack, 1)
    targets = None if target is None else positions(target, "target", model, stack, 0)
    after = min(sources, default=0) if targets is None else None
    where = "" if heads is None else f" in {describe_heads(chosen)}"
    readers = "tokens after them" if targets is None else f"tokens {spoken(targets)}"
    description = f"tokens {spoken(sources)} not read by {readers}{where}"
    states = _layers_with_states(chosen, blocks)
    if forget and not states:
        raise ValueError(
            "forget=True has no effect here: nothing that was chosen keeps a state, which decays at a token. "
            "Leave it out."
        )
    if states:
        effect = "is not changed" if forget else "still decays"
        description += f"; the state of layer{'s' * (len(states) > 1)} {spoken(states)} {effect} there"
    return HeadIntervention(
        model,
        "suppress",
        description,
        stack,
        chosen if sources else {},
        blocks=blocks,
        weigh=_Suppression(sources, targets, after, renormalize),
        run=Suppression("suppress", sources, targets, after, forget),
    )


def _kernels_of(
    chosen: Mapping[int, Iterable[int]], blocks: Mapping[int, BlockHeads]
) -> Iterable[tuple[int, KernelModule, list[int]]]:
    """Yield the kernels that some heads are of: the layer, the kernel and its numbers."""
    for layer, numbers in chosen.items():
        for kernel in blocks[layer].kernels:
            of_kernel = [number for number in numbers if number in kernel.numbers]
            if of_kernel:
                yield layer, kernel, of_kernel


def _layers_with_states(chosen: Mapping[int, Iterable[int]], blocks: Mapping[int, BlockHeads]) -> list[int]:
    kernels = _kernels_of(chosen, blocks)
    return sorted({layer for layer, kernel, _ in kernels if not kernel.is_convolution})


def drop_tokens(model: Any, tokens: Any, *, stack: str | None = None) -> Intervention:
    """Prevent all other tokens from reading some tokens, in all layers and heads, while a `with` block runs.

    Equivalent to an attention mask that hides them, except for their rows, which no token reads (a model
    that pools over all tokens, or is read at one of them, still does). States of kernels pass them unchanged,
    as in `aw.suppress` with `forget=True`.

    Args:
        model: A transformers model, or a trace of it.
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
    require_known_kernels(model, "drop_tokens")
    stack, blocks = heads_of_blocks(model, stack)
    chosen = chosen_heads(None, blocks, channels=True)
    dropped = positions(tokens, "tokens", model, stack, 1)
    return HeadIntervention(
        model,
        "drop_tokens",
        f"tokens {spoken(dropped)} dropped",
        stack,
        chosen if dropped else {},
        blocks=blocks,
        weigh=_Suppression(dropped, None, None, renormalize=True),
        run=Suppression("drop_tokens", dropped, None, None, forget=True),
    )


@dataclass(frozen=True)
class _Suppression:
    """Suppresses attention; see `suppress` and `drop_tokens`.

    Args:
        sources: Positions of the tokens that are not read.
        targets: Positions of the tokens that do not read them; None for all.
        after: Only tokens after this position do not read them, or None.
        renormalize: Whether the rest of a row is scaled to sum to 1, a sink's share included.
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
        if seen.changed or seen.scored is None:
            total = rest.sum(-1, keepdim=True)
            if seen.scored is not None and seen.scored.settings.get("sink") is not None:
                # The sink's share grows as the keys' do.
                total = total + (1 - weights.sum(-1, keepdim=True)).clamp_min(0)
            new = rest / torch.where(total > 0, total, torch.ones_like(total))
        else:
            new = _masked_softmax(seen.scored, seen.readable, suppressed)
        return torch.where(suppressed.any(-1, keepdim=True), new, weights)


def _masked_softmax(scored: Scored, readable: Tensor, suppressed: Tensor) -> Tensor:
    """Return weights with some pairs masked before the softmax: exact even if the rest has little weight."""
    settings = dict(scored.settings)
    lowest = torch.finfo(scored.query.dtype).min
    hidden = torch.zeros(suppressed.shape, dtype=scored.query.dtype, device=suppressed.device)
    hidden = hidden.masked_fill(suppressed, lowest)[None]
    readable = readable & ~suppressed
    mask = settings.get("mask")
    settings["mask"] = (
        hidden if mask is None else torch.where(readable, mask, torch.full_like(hidden, lowest))
    )
    weights = attention_weights(scored.query, scored.key, **settings)
    # If nothing can be read, a softmax over the lowest numbers would be uniform.
    return weights.masked_fill(suppressed | ~readable.any(-1, keepdim=True), 0)
