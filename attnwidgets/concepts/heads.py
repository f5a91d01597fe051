"""A classifier's head: its last linear map, what that reads of every text, and the labels of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.targets.resolve import CLASSES, class_names, head_of
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.concepts.batches import Inputs

    Float = NDArray[np.float64]

_PAIR = 2  # logits of two classes, which one number tells apart
_INSTEAD = "of='gradients' compares gradients instead and needs no such head."


@dataclass(frozen=True)
class HeadReading:
    """What a head reads and says of texts.

    Attributes:
        features: Its input [text, dim].
        logits: Its output [text, class].
        weight: Its matrix [class, dim].
        bias: [class].
        classes: Names of the classes; () for a regression.
    """

    features: Float
    logits: Float
    weight: Float
    bias: Float
    classes: tuple[str, ...]

    @property
    def own(self) -> Float:
        """The head's own parameters, bias last, as a refit has them [output, dim + 1].

        For two classes, the second less the first.
        """
        theta = np.concatenate([self.weight, self.bias[:, None]], axis=1)
        return theta[1:] - theta[:1] if len(theta) == _PAIR else theta


def read_head(inputs: Inputs, *, batch_size: int) -> HeadReading:
    """Run a classifier on texts and return what its head reads.

    Raises:
        UnsupportedModelError: If no linear map gives the logits (a ValueError).
    """
    name = _head_of(inputs)
    features: list[Any] = [None] * len(inputs.reads)
    logits: list[Any] = [None] * len(inputs.reads)
    with inputs.running(back=False, batch_size=batch_size, desc="features") as (twin, batches):
        head = twin.get_submodule(name)
        for batch in batches:
            kept: list[tuple[Tensor, Tensor]] = []
            handle = head.register_forward_hook(lambda _, args, out, kept=kept: kept.append((args[0], out)))
            try:
                said = head_of(batch.call())
            finally:
                handle.remove()
            states, out = kept[-1]
            for row, read in enumerate(batch.reads):
                own = states[row]
                if own.dim() > 1:  # a head on every token, of which the model takes one
                    own = own[int((out[row] - said[row]).abs().sum(-1).argmin())]
                features[read.index] = own.double().cpu().numpy()
                logits[read.index] = said[row].double().cpu().numpy()
    module: Any = inputs.model.get_submodule(name)
    weight = module.weight.detach().double().cpu().numpy()
    bias = np.zeros(len(weight)) if module.bias is None else module.bias.detach().double().cpu().numpy()
    classes = class_names(inputs.first) if len(weight) > 1 else ()
    return HeadReading(np.stack(features), np.stack(logits), weight, bias, classes)


def _head_of(inputs: Inputs) -> str:
    """Return the name of the linear map whose output are the logits."""
    logits = inputs.first.logits
    what = type(inputs.model).__name__
    if logits is None or logits.dim() != CLASSES:
        raise UnsupportedModelError(
            f"{inputs.purpose}: {what} predicts no classes, so it has no head to fit. {_INSTEAD}"
        )
    found: list[str] = []
    with borrowed(inputs.model) as twin:
        handles = []
        for name, module in twin.named_modules():
            if isinstance(module, nn.Linear) and module.out_features == len(logits):

                def keep(_: nn.Module, __: Any, out: Tensor, name: str = name) -> None:
                    rows = out.detach().reshape(-1, out.shape[-1]).cpu().float()
                    if bool(
                        (rows - logits.float()).abs().max(-1).values.min() < 1e-4 * (1 + logits.abs().max())
                    ):
                        found.append(name)

                handles.append(module.register_forward_hook(keep))
        try:
            twin(**inputs.first.inputs)
        finally:
            for handle in handles:
                handle.remove()
    if not found:
        raise UnsupportedModelError(f"{inputs.purpose}: no linear map of {what} gives its logits. {_INSTEAD}")
    return found[-1]


def labels_of(given: Any, texts: Sequence[Any], classes: Sequence[str], purpose: str, name: str) -> Float:
    """Return labels as indices of classes [text], or as numbers for a regression.

    Args:
        given: Labels, names or indices; None takes `.label` of the texts.
        texts: The texts.
        classes: Names of the classes; () for a regression.
        purpose: The function, for messages.
        name: The argument.

    Raises:
        ValueError: If there is not one label for every text, or one is unknown.
    """
    labels: list[Any] = [getattr(text, "label", None) for text in texts] if given is None else list(given)
    if len(labels) != len(texts):
        raise ValueError(f"{purpose}: {name} has {len(labels)} labels, and there are {len(texts)} texts.")
    if missing := [at for at, label in enumerate(labels) if label is None or label != label]:  # noqa: PLR0124 - NaN
        which = f"text {missing[0]}" if given is None else f"{name}[{missing[0]}]"
        raise ValueError(
            f"{purpose}: {which} has no label ({len(missing)} of {len(labels)} have none); give {name}=[...] "
            "with one for every text, or leave these texts out."
        )
    if not classes:
        return np.array(labels, dtype=np.float64)
    folded = {str(known).casefold(): number for number, known in enumerate(classes)}
    numbers = []
    for at, label in enumerate(labels):
        number = folded.get(label.casefold()) if isinstance(label, str) else int(label)
        if number is None or not 0 <= number < len(classes):
            raise ValueError(
                f"{purpose}: {name}[{at}] is {label!r}; the classes are "
                f"{listed(classes)}.{suggest(str(label), classes)}"
            )
        numbers.append(number)
    return np.array(numbers, dtype=np.float64)


def one_logit(logits: Tensor) -> Tensor:
    """Return the loss-relevant outputs: of two classes the second less the first."""
    return logits[..., 1:] - logits[..., :1] if logits.shape[-1] == _PAIR else logits


def softmax_loss(logits: Tensor, label: float, *, regression: bool) -> Tensor:
    """Return the loss of one text: cross-entropy, or half the squared error."""
    if regression:
        return 0.5 * (logits.reshape(-1)[0] - label) ** 2
    return -torch.log_softmax(logits.float(), -1)[..., int(label)].sum()
