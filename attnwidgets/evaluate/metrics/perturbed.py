"""A model that reads a text's embeddings with something added, for the length of a `with` block."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

_MISSING = object()


@contextmanager
def perturbed(model: nn.Module, ids: Tensor, noise: Tensor) -> Iterator[None]:
    """Add `noise` [token, dim] to the embeddings of the text `ids` [token], whatever runs the model.

    The embeddings' own `forward` is wrapped, so that a method that reads, replaces or differentiates what
    they return meets the changed ones. Other texts are read as ever; everything is undone at the end.
    """
    import torch

    from attnwidgets.tracing.places import word_embeddings
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap

    def added(module: Any) -> Callable[..., Tensor]:
        read = module.forward

        def forward(given: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            found: Tensor = read(given, *args, **kwargs)
            if given.shape[-1] != len(ids) or not torch.equal(given, ids.to(given.device).expand_as(given)):
                return found
            return found + noise.to(found)

        return forward

    with borrowed(unwrap(model)), ExitStack() as stack:
        for module in word_embeddings(unwrap(model)):
            before = vars(module).get("forward", _MISSING)
            stack.callback(_put_back, module, before)
            vars(module)["forward"] = added(module)
        yield


def _put_back(module: nn.Module, before: Any) -> None:
    if before is _MISSING:
        vars(module).pop("forward", None)
    else:
        vars(module)["forward"] = before
