"""Every head of several families of transformers: predictions, targets, gradients and scores, by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.test_answers import BASE, FAMILIES, MOODS, SEQ2SEQ, TAGS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

SIZES = {name: FAMILIES[name] for name in ("Bert", "Roberta", "DistilBert")} | {
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 2, "eos_token_id": 3},
    **SEQ2SEQ,
    "Llama": tiny.SMALL | tiny.GQA,
}
HEADS = r"For\w+|LMHeadModel|DoubleHeadsModel"
NAMES = sorted(dir(hf))
CLASSES = [
    (family, name.removeprefix(family))
    for family in SIZES
    for name in NAMES
    if re.fullmatch(f"{family}({HEADS})", name)
]
CLS, SEP, MASK, CAT = 2, 3, 4, 9
TEXT, OTHER = "the unbelievable cat sat.", "a new york cat."


@dataclass(frozen=True)
class Case:
    """A model with a head, and its prediction.

    Attributes:
        logits: Takes the model's outputs for one text and returns the predicted row [outcome].
        target: The name of a target.
        index: Its number.
        reading: Of the logits: torch.softmax, torch.sigmoid, or None for numbers.
        title: Title of the prediction; "" if a position must be named.
        text: The text.
        pair: The second text.
        options: Options of the config.
        score: Takes the outputs and returns the target's number; None: `logits` at `index`.
        position: The token at which the target is read, which no metric removes.
        names: Names of the outcomes; () for tokens.
    """

    logits: Callable[[Any], torch.Tensor]
    target: Any
    index: int
    reading: Any = torch.softmax
    title: str = "class"
    text: str = TEXT
    pair: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    score: Callable[[Any], torch.Tensor] | None = None
    position: int | None = None
    names: tuple[str, ...] = ()

    def number(self, out: Any) -> torch.Tensor:
        """Return the target's number."""
        return self.logits(out)[self.index] if self.score is None else self.score(out)

    def shares(self, out: Any) -> torch.Tensor:
        """Return the predicted probabilities, or numbers."""
        row = self.logits(out)
        return row if self.reading is None else self.reading(row, *[-1] * (self.reading is torch.softmax))

    def value(self, out: Any) -> float:
        """Return the target's default score: its probability, or its number."""
        return float(self.number(out) if self.score else self.shares(out)[self.index])


def _whole(problem: str | None, reading: Any, title: str, *labels: str) -> Case:
    """A classifier or a regression of a whole text, with the last label as target."""
    options = {"id2label": dict(enumerate(labels)), "problem_type": problem}
    last = len(labels) - 1
    return Case(lambda out: out.logits[0], labels[last], last, reading, title, options=options, names=labels)


NEXT = Case(lambda out: out.logits[0, -1], "cat", CAT, title="next token", text="the new york cat")
MASKED = Case(lambda out: out.logits[0, 2], "cat", CAT, title="[MASK] at 2", text="the [MASK] sat.")
CASES = {
    "ForMaskedLM": [MASKED],
    "ForPreTraining": [
        Case(lambda out: out.prediction_logits[0, 2], "cat", CAT, title="[MASK] at 2", text="the [MASK] sat.")
    ],
    "ForCausalLM": [NEXT],
    "LMHeadModel": [NEXT],
    "DoubleHeadsModel": [NEXT],
    "ForConditionalGeneration": [NEXT],
    "ForSequenceClassification": [
        _whole("single_label_classification", torch.softmax, "class", *MOODS.values()),
        _whole("multi_label_classification", torch.sigmoid, "class", *MOODS.values()),
        _whole(None, torch.sigmoid, "class", "good"),
        _whole("regression", None, "number", "stars"),
        _whole("regression", None, "numbers", "valence", "arousal"),
    ],
    "ForTokenClassification": [
        Case(
            lambda out: out.logits[0, 4],
            aw.targets.label("B-LOC", position=4),
            2,
            title="",
            options={"id2label": TAGS},
            position=4,
            names=tuple(TAGS.values()),
        )
    ],
    "ForNextSentencePrediction": [
        Case(
            lambda out: out.logits[0],
            "another sentence",
            1,
            pair=OTHER,
            names=("next sentence", "another sentence"),
        )
    ],
    "ForMultipleChoice": [
        Case(lambda out: out.logits[0], "choice", 0, None, "score", pair=OTHER, names=("choice",))
    ],
    "ForQuestionAnswering": [
        Case(
            lambda out: out.start_logits[0],
            aw.targets.answer(9, 11),
            0,
            None,
            "answer",
            pair=OTHER,
            score=lambda out: out.start_logits[0, 9] + out.end_logits[0, 10],
            names=("start", "end"),
        )
    ],
}
TABLE = [
    pytest.param(family, head, case, id=f"{family}{head}-{number}")
    for family, head in CLASSES
    for number, case in enumerate(CASES.get(head, ()))
]


