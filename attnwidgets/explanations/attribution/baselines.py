"""Baselines: embeddings that stand for missing information."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import require_choice, suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.targets.resolve import token_id, tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from attnwidgets.tracing.trace import Trace

NAMES = ("pad", "mask", "mean", "zero")
"""Named baselines: the embedding of the padding token or of the mask token, the mean of all, or zeros."""

_IDS_AT_ONCE = 4096

_reads_baselines: ContextVar[bool] = ContextVar("reads baselines", default=False)


@contextmanager
def reading_baselines() -> Iterator[None]:
    """Mark the embeddings that are read meanwhile as baselines: changes of the text's own are not theirs."""
    before = _reads_baselines.set(True)
    try:
        yield
    finally:
        _reads_baselines.reset(before)


def are_baselines_read() -> bool:
    """Return whether embeddings are read as baselines here."""
    return _reads_baselines.get()


@reading_baselines()
def baseline_embeddings(
    trace: Trace, model: nn.Module, embeddings: Tensor, baseline: Any, method: str
) -> tuple[Tensor, str]:
    """Return a baseline [token, dim] for embeddings [token, dim], and its name.

    Args:
        trace: The trace.
        model: Its model, borrowed.
        embeddings: The embeddings of the text's tokens.
        baseline: A name in `NAMES`, a token by its string or id, numbers [dim] or [token, dim], or None: the
            padding token, else the mask, else the mean; zero for a module of `aw.trace_module`.
        method: The method's name, for messages.

    Raises:
        ValueError: If the baseline is unknown, or numbers have another shape.
    """
    import torch

    from attnwidgets.tracing.module_trace import ModuleTrace

    is_module = isinstance(trace, ModuleTrace)
    table = _table(model) if is_module else word_table(trace, model)
    if baseline is None:
        baseline = next((name for name in ("pad", "mask") if _special(trace, name) is not None), "mean")
        # The inputs of a module are of different kinds, and have no mean.
        without_words = "zero" if is_module else "mean"
        baseline = baseline if table is not None else without_words
    if isinstance(baseline, str) and baseline in NAMES:
        return _named(trace, table, embeddings, baseline, method), baseline
    is_number = hasattr(baseline, "__index__") and not isinstance(baseline, bool)
    if isinstance(baseline, str) or (is_number and not hasattr(baseline, "shape")):
        index = _token(trace, baseline) if isinstance(baseline, str) else int(baseline)
        return _row(table, index, embeddings, method), f"token {baseline!r}"
    values = torch.as_tensor(baseline, dtype=embeddings.dtype, device=embeddings.device)
    if values.shape not in (embeddings.shape, embeddings.shape[1:]):
        raise ValueError(
            f"baseline has shape {tuple(values.shape)}; accepted shapes are [dim] and [token, dim], here "
            f"({embeddings.shape[1]},) and {tuple(embeddings.shape)}."
        )
    return values.expand_as(embeddings), "given"


def word_table(trace: Trace, model: nn.Module) -> Any:
    """Return the table of a model's word embeddings; None if the trace's input is not words."""
    return _table(model) if any(name.endswith("input_ids") for name in trace.inputs) else None


def _token(trace: Trace, baseline: str) -> int:
    if tokenizer_of(trace) is None:
        require_choice("baseline", baseline, NAMES)
    try:
        return token_id(trace, baseline, "baseline")
    except ValueError as error:
        raise ValueError(
            f"baseline {baseline!r} is neither one of {listed(NAMES)} nor one token of this model."
            f"{suggest(baseline, NAMES)}"
        ) from error


def _named(trace: Trace, table: nn.Module | None, embeddings: Tensor, name: str, method: str) -> Tensor:
    import torch

    if name == "zero":
        return torch.zeros_like(embeddings)
    if name == "mean":
        mean = embeddings.mean(0) if table is None else _mean(table, embeddings)
        return mean.expand_as(embeddings)
    index = _special(trace, name)
    if index is None:
        raise ValueError(
            f"baseline {name!r}: this model's tokenizer has no {name} token; pass 'mean', 'zero', a token "
            "by its string or id, or numbers."
        )
    return _row(table, index, embeddings, method)


def _table(model: nn.Module) -> Any:
    """Return the largest table of word embeddings, or None if the model reads no words."""
    from attnwidgets.tracing.anatomy.block_names import word_embeddings

    tables = word_embeddings(model)
    return max(tables, key=lambda table: int(getattr(table, "num_embeddings", 0)), default=None)


def _special(trace: Trace, name: str) -> int | None:
    for holder in (tokenizer_of(trace), getattr(trace.model, "config", None)):
        index = getattr(holder, f"{name}_token_id", None)
        if isinstance(index, int) and index >= 0:
            return index
    return None


def _rows(table: Any, ids: Tensor, like: Tensor) -> Tensor:
    # On the device of the embeddings: an offloaded table is on none.
    return table(ids.to(like.device).unsqueeze(0))[0].detach().to(like)


def _row(table: Any, index: int, embeddings: Tensor, method: str) -> Tensor:
    import torch

    if table is None:
        raise ValueError(
            f"{method}: this model reads no tokens, so a token cannot be the baseline; pass 'mean' or 'zero'."
        )
    if not 0 <= index < table.num_embeddings:
        raise ValueError(
            f"baseline {index} is out of range: the token ids are 0 to {table.num_embeddings - 1}."
        )
    return _rows(table, torch.tensor([index]), embeddings).expand_as(embeddings)


def _mean(table: Any, like: Tensor) -> Tensor:
    import torch

    count = table.num_embeddings
    total = torch.zeros(like.shape[-1], dtype=torch.float64)
    for ids in torch.arange(count).split(_IDS_AT_ONCE):
        total += _rows(table, ids, like).double().cpu().sum(0)
    return (total / count).to(like)
