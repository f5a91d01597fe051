"""Add noise to the embeddings of one text for the length of a `with` block."""

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

    The embeddings' own `forward` is wrapped, so that methods that read, replace or differentiate its output
    meet the changed embeddings. Other texts, threads and tasks are not affected; everything is undone at the
    end.
    """
    from attnwidgets.tracing.anatomy.block_names import word_embeddings
    from attnwidgets.tracing.recording.borrow import held, unwrap
    from attnwidgets.tracing.recording.call_scope import own_calls, own_method

    inner = unwrap(model)
    twin = held(inner)
    with own_calls() as calls, ExitStack() as exits:
        for module in (*word_embeddings(inner), *(() if twin is None else word_embeddings(twin))):
            wrap = partial(partial, _with_noise, ids, noise)
            exits.enter_context(own_method(module, "forward", wrap, calls))
        yield


def _with_noise(
    ids: Tensor, noise: Tensor, embed: Callable[..., Tensor], given: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """Return the embeddings of `given`, with the noise if that is the text."""
    import torch

    embeddings = embed(given, *args, **kwargs)
    if given.shape[-1] != len(ids) or not torch.equal(given, ids.to(given.device).expand_as(given)):
        return embeddings
    return embeddings + noise.to(embeddings)
