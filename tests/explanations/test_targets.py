"""Targets are read by name, refused in words, and score the model's outputs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.explanations.targets.named import resolve_target, resolve_targets
from tests.tracing import tiny


@pytest.fixture(scope="module")
def classified() -> Any:
    config = hf.BertConfig(
        vocab_size=40,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        id2label={0: "negative", 1: "positive"},
    )
    model = tiny.build(lambda: hf.BertForSequenceClassification(config))
    return aw.trace(model, tiny.wordpiece(), "the cat sat")


@pytest.fixture(scope="module")
def generated() -> Any:
    config = hf.GPT2Config(vocab_size=262, n_embd=16, n_layer=1, n_head=2, n_positions=40)
    return aw.trace(tiny.build(lambda: hf.GPT2LMHeadModel(config)), tiny.byte_level(), " the cat sat")


@pytest.fixture(scope="module")
def masked() -> Any:
    return aw.trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), "the [MASK] sat")


def outputs(trace: Any, **options: Any) -> Any:
    with torch.no_grad():
        return trace.model(**trace.inputs, **options)


def of(trace: Any, target: Any, **options: Any) -> Any:
    return resolve_target(trace, target, method="lrp", **options)


def test_a_class_by_name_by_index_and_predicted(classified: Any) -> None:
    named, numbered, predicted = (of(classified, target) for target in ("Positive", 1, None))
    assert (named.label, named.title, named.index, named.position) == ("positive", "class", 1, None)
    assert (numbered.label, numbered.index) == (named.label, named.index)
    assert predicted.index == int(classified.logits.argmax())
    torch.testing.assert_close(named.score(outputs(classified)), classified.logits[None, 1])


def test_the_next_token_by_string_by_id_and_predicted(generated: Any) -> None:
    rows, _ = generated.logits.shape
    named = of(generated, " the")
    assert (named.label, named.title, named.position) == (generated.tokens[0], "next token", rows - 1)
    assert of(generated, int(generated.input_ids[0])).index == named.index == int(generated.input_ids[0])
    assert of(generated, None).index == int(generated.logits[-1].argmax())
    torch.testing.assert_close(named.score(outputs(generated)), generated.logits[-1:, named.index])
    earlier = of(generated, aw.targets.token(" the", position=0))
    assert earlier.position == 0
    torch.testing.assert_close(earlier.score(outputs(generated)), generated.logits[:1, named.index])
    assert of(generated, "t", like=earlier).position == 0, "a foil is read where its target is"


def test_the_token_at_a_mask(masked: Any) -> None:
    result = of(masked, "cat")
    assert (result.label, result.title, result.position) == ("cat", "[MASK] at 2", 2)
    assert of(masked, None).index == int(masked.logits[2].argmax())
    assert of(masked, "[SEP]").index == masked.tokenizer.sep_token_id


def test_the_probability_of_a_span(generated: Any) -> None:
    ids, log_p = generated.input_ids, generated.logits.log_softmax(-1)
    result = of(generated, aw.targets.span(1, 3))
    by_hand = log_p[0, ids[1]] + log_p[1, ids[2]]
    torch.testing.assert_close(result.score(outputs(generated))[0], by_hand)
    assert result.label == f"log p({''.join(generated.tokens[1:3])})"


def test_embeddings_and_functions(classified: Any) -> None:
    bare = classified.model.bert
    trace = aw.trace(bare, classified.tokenizer, "the cat sat")
    states = outputs(trace).last_hidden_state[0]
    norm, mean = of(trace, aw.targets.embedding_norm(1)), of(trace, aw.targets.embedding_dot(torch.ones(12)))
    torch.testing.assert_close(norm.score(outputs(trace))[0], states[1].norm())
    torch.testing.assert_close(mean.score(outputs(trace))[0], states.mean(0).sum())

    def first(model_outputs: Any) -> Any:
        return model_outputs.last_hidden_state[:, 0, 0]

    target = of(trace, first)
    assert target.label == "first"
    torch.testing.assert_close(target.score(outputs(trace))[0], states[0, 0])
    with pytest.raises(ValueError, match="the vector has 3 numbers, the states 12"):
        of(trace, aw.targets.embedding_dot([1, 2, 3])).score(outputs(trace))
    with pytest.raises(ValueError, match=r"lrp needs a target.*it has no head.*embedding_norm"):
        of(trace, None)
    with pytest.raises(ValueError, match="is not a single logit"):
        of(trace, first, logit=True)


def test_several_targets_keep_their_order(classified: Any) -> None:
    result = resolve_targets(classified, ["positive", 0], method="lrp")
    assert [target.label for target in result] == ["positive", "negative"]
    with pytest.raises(ValueError, match="foil is an empty list"):
        resolve_targets(classified, [], method="lrp", name="foil")


@pytest.mark.parametrize(
    ("which", "target", "error", "message"),
    [
        ("classified", "positiv", ValueError, "'negative', 'positive'. Did you mean 'positive'?"),
        ("classified", 2, IndexError, "the classes are 0 to 1"),
        ("classified", aw.targets.token(3), ValueError, r"predicts classes, not tokens"),
        ("classified", aw.targets.span(1, 2), ValueError, "predict the next token"),
        ("classified", 1.5, TypeError, "target is a float"),
        ("generated", "the cat", ValueError, r"is \d tokens for this model, .* and a target is one"),
        ("generated", 262, IndexError, "the token ids are 0 to 261"),
        ("generated", "", ValueError, "is not a token"),
        ("generated", aw.targets.token(1, position=99), IndexError, "position 99 is out of range"),
        ("generated", aw.targets.span(0, 2), IndexError, "starts at 1 or later"),
        ("generated", aw.targets.label("positive"), ValueError, "predicts tokens, not classes"),
        ("generated", aw.targets.embedding_norm(99), IndexError, "position 99 is out of range"),
    ],
)
def test_what_cannot_be_a_target_is_said(
    which: str, target: Any, error: type[Exception], message: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(error, match=message):
        of(request.getfixturevalue(which), target)


@pytest.mark.parametrize(
    ("score", "error", "message"),
    [
        (
            lambda out: out.logits,
            ValueError,
            r"'<lambda>' returned \[(1|10), 2\] for a batch of (1|10); a target's",
        ),
        (lambda out: out.logits.sum().item(), TypeError, r"returned a float; .* outputs\.logits\[:, -1, 7\]"),
        (lambda out: out.logits.argmax(-1), TypeError, r"returned torch\.int64 numbers"),
    ],
)
def test_a_function_that_returns_no_number_for_each_input_is_told_what_to_return(
    classified: Any, score: Any, error: Any, message: str
) -> None:
    for method in (aw.lrp, aw.saliency, aw.integrated_gradients, aw.chefer):
        with pytest.raises(error, match=message):
            method(classified, score)
    # The number of a single input may come without a batch axis.
    alone = aw.saliency(classified, lambda out: out.logits[0, 1])
    assert alone.values.tolist() == aw.saliency(classified, 1).values.tolist()


def test_a_word_that_no_token_stands_for_is_refused(masked: Any) -> None:
    with pytest.raises(ValueError, match=r"'zebra' is not in this model's vocabulary: .* '\[UNK\]'"):
        aw.saliency(masked, "zebra")
    assert resolve_target(masked, "[UNK]", method="test").label == "[UNK]"


def test_a_masked_model_without_a_mask_asks_for_a_position(masked: Any) -> None:
    trace = aw.trace(masked.model, masked.tokenizer, "the cat sat")
    for target in (None, "cat"):
        with pytest.raises(ValueError, match="position"):
            of(trace, target)
    assert of(trace, aw.targets.token("cat", position=-1)).position == len(trace.tokens) - 1


def spelled_twice(times: float) -> Any:
    """A trace of " cat the ..." whose next token is " the", so many times as probable as "the"."""
    config = hf.LlamaConfig(
        vocab_size=263,
        num_key_value_heads=2,
        **tiny.SMALL,
        max_position_embeddings=40,
        tie_word_embeddings=False,
    )
    model = tiny.build(lambda: hf.LlamaForCausalLM(config))
    tokenizer = tiny.byte_level(("Ġ t", "h e", "Ġt he", "t he"))
    with torch.no_grad():
        ids = torch.tensor([tokenizer(" cat the")["input_ids"]])
        state = model.model(ids).last_hidden_state[0, -1]
        bare, spaced = tokenizer.convert_tokens_to_ids(["the", "Ġthe"])
        model.lm_head.weight[spaced] = model.lm_head.weight[bare] + np.log(times) * state / state.norm() ** 2
    return aw.trace(model, tokenizer, " cat the")


EXPLAINED = [
    aw.lrp,
    aw.saliency,
    aw.integrated_gradients,
    aw.chefer,
    aw.signed_attention,
    aw.decompx,
    aw.alti_logit,
]


@pytest.mark.parametrize("method", EXPLAINED, ids=lambda method: method.__name__)
def test_a_far_likelier_spelling_with_a_space_is_named(method: Any) -> None:
    trace = spelled_twice(400)
    said = r"target 'the' has probability 0.00\d+, and ' the', with the space before it, 0.6\d?: name ' the'"
    result = method(trace, "the")
    assert re.search(said, result.warning)
    assert result.warning in repr(result)
    assert not method(trace, " the").warning
    assert "foil 'the' has probability" in method(trace, " the", foil="the").warning
    assert not method(trace, trace.tokenizer.convert_tokens_to_ids("the")).warning  # by its id: meant


def test_a_view_shows_that_another_spelling_is_likelier() -> None:
    result = aw.lrp(spelled_twice(400), "the")
    assert "name ' the'" in aw.TokenStrip(result).store.header["sources"][0]["warning"]


@pytest.mark.parametrize(("times", "named"), [(11, True), (9, False), (1 / 400, False)])
def test_ten_times_is_far(times: float, named: bool) -> None:
    assert bool(of(spelled_twice(times), "the").note) is named


def test_a_spelling_without_the_space_is_named_too() -> None:
    said = (
        r"target ' the' has probability \S+e-0\d, and 'the', without the space before it, 0.00\d+: name 'the'"
    )
    assert re.search(said, of(spelled_twice(1 / 400), " the").note)


def test_other_spellings_of_several_tokens_or_the_same_one_are_not_named(generated: Any, masked: Any) -> None:
    assert not of(generated, " the").note  # "the" is two tokens here
    assert not of(masked, "cat").note  # " cat" is the same token


def test_views_and_scores_say_it_too() -> None:
    trace = spelled_twice(400)
    result = aw.lrp(trace, " the")
    card = aw.evaluate.faithfulness(
        trace, {"lrp": result}, operator="delete", target="the", metrics="comprehensiveness"
    )
    assert "name ' the'" in card.warning
    explorer = aw.Explorer(trace)
    with pytest.warns(UserWarning, match="target 'the' has probability .* name ' the'"):
        explorer.selection.target = "the"
    assert explorer.selection.target.label == "the"
