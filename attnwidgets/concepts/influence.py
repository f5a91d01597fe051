"""aw.concepts.influence: the influence of every training text on a model's loss for other texts.

Texts are run through the model once, to read the inputs of its classifier's last linear map (`heads.py`). The
map is fitted again to these (`refit.py`), so that the gradients and the Hessian at the minimum are exact, and
influence is a product of the two. For models without such a map, gradients of single losses are compared
(`_by_gradients`). Labels are numbers inside, and names again in the result (`influence_result.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice, suggests_keywords
from attnwidgets._former import former_keywords
from attnwidgets.concepts.batches import Inputs, texts_of
from attnwidgets.concepts.heads import (
    gradient_products,
    labels_of,
    parameter_names,
    predicted_classes,
    read_head,
)
from attnwidgets.concepts.influence_result import Influence
from attnwidgets.concepts.refit import Refit, require_room, with_ones
from attnwidgets.concepts.states import BATCH
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.explanations.targets.resolve import CLASSES, class_names
from attnwidgets.tracing.free_memory import forced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.concepts.heads import HeadReading
    from attnwidgets.concepts.refit import Kind, Measure

    Float = NDArray[np.float64]

PURPOSE = "concepts.influence"
_FEW = 10  # training texts below which a head is mostly its penalty
_TWO = 2  # classes, which share an output


@dataclass(frozen=True, kw_only=True)
class HeadRefit:
    """Influence on a classifier's head: its last linear map, fitted again to its inputs.

    Args:
        l2: Penalty of the head, above 0.
        measure: The influenced quantity: the test's "loss", or its "margin" (logit of its label less the
            largest other), whose fall is harmful; of a regression the output, whose rise is positive.
        correct_leverage: Take `.change`, the estimate for leaving a text out, from a Newton step without the
            text instead of -values / n, which is too small for texts of high leverage.

    Raises:
        ValueError: If `l2` is not positive (separable data then has no minimum), or the measure is unknown.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> train, tests = aw.demo_texts("train")[:40], aw.demo_texts("test")[:2]
        >>> of = aw.concepts.HeadRefit(l2=0.1, measure="margin")
        >>> aw.concepts.influence(model, tokenizer, train, tests, of=of).shape
        (2, 40)
    """

    l2: float = 0.01
    measure: Measure = "loss"
    correct_leverage: bool = True

    def __post_init__(self) -> None:
        require_choice("measure", self.measure, ("loss", "margin"))
        if not self.l2 > 0:
            raise ValueError(
                f"l2 is {self.l2}; without a penalty separable data has no minimum. Take an l2 above 0."
            )


@dataclass(frozen=True)
class LossGradients:
    """Influence on a model's parameters: gradients of single losses are compared.

    Args:
        parameters: Names of modules or parameters; by default the last block and all modules after it.

    Example:
        >>> aw.concepts.LossGradients(["classifier"])
        LossGradients(parameters=['classifier'])
    """

    parameters: Sequence[str] | None = None


def _former(
    of: Any = "head", *, parameters: Sequence[str] | None = None, **options: Any
) -> HeadRefit | LossGradients:
    """Return `of` with its former keywords; those of the other kind were not read."""
    if of != "gradients":
        return HeadRefit(**options)
    if (measure := options.get("measure", "loss")) != "loss":
        raise ValueError(
            f"measure={measure!r} is for of='head'; of='gradients' compares gradients of the loss."
        )
    return LossGradients(parameters)


@former_keywords(
    ("l2", "measure", "correct_leverage", "parameters"),
    "of",
    "aw.concepts.HeadRefit(...) or aw.concepts.LossGradients(...)",
    _former,
    also=("of",),
)
@suggests_keywords
def influence(
    model: Any,
    tokenizer: Any,
    train: Sequence[Any],
    tests: Sequence[Any],
    *,
    labels: Sequence[Any] | None = None,
    test_labels: Sequence[Any] | None = None,
    of: Literal["head", "gradients"] | HeadRefit | LossGradients = "head",
    normalize: bool = False,
    batch_size: int = BATCH,
    force: bool = False,
) -> Influence:
    """Return the influence of training texts on the loss of other texts: which helped, and which harmed.

    of="head" is exact: the classifier's last linear map is fitted again to its inputs for the training
    texts, with mean(loss) + l2 / 2 |theta|^2 (bias penalised, a single logit for two classes), and at its
    minimum

        values = - gradient of the test's loss . H^-1 gradient of the training text's loss

    with H the Hessian. It explains this head: `.agreement` says how often the head predicts the model's
    class. Effects of the training texts on the layers below are not included.

    of="gradients" compares the gradients of single losses by the model's parameters (TracIn at its last
    checkpoint): -values is their product, or with `normalize` their cosine. It follows leaving texts out far
    less closely, and is for models without such a head, as language models, which need no labels.

    Positive values are harmful: more of the text raises the test's loss. Influence is fragile in deep
    networks (Basu et al. 2021), and a few texts with large gradients lead every list; `normalize` divides by
    the square root of a text's influence on itself.

    Args:
        model: As `aw.trace` takes it.
        tokenizer: Its tokenizer.
        train: Training texts: strings, or objects with `.text` and `.label`.
        tests: Texts to explain, in the same way.
        labels: Labels of the training texts: names or indices of classes, or numbers for a regression. By
            default their `.label`.
        test_labels: Labels of the tests; by default their `.label`, or the classes that the model predicts.
            The loss of a regression needs them.
        of: "head" or "gradients"; with options, an `aw.concepts.HeadRefit` or `LossGradients`.
        normalize: Divide by the square root of a training text's influence on itself (Barshan et al. 2020);
            for gradients take cosines.
        batch_size: Most texts of a batch.
        force: Run even if this needs more memory than is free.

    Returns:
        `Influence` [test, train].

    Raises:
        ValueError: If a label is missing or unknown, tests of a regression have none, all labels are of a
            single class, or memory is short.
        TypeError: If `of` is something else.
        UnsupportedModelError: If no linear map gives the model's logits (a ValueError).

    Source: Koh and Liang 2017; the leverage correction is the exact Newton step without a text (Pregibon
    1981); gradients: Pruthi et al. 2020. The question that gradients of deep networks answer: Bae et al.
    2022.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> train, tests = aw.demo_texts("train")[:40], aw.demo_texts("test")[:2]
        >>> influence = aw.concepts.influence(model, tokenizer, train, tests)
        >>> influence.shape, influence.helpful(0, k=1)[0].label
        ((2, 40), 'positive')
    """
    if isinstance(of, str):
        require_choice("of", of, ("head", "gradients"))
        of = HeadRefit() if of == "head" else LossGradients()
    if not isinstance(of, HeadRefit | LossGradients):
        raise TypeError(f"of takes 'head', 'gradients', or either with options, not {of!r:.60}.")
    with forced(force):
        train_texts, test_texts = texts_of(train, PURPOSE, "train"), texts_of(tests, PURPOSE, "tests")
        train_inputs = Inputs(model, tokenizer, train_texts, PURPOSE)
        test_inputs = Inputs(train_inputs.first.model, train_inputs.first.tokenizer, test_texts, PURPOSE)
        sample = None if is_trace(train_texts[0]) else train_inputs.first
        predicts = test_labels is None and not _labelled(tests)
        if predicts and (isinstance(of, LossGradients) or of.measure == "loss"):
            _require_classes(train_inputs)
        if isinstance(of, LossGradients):
            result = _by_gradients(
                train_inputs, test_inputs, (train, tests), (labels, test_labels), normalize, of.parameters
            )
            has_labels = bool(result.test_labels[0])
            caveats = _caveats_of_texts(
                train_texts, test_texts, result.train_labels, predicted=has_labels and predicts
            )
            return replace(result, notes=(*caveats, *result.notes), _sample=sample)
        reading = read_head(train_inputs, batch_size=batch_size)
        test_reading = read_head(test_inputs, batch_size=batch_size)
        classes = reading.classes
        y = labels_of(labels, train, classes, PURPOSE, "labels")
        y_tests = labels_of(
            _predicted(test_reading) if predicts else test_labels, tests, classes, PURPOSE, "test_labels"
        )
        result = of_features(
            reading,
            y,
            test_reading,
            y_tests,
            l2=of.l2,
            measure=of.measure,
            correct_leverage=of.correct_leverage,
            normalize=normalize,
            names=(train_inputs.names, test_inputs.names),
            model=train_inputs.first.model_id,
        )
        caveats = _caveats_of_texts(train_texts, test_texts, result.train_labels, predicted=predicts)
        return replace(result, notes=(*caveats, *result.notes), _sample=sample)


def of_features(
    reading: HeadReading,
    labels: Float,
    test_reading: HeadReading,
    test_labels: Float,
    *,
    l2: float,
    measure: Measure,
    correct_leverage: bool,
    normalize: bool,
    names: tuple[tuple[str, ...], tuple[str, ...]],
    model: str,
) -> Influence:
    """Return influences from the head's inputs for both sets of texts; see `influence`."""
    refit = fitted(reading, labels, l2)
    features, tests = refit.features, with_ones(test_reading.features)
    values = refit.influence(tests, test_labels, measure=measure)
    corrected = (
        refit.influence(tests, test_labels, measure=measure, without=True) if correct_leverage else values
    )
    if normalize:
        values = values / np.sqrt(np.maximum(refit.self_influence, 1e-300))
    agreements = []
    for inputs, head in ((features, reading), (tests, test_reading)):
        predicted = refit.predicted(refit.outputs_for(inputs))
        agreements.append(
            float((predicted == _predicted(head)).mean()) if refit.kind != "regression" else float("nan")
        )
    outputs = refit.outputs_for(features)
    lengths = [np.maximum(np.linalg.norm(head.features, axis=1), 1e-300) for head in (test_reading, reading)]
    cosines = test_reading.features @ reading.features.T / lengths[0][:, None] / lengths[1]
    return Influence(
        values=values,
        change=-corrected / len(labels),
        self_influence=refit.self_influence,
        losses=refit.losses(outputs, labels),
        leverage=refit.leverage,
        distance=1 - cosines,
        tests=names[1],
        train=names[0],
        test_labels=_spelled(test_labels, reading.classes),
        train_labels=_spelled(labels, reading.classes),
        of="head",
        measure=measure,
        l2=l2,
        agreement=agreements[1],
        agreement_train=agreements[0],
        gradient_norm=refit.gradient_norm(reading.theta),
        model=model,
        notes=_caveats_of_fit(len(labels), agreements[1], normalize=normalize),
        _refit=refit,
        _tests=(tests, test_labels),
    )


