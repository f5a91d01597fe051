"""A model that reads a text's embeddings with something added, for the length of a `with` block."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn


@contextmanager
def perturbed(model: nn.Module, ids: Tensor, noise: Tensor) -> Iterator[None]:
    """Add `noise` [token, dim] to the embeddings of the text `ids` [token], whatever runs the model here.

    The embeddings' own `forward` is wrapped, so that a method that reads, replaces or differentiates what
    they return meets the changed ones. Other texts, threads and tasks read what they ever did; everything is
    undone at the end.
    """
    from attnwidgets.tracing.block_names import word_embeddings
    from attnwidgets.tracing.recording.borrow import held, unwrap
    from attnwidgets.tracing.recording.call_scope import own_calls, own_method

    inner = unwrap(model)
    twin = held(inner)
    with own_calls() as own, ExitStack() as exits:
        for module in (*word_embeddings(inner), *(() if twin is None else word_embeddings(twin))):
            wrap = partial(partial, _added, ids, noise)
            exits.enter_context(own_method(module, "forward", wrap, own))
        yield


def _added(
    ids: Tensor, noise: Tensor, read: Callable[..., Tensor], given: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """Return what an embedding reads for `given`, with the noise where that is the text."""
    import torch

    found = read(given, *args, **kwargs)
    if given.shape[-1] != len(ids) or not torch.equal(given, ids.to(given.device).expand_as(given)):
        return found
    return found + noise.to(found)
