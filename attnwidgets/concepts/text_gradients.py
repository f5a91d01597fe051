"""Gradients of single texts' losses by a model's parameters, and their products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from attnwidgets._errors import suggest
from attnwidgets.concepts.heads import softmax_loss
from attnwidgets.explanations.targets.resolve import CLASSES, head_of
from attnwidgets.tracing.anatomy.block_names import block_names
from attnwidgets.tracing.free_memory import free_bytes, is_forced, spoken_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.concepts.batches import Inputs

    Float = NDArray[np.float64]

_SHARE = 0.5  # of the free memory, for the tests' gradients


def parameter_names(inputs: Inputs, given: Sequence[str] | None) -> list[str]:
    """Return the parameters whose gradients are compared: those of modules or parameters that were named.

    By default those that are used after the last but one block: of the last block, and of all that is no
    block and no embedding.

    Raises:
        ValueError: If a name is not a module or parameter of the model.
    """
    known = [name for name, parameter in inputs.model.named_parameters() if parameter.is_floating_point()]
    if given is None:
        blocks = [block for names in block_names(inputs.first, inputs.model).values() for block in names]
        tables = {
            name
            for name, module in inputs.model.named_modules()
            if isinstance(module, nn.Embedding) or "embed" in name
        }
        last = blocks[-1:]
        others = [*blocks[:-1], *tables]
        given = [*last, *(name for name in known if not _inside(name, [*others, *last]))]
    chosen = [name for name in known if _inside(name, given)]
    for each in given:
        if not any(_inside(name, [each]) for name in known):
            modules = [name for name, _ in inputs.model.named_modules() if name]
            raise ValueError(
                f"{inputs.purpose}: parameters names {each!r}, which is not a module or "
                f"parameter.{suggest(each, modules)}"
            )
    return chosen


def _inside(name: str, modules: Sequence[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def gradient_products(
    train: Inputs, tests: Inputs, train_labels: Float, test_labels: Float, names: Sequence[str]
) -> dict[str, Float]:
    """Return products of the gradients of every test's loss with those of every training text's.

    Args:
        train: The training texts.
        tests: The tests, of the same model.
        train_labels: Indices of classes [train]; not read for language models.
        test_labels: The same [test].
        names: Names of the parameters.

    Returns:
        "products" [test, train], and "train" and "tests", the squared lengths.

    Raises:
        ValueError: If the gradients of the tests do not fit in memory.
    """
    count = sum(dict(train.model.named_parameters())[name].numel() for name in names)
    need, free = 4 * count * len(tests.reads), free_bytes()
    if free is not None and need > _SHARE * free and not is_forced():
        raise ValueError(
            f"{train.purpose}: the gradients of {len(tests.reads)} tests by {count:,} parameters take "
            f"{spoken_bytes(need)}, and {spoken_bytes(free)} are free; take fewer tests, or name fewer "
            "parameters=."
        )
    kept: list[Any] = [None] * len(tests.reads)
    for index, gradient, _ in _gradients(tests, test_labels, names):
        kept[index] = gradient
    stacked = torch.stack(kept)
    products = np.zeros((len(tests.reads), len(train.reads)))
    lengths, losses = np.zeros(len(train.reads)), np.zeros(len(train.reads))
    for index, gradient, loss in _gradients(train, train_labels, names):
        products[:, index] = (stacked @ gradient).double().cpu().numpy()
        lengths[index], losses[index] = float(gradient.double().square().sum()), loss
    return {
        "products": products,
        "train": lengths,
        "tests": stacked.double().square().sum(1).cpu().numpy(),
        "losses": losses,
    }


def _gradients(inputs: Inputs, labels: Float, names: Sequence[str]) -> Iterator[tuple[int, Tensor, float]]:
    """Yield number, gradient [parameter] and loss of every text."""
    own = dict(inputs.model.named_parameters())
    free = {name: nn.Parameter(own[name].detach().float(), requires_grad=True) for name in names}
    logits = inputs.first.logits
    tokens = logits is not None and logits.dim() != CLASSES
    regression = logits is not None and len(logits) == 1
    running = inputs.running(back=True, batch_size=1, desc="gradients", parameters=free)
    with running as (_, batches):
        for batch in batches:
            out = head_of(batch.call())
            index = batch.reads[0].index
            if tokens:
                ids = batch.inputs["input_ids"][0]
                loss = torch.nn.functional.cross_entropy(out[0, :-1].float(), ids[1:])
            else:
                loss = softmax_loss(out[0], float(labels[index]), regression=regression)
            found = torch.autograd.grad(loss, list(free.values()), allow_unused=True, materialize_grads=True)
            yield index, torch.cat([each.reshape(-1) for each in found]).detach(), float(loss.detach())