def fitted(reading: HeadReading, labels: Float, l2: float) -> Refit:
    """Return a head fitted again to the inputs that a model's head has for the training texts.

    Raises:
        ValueError: If all texts have the same label, or the Hessian does not fit in memory.
    """
    if len(np.unique(labels)) < _TWO:
        label = _spelled(labels[:1], reading.classes)[0]
        have = "the one training text has" if len(labels) == 1 else f"all {len(labels)} training texts have"
        raise ValueError(f"{PURPOSE}: {have} the label {label!r}; a head needs two.")
    count = len(reading.weight)
    kind: Kind = "regression" if count == 1 else "binary" if count == _TWO else "classes"
    outputs = 1 if count <= _TWO else count
    require_room(len(labels), reading.features.shape[1], outputs, PURPOSE)
    return Refit(with_ones(reading.features), labels, outputs, kind, l2)


def _by_gradients(
    train: Inputs,
    tests: Inputs,
    texts: tuple[Sequence[Any], Sequence[Any]],
    labels: tuple[Any, Any],
    normalize: bool,
    parameters: Sequence[str] | None,
) -> Influence:
    logits = train.first.logits
    spelled: list[tuple[str, ...]] = []
    numbers: list[Float] = []
    for inputs, labelled, class_labels, name in zip(
        (train, tests), texts, labels, ("labels", "test_labels"), strict=True
    ):
        if logits is not None and logits.dim() == CLASSES:
            classes = class_names(train.first) if len(logits) > 1 else ()
            if class_labels is None and name == "test_labels" and not _labelled(labelled):
                y = predicted_classes(inputs, batch_size=BATCH)
            else:
                y = labels_of(class_labels, labelled, classes, PURPOSE, name)
            spelled.append(_spelled(y, classes))
        else:
            y = np.zeros(len(inputs.reads))
            spelled.append(("",) * len(y))
        numbers.append(y)
    names = parameter_names(train, parameters)
    result = gradient_products(train, tests, numbers[0], numbers[1], names)
    values = -result["products"]
    if normalize:
        values = values / np.sqrt(np.maximum(np.outer(result["tests"], result["train"]), 1e-300))
    note = "similarity of gradients at the model's last checkpoint: not what leaving a text out does"
    return Influence(
        values=values,
        change=None,
        self_influence=result["train"],
        losses=result["losses"],
        leverage=None,
        distance=None,
        tests=tests.names,
        train=train.names,
        test_labels=spelled[1],
        train_labels=spelled[0],
        of="gradients",
        measure="loss",
        l2=float("nan"),
        agreement=float("nan"),
        agreement_train=float("nan"),
        gradient_norm=float("nan"),
        model=train.first.model_id,
        notes=(note,),
    )


