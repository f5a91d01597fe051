"""A user's own model behind given attention: a function that runs it with other attention or fewer tokens.

Methods that only need outputs for changed attention and for removed tokens work on any model so, as on a
recurrent one. It is not a trace's `model`: it has no modules to hook and no embeddings to reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.anatomy.answer import answer_of
from attnwidgets.tracing.predictions import predict

if TYPE_CHECKING:
    from attnwidgets.tracing.from_attentions import GivenTrace

Rerun = Callable[[Tensor | None, Tensor | None], Any]

_CLOSE = 1e-3  # relative difference of logits with the given attention and with the model's own
_CLASSES, _TOKENS = 1, 2


class GivenModel(nn.Module):
    """A user's model of one input, as a function of its attention and of the tokens that stay.

    Args:
        rerun: The user's function.
        weights: The given attention [layer, head, query, key].
    """

    def __init__(self, rerun: Rerun, weights: Tensor) -> None:
        super().__init__()
        self._rerun, self.weights = rerun, weights
        self._shape: tuple[int, ...] | None = None

    def answer(self, weights: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """Return logits [class] or [token, vocabulary], with other attention or without some tokens.

        Args:
            weights: Attention to use [layer, head, query, key]; None for the model's own.
            kept: 1 for a token that stays, 0 for one that is removed [key]; None for all.

        Raises:
            TypeError: If what the function returns is not a tensor of floats.
            ValueError: If it has another shape than the answer to the whole input, or is not finite.
        """
        logits = self._rerun(weights, kept)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            raise TypeError(
                f"rerun returned a {type(logits).__name__}; return logits as a torch tensor of floats, "
                "[class] or [token, vocabulary]."
            )
        if logits.dim() not in (_CLASSES, _TOKENS) or not logits.numel():
            raise ValueError(
                f"rerun returned logits of shape {tuple(logits.shape)}; return them for this one input, "
                "[class] or [token, vocabulary]."
            )
        if self._shape not in (None, tuple(logits.shape)):
            raise ValueError(
                f"rerun returned logits of shape {tuple(logits.shape)}, and {self._shape} for the whole "
                "input; the answer has to keep its shape."
            )
        if not bool(torch.isfinite(logits).all()):
            raise ValueError(
                "rerun returned logits that are not finite; look for 0/0 where tokens are removed."
            )
        self._shape = tuple(logits.shape)
        return logits

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> SimpleNamespace:
        """Return the logits of inputs with tokens removed [variant, ...], as removal asks for them.

        Args:
            input_ids: Numbers from 1 of the tokens that stay, and 0 for padding [variant, token].
            attention_mask: 0 where a token stays in place, and nothing attends to it [variant, token].
        """
        rows = zip(input_ids, attention_mask.bool(), strict=True)
        return SimpleNamespace(logits=torch.stack([self._without(ids, mask) for ids, mask in rows]))

    def _without(self, ids: Tensor, mask: Tensor) -> Tensor:
        n_keys = self.weights.shape[-1]
        there = torch.zeros(n_keys + 1, dtype=torch.bool)
        there[ids] = True
        kept = there[1:]
        if not bool(kept.all()):
            return self.answer(None, kept.to(self.weights.dtype))
        if bool(mask.all()):
            return self.answer()
        left = self.weights * mask
        return self.answer(left / left.sum(-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny))


def with_rerun(trace: GivenTrace, rerun: Rerun, classes: Sequence[str] | None) -> GivenTrace:
    """Give a trace of given attention the function that runs its model again, and what it predicts.

    Raises:
        TypeError: If `rerun` is not a function, or returns no tensor.
        ValueError: If there is attention of several stacks, or layers differ in heads; if the given attention
            does not lead to the model's own logits; or if `classes` does not fit them.
    """
    if not callable(rerun):
        raise TypeError(f"rerun must be a function of weights and kept tokens, not {type(rerun).__name__}.")
    if len(trace.stacks) > 1:
        raise ValueError(f"rerun takes attention of one stack, and this has {', '.join(trace.stacks)}.")
    layers = [torch.as_tensor(trace.attention_layer(number)) for number in trace.layers()]
    if len({layer.shape for layer in layers}) > 1:
        raise ValueError("rerun needs layers with equal numbers of heads: [layer, head, query, key].")
    model = GivenModel(rerun, torch.stack(layers))
    with no_grad():
        logits = model.answer().detach().float().cpu()
        given = model.answer(model.weights).detach().float().cpu()
    if not float((logits - given).norm()) <= _CLOSE * max(float(logits.norm()), 1.0):
        far = float((logits - given).abs().max())
        raise ValueError(
            f"rerun(weights, None) with the attention that is given differs from rerun(None, None) by up to "
            f"{far:.2g} in the logits: let it use `weights` in the place of the model's own, and give what "
            "the model attends to (in evaluation, without dropout)."
        )
    names = tuple(map(str, classes or ()))
    if names and len(names) != logits.shape[-1]:
        raise ValueError(f"classes has {len(names)} names, and rerun returns {logits.shape[-1]} logits.")
    n_keys = len(trace.axes()[1])
    trace.reruns, trace.logits = model, logits
    trace.inputs = {
        "input_ids": torch.arange(1, n_keys + 1)[None],
        "attention_mask": torch.ones(1, n_keys, dtype=torch.long),
    }
    if logits.dim() == _CLASSES:
        trace.output_names = names
        named = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(names))))
        trace.answer = answer_of(named, logits, None, None, generates=False)
        trace.predicted = predict(trace.answer, logits, None, None)
    return trace
