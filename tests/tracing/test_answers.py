"""The meaning of a model's outputs: predictions, targets, scores and differences, for every kind of head."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.evaluate.removals.ordering import default_score
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

TEXT = "the unbelievable cat sat, a new york cat."
TAGS = {0: "O", 1: "B-PER", 2: "B-LOC"}
MOODS = {0: "joy", 1: "fear", 2: "anger", 3: "love"}
BASE = {"vocab_size": len(tiny.WORDPIECE), "pad_token_id": 0}
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": tiny.SMALL,
    "Roberta": tiny.SMALL | {"max_position_embeddings": 64},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
    "Electra": tiny.SMALL | {"embedding_size": 16},
    "ModernBert": tiny.SMALL | {"num_hidden_layers": 2, "global_attn_every_n_layers": 2},
    "Albert": tiny.SMALL | {"embedding_size": 16},
}
SEQ2SEQ = {
    "Bart": {
        "d_model": 32,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in
           (("layers", 2), ("attention_heads", 4), ("ffn_dim", 37))},
        "eos_token_id": 3,
        "decoder_start_token_id": 3,
    },
    "T5": {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4, "eos_token_id": 3,
           "decoder_start_token_id": 0},
}  # fmt: skip


def made(family: str, head: str, **options: Any) -> Any:
    sizes = {**FAMILIES, **SEQ2SEQ}[family]
    config = getattr(hf, f"{family}Config")(**(BASE | sizes | options))
    model = tiny.build(lambda: getattr(hf, f"{family}For{head}")(config))
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "classifier" in name or "qa_outputs" in name or "score" in name or "out_proj" in name:
            parameter.data += torch.randn_like(parameter)
    return model


def traced(family: str, head: str, text: Any = TEXT, pair: str | None = None, **options: Any) -> Trace:
    trace: Trace = aw.trace(made(family, head, **options), tiny.wordpiece(), text, text_pair=pair)
    return trace


def shown(trace: Trace) -> dict[str, float]:
    return {prediction.label: prediction.probability for prediction in trace.predictions()}


def plain(trace: Trace) -> Any:
    with torch.no_grad():
        return trace.model(**trace.inputs)


def gradient_times_input(trace: Trace, score: Any) -> np.ndarray:
    """Return the reference of `aw.input_x_gradient`, by autograd through the model's embeddings."""
    model, ids = trace.model, trace.inputs["input_ids"]
    leaf = model.get_input_embeddings()(ids).detach().requires_grad_()
    others = {name: value for name, value in trace.inputs.items() if name != "input_ids"}
    score(model(inputs_embeds=leaf, **others)).backward()
    return (leaf * leaf.grad).sum(-1)[0].detach().numpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("problem", "names"),
    [
        ("single_label_classification", MOODS),
        ("multi_label_classification", MOODS),
        (None, {0: "good"}),
        (None, MOODS),
    ],
)
def test_a_classifier_says_what_the_pipeline_says(
    family: str, problem: str | None, names: dict[int, str]
) -> None:
    trace = traced(family, "SequenceClassification", id2label=names, problem_type=problem)
    pipeline = hf.pipeline("text-classification", model=trace.model, tokenizer=tiny.wordpiece(), top_k=None)
    expected = {item["label"]: item["score"] for item in pipeline(TEXT)[0]}
    assert trace.predictions_title == "class"
    assert shown(trace) == pytest.approx(expected, abs=1e-6)
    least = trace.predictions()[-1].label
    target = resolve_target(trace, least, method="test")
    assert (target.label, default_score(target)) == (least, "probability")
    result = aw.input_x_gradient(trace, least)
    number = trace.predictions()[-1].id
    reference = gradient_times_input(trace, lambda out: out.logits[0, number])
    np.testing.assert_allclose(result.values, reference, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tagger_names_the_classes_of_its_tokens(family: str) -> None:
    trace = traced(family, "TokenClassification", id2label=TAGS)
    pipeline = hf.pipeline(
        "token-classification", model=trace.model, tokenizer=tiny.wordpiece(), ignore_labels=[]
    )
    assert trace.predictions() == ()
    assert trace.answer.names == ("O", "B-PER", "B-LOC")
    logits = trace.logits
    assert logits is not None
    for word in pipeline(TEXT):
        shares = trace.answer.probabilities(logits[word["index"]])
        assert trace.answer.names[int(shares.argmax())] == word["entity"]
        assert float(shares.max()) == pytest.approx(float(word["score"]), abs=1e-6)
    result = aw.input_x_gradient(trace, aw.targets.label("B-LOC", position=4), foil="O")
    assert (result.target, result.foil) == ("B-LOC", "O")
    reference = gradient_times_input(trace, lambda out: out.logits[0, 4, 2] - out.logits[0, 4, 0])
    np.testing.assert_allclose(result.values, reference, atol=1e-5)
    # Without a position, it is where the class is most probable, and the result says so.
    rows = trace.answer.probabilities(logits)[1:-1, 1]
    best = int(rows.argmax()) + 1
    assert f"B-PER at {best}, where it is most probable" in aw.input_x_gradient(trace, "b-per").warning
    card = aw.evaluate.faithfulness(
        trace,
        "saliency",
        aw.targets.label("B-LOC", position=4),
        removal=aw.evaluate.Removal("mask", thresholds=[1.0], oracle=None, draws=1),
        metrics="comprehensiveness",
    )
    hidden = trace.inputs["input_ids"].clone()
    hidden[0, [index for index in range(1, hidden.shape[1] - 1) if index != 4]] = 4
    with torch.no_grad():
        after = trace.model(**{**trace.inputs, "input_ids": hidden}).logits[0, 4].softmax(-1)[2]
    before = logits[4].softmax(-1)[2]
    assert card.to_rows()[0]["mean"] == pytest.approx(float(before - after), abs=1e-5)


def test_what_a_tagger_is_asked_wrongly_is_said_in_words() -> None:
    trace = traced("Bert", "TokenClassification", id2label=TAGS)
    with pytest.raises(ValueError, match=r"must be named: this model predicts a class at every position,"):
        aw.saliency(trace)
    with pytest.raises(ValueError, match=r"'B-ORG' is not a class; the classes are 'O', 'B-PER', 'B-LOC'"):
        aw.saliency(trace, "B-ORG")
    with pytest.raises(IndexError, match="the classes are 0 to 2"):
        aw.saliency(trace, aw.targets.token(3, position=1))
    with pytest.raises(ValueError, match="classifies a whole input, so that its classes have no position"):
        aw.saliency(
            traced("Bert", "SequenceClassification", id2label=MOODS), aw.targets.label("fear", position=1)
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_an_extractive_answer_is_a_start_and_an_end(family: str) -> None:
    trace = traced(family, "QuestionAnswering", "who sat", "the unbelievable cat sat.")
    out = plain(trace)
    inside = list(range(4, len(trace.tokens) - 1))  # [CLS] who sat [SEP] ... [SEP]
    start, end = (side[0, [*inside, 0]].softmax(-1)[:-1] for side in (out.start_logits, out.end_logits))
    both = (start[:, None] * end).triu()
    first, last = divmod(int(both.argmax()), len(inside))
    best = trace.predictions(1)[0]
    assert trace.predictions_title == "answer"
    assert best.probability == pytest.approx(float(both.max()), abs=1e-6)
    ids = trace.inputs["input_ids"][0, inside[first] : inside[last] + 1]
    assert best.label == tiny.wordpiece().decode(ids)
    begin, stop = inside[first], inside[last] + 1
    reference = gradient_times_input(
        trace, lambda out: out.start_logits[0, begin] + out.end_logits[0, stop - 1]
    )
    result = aw.input_x_gradient(trace)
    assert result.target == best.label
    np.testing.assert_allclose(result.values, reference, atol=1e-5)
    named = aw.input_x_gradient(trace, aw.targets.answer(begin, stop))
    np.testing.assert_array_equal(named.values, result.values)
    np.testing.assert_array_equal(aw.input_x_gradient(trace, best.id).values, result.values)
    assert default_score(resolve_target(trace, None, method="test")) == "number"
    begins = aw.input_x_gradient(trace, aw.targets.token("start", position=begin))
    reference = gradient_times_input(trace, lambda out: out.start_logits[0, begin])
    np.testing.assert_allclose(begins.values, reference, atol=1e-5)
    with pytest.raises(IndexError, match=r"answer\(5, 5\) is not in the text of \d+ tokens"):
        aw.saliency(trace, aw.targets.answer(5, 5))


def test_only_a_model_that_finds_answers_is_asked_for_one() -> None:
    trace = traced("Bert", "SequenceClassification", id2label=MOODS)
    with pytest.raises(ValueError, match="this model finds no answers in a text; it predicts class"):
        aw.saliency(trace, aw.targets.answer(1, 3))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [1, 3])
def test_a_regression_predicts_numbers(family: str, count: int) -> None:
    trace = traced(family, "SequenceClassification", num_labels=count, problem_type="regression")
    numbers = plain(trace).logits[0].tolist()
    assert trace.predictions_title == ("number" if count == 1 else "numbers")
    assert [float(prediction.label.split()[-1]) for prediction in trace.predictions()] == pytest.approx(
        numbers, rel=1e-3
    )
    assert all(np.isnan(prediction.probability) for prediction in trace.predictions())
    changed = trace.rerun(aw.ablate_heads(trace, {0: range(4), 1: range(4)}))
    moved = trace.diff(changed)
    assert changed.logits is not None
    assert {prediction.id: prediction.before for prediction in moved.predictions} == pytest.approx(
        dict(enumerate(numbers)), abs=1e-5
    )
    after = dict(enumerate(changed.logits.tolist()))
    assert {prediction.id: prediction.after for prediction in moved.predictions} == pytest.approx(
        after, abs=1e-5
    )
    assert moved.predictions[0].label in trace.answer.names
    assert not moved.flipped
    assert f"{moved.predictions[0].before:.4g} to {moved.predictions[0].after:.4g}" in repr(moved)
    assert trace.predictions(1)[0].name == trace.answer.names[0]
    removal = aw.evaluate.Removal("mask", thresholds=[1.0], oracle=None, draws=1)
    card = aw.evaluate.faithfulness(trace, "saliency", 0, metrics="comprehensiveness", removal=removal)
    hidden = trace.inputs["input_ids"].clone()
    hidden[0, 1:-1] = 4
    with torch.no_grad():
        after = trace.model(**{**trace.inputs, "input_ids": hidden}).logits[0, 0]
    assert card.to_rows()[0]["mean"] == pytest.approx(numbers[0] - float(after), abs=1e-5)
    with pytest.raises(ValueError, match='is a number without a probability; take score="number"'):
        aw.evaluate.faithfulness(trace, "saliency", 0, removal=replace(removal, score="probability"))


def test_labels_that_do_not_exclude_each_other_are_read_alone_everywhere() -> None:
    trace = traced(
        "Bert", "SequenceClassification", id2label=MOODS, problem_type="multi_label_classification"
    )
    hidden = trace.inputs["input_ids"].clone()
    hidden[0, 1:-1] = 4
    with torch.no_grad():
        after = trace.model(**{**trace.inputs, "input_ids": hidden}).logits[0].sigmoid()
    before = plain(trace).logits[0].sigmoid()
    removal = aw.evaluate.Removal("mask", thresholds=[1.0], oracle=None, draws=1)
    card = aw.evaluate.faithfulness(trace, "saliency", "fear", metrics="comprehensiveness", removal=removal)
    assert card.to_rows()[0]["mean"] == pytest.approx(float(before[1] - after[1]), abs=1e-6)
    view = aw.RemovalView(trace, aw.saliency(trace, "fear"), operator="mask")
    assert view.left(0) == pytest.approx(float(before[1]), abs=1e-6)
    moved = trace.diff(trace.rerun(aw.ablate_heads(trace, (0, 0)))).predictions
    assert {item.label: item.before for item in moved} == pytest.approx(
        dict(zip(MOODS.values(), before.tolist(), strict=True)), abs=1e-6
    )


@pytest.mark.parametrize("family", SEQ2SEQ)
@pytest.mark.parametrize("pair", [None, "a new york cat."])
def test_an_encoder_decoder_that_classifies_reads_its_text_twice(family: str, pair: str | None) -> None:
    model = made(family, "SequenceClassification", num_labels=3)
    tokenizer = tiny.wordpiece()
    trace = aw.trace(model, tokenizer, TEXT, text_pair=pair)
    both = (TEXT,) if pair is None else (TEXT, pair)
    inputs = tokenizer(*both, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        expected = model(**inputs).logits[0]
    torch.testing.assert_close(trace.logits, expected, atol=1e-6, rtol=1e-5)
    n_tokens = inputs["input_ids"].shape[1]
    assert trace.stacks == ("encoder", "decoder", "cross")
    assert [len(trace.axes(stack)[0]) for stack in trace.stacks] == [n_tokens] * 3
    assert trace.axes("decoder")[0].tokens[1:] == trace.axes("encoder")[0].tokens[:-1]
    assert "its decoder reads the text as well" in trace.warning
    assert aw.saliency(trace).shape == (n_tokens,)
    listed = aw.trace(model, tokenizer, [TEXT, "the cat sat."])
    torch.testing.assert_close(
        listed[0].logits, aw.trace(model, tokenizer, TEXT).logits, atol=1e-5, rtol=1e-4
    )


def test_one_logit_a_token_is_a_probability_of_its_own() -> None:
    trace = traced("Electra", "PreTraining")
    expected = plain(trace).logits[0].sigmoid()
    assert trace.logits is not None
    assert trace.logits.shape == (len(trace.tokens), 1)
    torch.testing.assert_close(trace.answer.probabilities(trace.logits)[:, 0], expected)
    assert aw.saliency(trace, aw.targets.label("replaced", position=2)).target == "replaced"


@pytest.mark.parametrize(
    ("model", "read", "other"),
    [
        (
            lambda: hf.BertForPreTraining(hf.BertConfig(**BASE, **tiny.SMALL)),
            "prediction",
            "seq_relationship",
        ),
        (
            lambda: hf.GPT2DoubleHeadsModel(hf.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4)),
            "",
            "mc",
        ),
    ],
)
def test_a_second_head_is_named_and_can_be_explained(model: Any, read: str, other: str) -> None:
    trace = aw.trace(tiny.build(model), None, input_ids=[3, 7, 9, 5])
    fields = f"{read}_logits".strip("_"), f"{other}_logits"
    assert f"predictions are read in '{fields[0]}'; '{fields[1]}' of the model's outputs" in trace.warning
    target = eval(trace.warning.rpartition("target=")[2])  # the code that the reader is told
    expected = gradient_times_input(trace, lambda outputs: target(outputs).sum())
    np.testing.assert_allclose(aw.input_x_gradient(trace, target).values, expected, atol=1e-6)
    assert not aw.trace(*aw.demo_model("classifier"), "A film.").warning


def test_an_answer_is_what_it_was_in_traces_pickled_before() -> None:
    trace = traced("Bert", "MaskedLM", "the [MASK] sat.")
    state = pickle.loads(pickle.dumps(trace)).__getstate__()
    state["predicted"] = (state.pop("answer").title, state["predicted"])
    del state["unrecorded"]
    again = object.__new__(type(trace))
    again.__setstate__(state)
    assert (again.predictions_title, again.answer.row) == ("[MASK] at 2", 2)
    assert again.predictions(3) == trace.predictions(3)


def test_a_decoder_without_padding_classifies_in_batches() -> None:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": len(tiny.WORDPIECE)}
    model = tiny.build(lambda: hf.GPT2ForSequenceClassification(hf.GPT2Config(**sizes, num_labels=3)))
    assert model.config.pad_token_id is None
    texts = [TEXT, "the cat sat."]
    traces = aw.trace(model, tiny.wordpiece(), texts)
    for trace, text in zip(traces, texts, strict=True):
        alone = aw.trace(model, tiny.wordpiece(), text)
        torch.testing.assert_close(trace.logits, alone.logits)
        with torch.no_grad():
            torch.testing.assert_close(trace.logits, model(trace.inputs["input_ids"]).logits[0])
    batched = aw.integrated_gradients(traces[0], steps=16, batch_size=8, baseline="zero")
    single = aw.integrated_gradients(traces[0], steps=16, batch_size=1, baseline="zero")
    np.testing.assert_allclose(batched.values, single.values, atol=1e-5)
    removal = aw.evaluate.Removal("delete", oracle=None, draws=1)
    scores = [
        aw.evaluate.faithfulness(traces[0], "saliency", removal=replace(removal, batch_size=size)).values
        for size in (1, 32)
    ]
    np.testing.assert_allclose(*scores, atol=1e-6)
    assert model.config.pad_token_id is None


class Mine(torch.nn.Module):
    """A linear layer after BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = hf.BertModel(hf.BertConfig(**(BASE | tiny.SMALL)))
        self.out = torch.nn.Linear(32, 3)

    def forward(self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> Any:
        states = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return self.out(states[1])


def test_a_class_of_ones_own_is_told_of_the_model_inside() -> None:
    with pytest.raises(UnsupportedModelError, match=r"aw\.trace\(model\.bert, \.\.\.\)"):
        aw.trace(Mine().eval(), tiny.wordpiece(), TEXT)