def _require_classes(inputs: Inputs) -> None:
    """Raise ValueError if a model predicts a number: with its prediction as the label, its loss is 0."""
    logits = inputs.first.logits
    if logits is not None and logits.dim() == CLASSES and len(logits) == 1:
        raise ValueError(
            f"{PURPOSE}: the tests have no labels. A regression's loss is 0 at the number it predicts "
            "and has no gradient there; give test_labels=[...] with a number for every test, or take "
            "of='head' with measure='margin', the rise of the output, which needs no label."
        )


def _labelled(texts: Sequence[Any]) -> bool:
    return all(getattr(text, "label", None) is not None for text in texts)


def _predicted(reading: HeadReading) -> Float:
    """Return the predicted classes, or the numbers of a regression [text]."""
    return reading.logits[:, 0] if len(reading.weight) == 1 else reading.logits.argmax(1).astype(float)


def _spelled(labels: Float, classes: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(classes[int(label)]) if classes else f"{label:g}" for label in labels)


def _caveats_of_texts(
    train: Sequence[Any], tests: Sequence[Any], labels: Sequence[str], *, predicted: bool
) -> list[str]:
    """Return notes on predicted labels, and on texts that occur twice."""
    notes = ["the tests have no labels: what the model predicts stands for them"] if predicted else []
    if not isinstance(train[0], str):  # the title of a picture's trace is not a text
        return notes
    shared, copies = len(set(tests) & set(train)), len(train) - len(set(train))
    if shared:
        are = "1 test is a training text" if shared == 1 else f"{shared} tests are training texts"
        notes.append(f"{are}, whose own influence is among the others")
    if copies:
        are = "text is a copy" if copies == 1 else "texts are copies"
        notes.append(
            f"{copies} training {are} of another: without one of them, the other still teaches the same"
        )
    conflicts = len(set(zip(train, labels, strict=True))) - len(set(train))
    if conflicts:
        notes.append(
            f"{conflicts} of them {'has' if conflicts == 1 else 'have'} another label: "
            "one of the two is wrong"
        )
    return notes


def _caveats_of_fit(count: int, agreement: float, *, normalize: bool) -> tuple[str, ...]:
    notes = []
    if count < _FEW:
        notes.append(f"{count} training texts: a head of so few is mostly its penalty")
    if agreement < 0.9:  # noqa: PLR2004 - one test in ten
        notes.append(
            f"the head fitted again predicts what the model does for only {agreement:.0%} of tests: it "
            "explains another head"
        )
    if normalize:
        notes.append("influence is divided by the square root of a text's influence on itself")
    return tuple(notes)
