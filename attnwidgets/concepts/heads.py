"""A classifier's head: its last linear map, its features, and the gradients of single texts' losses.

The head is the last `nn.Linear` whose output equals the logits in a pass of the model (`_head_of`). A hook on
it reads its input and output for every text (`read_head`). For models without such a map, `gradient_products`
computes the gradients of the tests' losses by some parameters, stores them, and multiplies them with the
gradients of the training texts one by one, so that memory is needed for the tests alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.targets.resolve import CLASSES, class_names, head_of
from attnwidgets.tracing.anatomy.block_names import block_names
from attnwidgets.tracing.free_memory import free_bytes, is_forced, spoken_bytes
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.concepts.batches import Inputs

    Float = NDArray[np.float64]

_PAIR = 2  # classes, whose logits enter the loss by their difference alone
_INSTEAD = "of='gradients' compares gradients instead and needs no such head."

_SHARE = 0.5  # of the free memory, for the tests' gradients


@dataclass(frozen=True)
class HeadReading:
    """Inputs and outputs of a head for texts, with its parameters.

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
    def theta(self) -> Float:
        """The head's parameters, bias last, in the layout of a refit [output, dim + 1].

        For two classes, the second less the first.
        """
        theta = np.concatenate([self.weight, self.bias[:, None]], axis=1)
        return theta[1:] - theta[:1] if len(theta) == _PAIR else theta


def read_head(inputs: Inputs, *, batch_size: int) -> HeadReading:
    """Run a classifier on texts and return the inputs and outputs of its head.

    Raises:
        UnsupportedModelError: If no linear map gives the logits (a ValueError).
    """
    name = _head_of(inputs)
    features: list[Any] = [None] * len(inputs.reads)
    logits: list[Any] = [None] * len(inputs.reads)
    with inputs.running(back=False, batch_size=batch_size, desc="features") as (twin, batches):
        head = twin.get_submodule(name)
        for batch in batches:
            calls: list[tuple[Tensor, Tensor]] = []
            handle = head.register_forward_hook(
                lambda _, args, out, calls=calls: calls.append((args[0], out))
            )
            try:
                classified = head_of(batch.call())
            finally:
                handle.remove()
            states, out = calls[-1]
            for row, read in enumerate(batch.reads):
                state = states[row]
                if state.dim() > 1:  # a head on every token, of which the model takes a single token's
                    state = state[int((out[row] - classified[row]).abs().sum(-1).argmin())]
                features[read.index] = state.double().cpu().numpy()
                logits[read.index] = classified[row].double().cpu().numpy()
    module: Any = inputs.model.get_submodule(name)
    weight = module.weight.detach().double().cpu().numpy()
    bias = np.zeros(len(weight)) if module.bias is None else module.bias.detach().double().cpu().numpy()
    classes = class_names(inputs.first) if len(weight) > 1 else ()
    return HeadReading(np.stack(features), np.stack(logits), weight, bias, classes)


def predicted_classes(inputs: Inputs, *, batch_size: int) -> Float:
    """Return the index of the class with the largest logit [text], of any classifier."""
    classes = np.zeros(len(inputs.reads))
    with inputs.running(back=False, batch_size=batch_size, desc="predictions") as (_, batches):
        for batch in batches:
            best = head_of(batch.call()).argmax(-1).cpu().numpy()
            classes[[read.index for read in batch.reads]] = best
    return classes


def _head_of(inputs: Inputs) -> str:
    """Return the name of the linear map whose output is the logits."""
    logits = inputs.first.logits
    model = type(inputs.model).__name__
    if logits is None or logits.dim() != CLASSES:
        raise UnsupportedModelError(
            f"{inputs.purpose}: {model} predicts no classes, so it has no head to fit. {_INSTEAD}"
        )
    result: list[str] = []
    with borrowed(inputs.model) as twin:
        handles = []
        for name, module in named_modules(twin).items():
            if isinstance(module, nn.Linear) and module.out_features == len(logits):

                def compare(_: nn.Module, __: Any, out: Tensor, name: str = name) -> None:
                    rows = out.detach().reshape(-1, out.shape[-1]).cpu().float()
                    if bool(
                        (rows - logits.float()).abs().max(-1).values.min() < 1e-4 * (1 + logits.abs().max())
                    ):
                        result.append(name)

                handles.append(module.register_forward_hook(compare))
        try:
            twin(**inputs.first.inputs)
        finally:
            for handle in handles:
                handle.remove()
    if not result:
        raise UnsupportedModelError(
            f"{inputs.purpose}: no linear map of {model} gives its logits. {_INSTEAD}"
        )
    return result[-1]


def labels_of(given: Any, texts: Sequence[Any], classes: Sequence[str], purpose: str, name: str) -> Float:
    """Return labels as indices of classes [text], or as numbers for a regression.

    Args:
        given: Labels, names or indices; None takes `.label` of the texts.
        texts: The texts.
        classes: Names of the classes; () for a regression.
        purpose: The function, for messages.
        name: The argument.

    Raises:
        ValueError: If a text has no label, their numbers differ, or a label is unknown.
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
    folded = {str(class_name).casefold(): number for number, class_name in enumerate(classes)}
    numbers = []
    for at, label in enumerate(labels):
        if isinstance(label, str):
            number = folded.get(label.casefold())
        else:
            number = int(label) if int(label) == label else None  # 0.7 is not an index
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
    """Return the loss of a text: cross-entropy, or half the squared error."""
    if regression:
        return 0.5 * (logits.reshape(-1)[0] - label) ** 2
    return -torch.log_softmax(logits.float(), -1)[..., int(label)].sum()


def parameter_names(inputs: Inputs, modules: Sequence[str] | None) -> list[str]:
    """Return the names of the parameters whose gradients are compared, those in the modules `modules`.

    By default they are the parameters of the last block, and of all modules that are neither a block nor an
    embedding, such as the final norm and the head.

    Raises:
        ValueError: If a name is not a module or parameter of the model.
    """
    names = [name for name, parameter in inputs.model.named_parameters() if parameter.is_floating_point()]
    if modules is None:
        blocks = [block for stack in block_names(inputs.first, inputs.model).values() for block in stack]
        tables = {
            name
            for name, layer in named_modules(inputs.model).items()
            if isinstance(layer, nn.Embedding) or "embed" in name
        }
        last = blocks[-1:]
        excluded = [*blocks[:-1], *tables]
        modules = [*last, *(name for name in names if not _inside(name, [*excluded, *last]))]
    chosen = [name for name in names if _inside(name, modules)]
    for module in modules:
        if not any(_inside(name, [module]) for name in names):
            available = [name for name in named_modules(inputs.model) if name]
            raise ValueError(
                f"{inputs.purpose}: parameters names {module!r}, which is not a module or "
                f"parameter.{suggest(module, available)}"
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
    test_gradients: list[Any] = [None] * len(tests.reads)
    for index, gradient, _ in _gradients(tests, test_labels, names):
        test_gradients[index] = gradient
    stacked = torch.stack(test_gradients)
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
    parameters = dict(inputs.model.named_parameters())
    free = {name: nn.Parameter(parameters[name].detach().float(), requires_grad=True) for name in names}
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
            result = torch.autograd.grad(loss, list(free.values()), allow_unused=True, materialize_grads=True)
            yield (
                index,
                torch.cat([gradient.reshape(-1) for gradient in result]).detach(),
                float(loss.detach()),
            )