def made(family: str, head: str, case: Case) -> Any:
    decodes = {"is_decoder": True} if head in {"ForCausalLM", "LMHeadModel"} else {}
    config = getattr(hf, f"{family}Config")(**(BASE | SIZES[family] | decodes | case.options))
    model = tiny.build(lambda: getattr(hf, family + head)(config))
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if re.search("classifier|qa_outputs|score|seq_rel|classification_head|cls[.]seq", name):
            parameter.data += torch.randn_like(parameter)
    return model


def outputs(model: Any, inputs: dict[str, Any], case: Case) -> Any:
    """Return the model's outputs by its forward alone, with gradients."""
    choices = isinstance(case.target, str) and case.target == "choice"
    return model(**{name: value[:, None] if choices else value for name, value in inputs.items()})


@pytest.mark.parametrize(("family", "head"), CLASSES)
def test_no_head_is_forgotten(family: str, head: str) -> None:
    assert head in CASES, f"{family}{head} has no entry in this table"


@pytest.mark.parametrize(("family", "head", "case"), TABLE)
def test_what_a_head_predicts_and_how_it_is_explained_and_scored(family: str, head: str, case: Case) -> None:
    model = made(family, head, case)
    trace = aw.trace(model, tiny.wordpiece(), case.text, text_pair=case.pair)
    inputs = dict(trace.inputs)
    with torch.no_grad():
        out = outputs(model, inputs, case)

    assert trace.predictions_title == case.title
    assert trace.answer.names == case.names
    predicted = trace.predictions(100)
    if not case.title:
        assert predicted == ()
    elif case.title == "answer":
        inside = range(9, 14)  # the second text; [CLS] stands for no answer
        begin, end = (side[0, [*inside, 0]].softmax(-1)[:-1] for side in (out.start_logits, out.end_logits))
        both = (begin[:, None] * end).triu()
        first, last = divmod(int(both.argmax()), len(inside))
        assert divmod(predicted[0].id, len(trace.tokens)) == (inside[first], inside[last])
        assert predicted[0].probability == pytest.approx(float(both.max()), abs=1e-6)
    elif case.reading is None:
        numbers = {item.id: float(item.label.rpartition(" ")[2]) for item in predicted}
        assert numbers == pytest.approx(dict(enumerate(case.shares(out).tolist())), rel=1e-3, abs=1e-6)
        assert [item.name for item in predicted] == list(case.names)
    else:
        shares = {item.id: item.probability for item in predicted}
        assert shares == pytest.approx(dict(enumerate(case.shares(out).tolist())), abs=1e-6)

    explained = aw.input_x_gradient(trace, case.target)
    leaves: list[torch.Tensor] = []

    def to_leaf(_: Any, __: Any, embedded: torch.Tensor) -> torch.Tensor | None:
        if leaves:  # the decoder's
            return None
        leaves.append(embedded.detach().requires_grad_())
        return leaves[0]

    tokens = model.get_encoder() if family in SEQ2SEQ and head != "ForCausalLM" else model
    handle = tokens.get_input_embeddings().register_forward_hook(to_leaf)
    score = case.number(outputs(model, inputs, case))
    handle.remove()
    (gradient,) = torch.autograd.grad(score, leaves)
    expected = (leaves[0] * gradient).sum(-1).detach()[0].numpy()
    np.testing.assert_allclose(explained.values, expected, atol=1e-5)

    hidden = inputs["input_ids"].clone()
    stays = torch.isin(hidden, torch.tensor([CLS, SEP]))
    if case.position is not None:
        stays[0, case.position] = True
    hidden[~stays] = MASK
    with torch.no_grad():
        after = outputs(model, inputs | {"input_ids": hidden}, case)
    removal = aw.evaluate.Removal("mask", thresholds=[1.0], oracle=None, draws=1)
    card = aw.evaluate.faithfulness(
        trace, "saliency", case.target, metrics="comprehensiveness", removal=removal
    )
    assert card.to_rows()[0]["mean"] == pytest.approx(case.value(out) - case.value(after), abs=1e-5)
    if case.reading is None:
        with pytest.raises(ValueError, match='without a probability; take score="number"'):
            aw.evaluate.faithfulness(
                trace, "saliency", case.target, removal=replace(removal, score="probability")
            )


@pytest.mark.parametrize("family", [family for family, head in CLASSES if head == "ForMultipleChoice"])
def test_choices_are_traced_one_by_one_and_compared_by_their_scores(family: str) -> None:
    (case,) = CASES["ForMultipleChoice"]
    model, tokenizer, choices = made(family, "ForMultipleChoice", case), tiny.wordpiece(), [OTHER, "a cat!"]
    traces = aw.trace(model, tokenizer, [(TEXT, choice) for choice in choices])
    together = tokenizer([TEXT] * 2, choices, padding=True, return_tensors="pt")
    with torch.no_grad():
        out = model(**{name: rows[None] for name, rows in together.items() if name in traces[0].inputs})
    scores = torch.cat([trace.logits for trace in traces])
    torch.testing.assert_close(scores, out.logits[0], atol=1e-6, rtol=1e-5)
    assert not model._forward_pre_hooks
