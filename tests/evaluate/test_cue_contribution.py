"""Cue contribution against scores counted by hand, on models small enough to look into."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import attnwidgets as aw
from attnwidgets.evaluate import CueProtocol, cue_contribution, example_scores, expected_average_precision
from tests.tracing import tiny

# Tokens: [CLS] the cat un ##believ ##able sat . [SEP]
SAT = {"words": ["the", "cat", "unbelievable", "sat", "."], "target": 3, "cues": [1]}
SPLIT = SAT | {"cues": [0, 2]}
N = 9


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tiny.WORDPIECE), hidden_size=12, num_hidden_layers=3, num_attention_heads=3,
        intermediate_size=20,
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=False).eval(), tiny.wordpiece()


@pytest.fixture(scope="module")
def gpt():
    torch.manual_seed(0)
    tokenizer = tiny.byte_level()
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=12, n_layer=2, n_head=3, n_positions=64)
    return GPT2LMHeadModel(config).eval(), tokenizer


def given(row):
    """A method whose every row, in two layers, is `row`."""
    return lambda trace: np.tile(np.asarray(row, dtype=float), (2, len(row), 1))


def scores(card, metric="dot_product", method=0):
    return card.mean[card.metrics.index(metric), method]


ROW = [0.05, 0.1, 0.3, 0.2, 0.0, 0.0, 0.15, 0.1, 0.1]


def test_the_scores_are_those_counted_by_hand(bert):
    card = cue_contribution(*bert, [SAT, SPLIT], methods={"given": given(ROW)}, layers=[0, 1])
    # First example: the cat, token 2. Second: "the" and the first piece of "unbelievable", tokens 1 and 3.
    np.testing.assert_allclose(scores(card), [(0.3 + 0.1 + 0.2) / 2] * 2)
    # The cat leads; in the second, un is second and "the" shares ranks 4 to 6 with "." and [SEP].
    shared = np.mean([2 / 4, 2 / 5, 2 / 6])
    np.testing.assert_allclose(scores(card, "average_precision"), [(1 + (1 / 2 + shared) / 2) / 2] * 2)
    assert card.x == (0, 1)


def test_layers_a_method_has_no_map_of_are_undefined(bert):
    card = cue_contribution(*bert, [SAT], methods={"two layers": given(ROW)})
    assert card.x == (0, 1, 2)
    assert np.isnan(scores(card)[2])
    assert card.count[0, 0].tolist() == [1, 1, 0]


def test_all_pieces_of_a_cue_may_count(bert):
    row = [0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.0, 0.0, 0.4]
    options = {"methods": given(row), "layers": 0}
    first = cue_contribution(*bert, [SPLIT], **options)
    every = cue_contribution(*bert, [SPLIT], protocol=CueProtocol(pieces="all"), **options)
    np.testing.assert_allclose([scores(first)[0], scores(every)[0]], [0.1, 0.6])


def test_a_uniform_map_scores_as_chance_and_one_of_cues_as_the_oracle(bert):
    oracle = np.zeros(N)
    oracle[2] = 1
    methods = {"uniform": given([1 / N] * N), "cues": given(oracle)}
    for ranked in ("all", "others", "words"):
        card = cue_contribution(*bert, [SAT], methods=methods, layers=0, ranked=ranked)
        assert card.methods == ("uniform", "cues", "random", "oracle")
        np.testing.assert_allclose(card.mean[:, 0], card.mean[:, 2])
        np.testing.assert_allclose(card.mean[:, 1], card.mean[:, 3])
    assert card.baselines == ("random", "oracle")


@pytest.mark.parametrize(("ranked", "n"), [("all", 9), ("others", 8), ("words", 6)])
def test_what_is_ranked_is_named(bert, ranked, n):
    card = cue_contribution(*bert, [SAT], methods={"given": given(ROW)}, layers=0, ranked=ranked)
    assert scores(card, "average_precision", method=1)[0] == pytest.approx(expected_average_precision(1, n))
    assert scores(card, method=1)[0] == pytest.approx(1 / 9)


def test_several_rankings_give_a_metric_each(bert):
    methods = {"given": given(ROW)}
    both = cue_contribution(*bert, [SAT, SPLIT], methods=methods, ranked=["all", "others"])
    assert both.metrics == ("dot_product", "average_precision (all)", "average_precision (others)")
    for index, ranked in enumerate(("all", "others"), 1):
        single = cue_contribution(*bert, [SAT, SPLIT], methods=methods, ranked=ranked)
        np.testing.assert_array_equal(both.samples[:, index], single.samples[:, 1])


def test_rows_of_lengths_are_made_shares(bert):
    long = [7 * value for value in ROW]
    card = cue_contribution(*bert, [SAT], methods={"long": given(long)}, layers=0)
    raw = cue_contribution(
        *bert, [SAT], methods={"long": given(long)}, layers=0, protocol=CueProtocol(normalize="none")
    )
    assert scores(card)[0] == pytest.approx(0.3)
    assert scores(raw)[0] == pytest.approx(2.1)
    assert "rows as they are" in raw.steps


def test_a_row_of_zeros_scores_zero(bert):
    card = cue_contribution(*bert, [SAT], methods=given([0.0] * N), layers=0)
    assert scores(card)[0] == 0.0
    assert scores(card, "average_precision")[0] == pytest.approx(expected_average_precision(1, N))


def test_the_target_is_masked_where_it_can_be(bert, gpt):
    seen = []

    def look(trace):
        seen.append(trace.tokens)
        return given([1.0] * len(trace.tokens))(trace)

    masked = cue_contribution(*bert, [SAT], methods=look)
    cue_contribution(*bert, [SAT], methods=look, protocol=CueProtocol(mask_target=False))
    plain = cue_contribution(*gpt, [SAT], methods=look)
    assert seen[0][6] == "[MASK]"
    assert seen[1][6] == "sat"
    assert masked.provenance["options"]["mask_target"] is True
    assert plain.provenance["options"]["mask_target"] is False
    with pytest.raises(ValueError, match="needs a mask token"):
        cue_contribution(*gpt, [SAT], protocol=CueProtocol(mask_target=True))


def test_a_target_of_several_tokens_scores_the_mean_of_its_rows(bert):
    rows = np.random.default_rng(0).dirichlet(np.ones(N), size=(1, N))
    example = SAT | {"target": 2, "cues": 1}
    card = cue_contribution(*bert, [example], methods=lambda trace: rows, layers=0)
    assert scores(card)[0] == pytest.approx(rows[0, 3:6, 2].mean())


def test_a_causal_model_counts_what_it_can_see(gpt):
    example = {"text": "the cat sat", "target": 2, "cues": [0, 1]}
    card = cue_contribution(*gpt, [example], methods="attention")
    trace = aw.trace(*gpt, "the cat sat")
    tokens = trace.units["word"].spans
    target, cues = tokens[2], [span[0] for span in tokens[:2]]
    row = aw.attention(trace).values.mean(1)[:, list(target)]
    np.testing.assert_allclose(scores(card), row[..., cues].sum(-1).mean(-1), rtol=1e-5)
    assert scores(card, method=1)[0] == pytest.approx(np.mean([2 / (rank + 1) for rank in target]))


def test_the_row_before_is_the_one_that_predicts(gpt):
    example = {"text": "the cat sat", "target": 2, "cues": [0]}
    card = cue_contribution(*gpt, [example], methods="attention", protocol=CueProtocol(row="before"))
    trace = aw.trace(*gpt, "the cat sat")
    before = trace.units["word"].spans[2][0] - 1
    np.testing.assert_allclose(scores(card), aw.attention(trace).values.mean(1)[:, before, 0], rtol=1e-5)


def test_before_the_first_token_there_is_no_row(bert):
    first = {"text": "the cat", "target": 0, "cues": [1]}
    with pytest.raises(ValueError, match=r"examples\[0\]: no token precedes"):
        cue_contribution(
            *bert, [first], methods="attention", protocol=CueProtocol(row="before"), unit="token"
        )


def test_cues_that_follow_the_target_are_refused_in_a_causal_model(gpt):
    before = {"text": "the cat sat", "target": 2, "cues": [0]}
    after = before | {"target": 0, "cues": [1]}
    with pytest.raises(ValueError, match=r"examples\[1\]: every cue follows the target.*1 of 2"):
        cue_contribution(*gpt, [before, after], methods="attention")
    both = cue_contribution(*gpt, [before | {"target": 1, "cues": [0, 2]}], methods="attention")
    single = cue_contribution(*gpt, [before | {"target": 1, "cues": [0]}], methods="attention")
    np.testing.assert_array_equal(both.samples, single.samples)


def test_examples_come_in_several_forms(bert):
    methods = {"given": given(ROW)}
    forms = [
        SAT,
        {"words": SAT["words"], "target_index": 3, "cue_indices": [1]},
        {"text": "the cat unbelievable sat.", "words": SAT["words"], "target": [3], "cues": 1},
        {"text": "the cat unbelievable sat.", "target": 3, "cues": [1]},
        SimpleNamespace(text="the cat unbelievable sat.", target=np.int64(3), cues=(1,)),
    ]
    result = cue_contribution(*bert, forms, methods=methods).samples
    assert len(np.unique(result[:, 0, 0, 0])) == 1
    tokens = {"text": "the cat unbelievable sat.", "target": 6, "cues": [2]}
    counted = cue_contribution(*bert, [tokens], methods=methods, unit="token").samples
    np.testing.assert_array_equal(counted[0], result[0])


def test_examples_do_not_depend_on_their_company(bert):
    short = {"words": ["the", "cat"], "target": 1, "cues": [0]}
    methods = ("attention", "alti", "value_zeroing")
    together = cue_contribution(*bert, [SAT, short, SPLIT], methods=methods).samples
    for index, example in enumerate((SAT, short, SPLIT)):
        alone = cue_contribution(*bert, [example], methods=methods).samples
        np.testing.assert_allclose(together[index], alone[0], atol=2e-5)


def test_methods_are_named_in_tables(bert):
    def my_rollout(trace):
        return aw.rollout(trace)

    methods = ["rollout", ("rollout", {"residual": "add"}), ("alti", {"rolled_out": True}), my_rollout]
    card = cue_contribution(*bert, [SAT], methods=methods)
    assert card.methods[:4] == ("rollout", "rollout (add)", "alti (rolled out)", "my_rollout")
    np.testing.assert_array_equal(card.samples[:, :, 0], card.samples[:, :, 3])
    assert set(cue_contribution(*bert, [SAT]).methods) >= {"attention_norm (res_ln)", "globenc"}


def test_the_model_comes_back_as_it_was(bert):
    model, tokenizer = bert
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    with pytest.raises(ZeroDivisionError):
        cue_contribution(model, tokenizer, [SAT], methods=lambda trace: 1 / 0)
    assert model.training
    model.eval()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_scores_of_one_example_are_its_row(bert):
    card = example_scores(*bert, SAT, methods={"given": given(ROW)}, layer=1)
    assert card.x[2] == "cat"
    assert [(index, note) for index, note in enumerate(card.x_notes) if note] == [(2, "cue"), (6, "target")]
    np.testing.assert_allclose(card.mean[0, 0], ROW)
    np.testing.assert_allclose(card.mean[0, 1], 1 / N)
    np.testing.assert_allclose(card.mean[0, 2], np.eye(N)[2])
    rolled = example_scores(*bert, SAT, methods="rollout", mask_target=False)
    trace = aw.trace(*bert, "the cat unbelievable sat .")
    np.testing.assert_allclose(rolled.mean[0, 0], aw.rollout(trace).values[-1, 6], rtol=1e-5)
    with pytest.raises(IndexError, match="layers 0 to 2"):
        example_scores(*bert, SAT, methods="rollout", layer=3)


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ({"target": 3, "cues": [1]}, "neither words"),
        ({"words": ["the", "cat"], "cues": [1]}, "has no target"),
        ({"words": ["the", "cat"], "target": 0, "cue_index": []}, "cues is empty"),
        ({"words": ["the", "cat"], "target": 0, "cues": "cat"}, "cues must be an index"),
        (
            {"words": ["the", "cat"], "target": 2, "cues": [1]},
            "target 2 is out of range: there are words 0 to 1",
        ),
        ({"words": ["the", "cat"], "target": 1, "cues": [0, 1]}, "both target and cue"),
        ({"text": " ", "target": 1, "cues": [0]}, "text is empty"),
        ({"text": "a cat", "words": ["the", "cat"], "target": 1, "cues": [0]}, "is not in the text"),
    ],
)
def test_examples_that_do_not_fit_are_named(bert, example, told):
    with pytest.raises(ValueError, match=rf"examples\[1\].*{told}"):
        cue_contribution(*bert, [SAT, example], methods="attention")


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"methods": "rollot"}, ValueError, "Did you mean 'rollout'"),
        ({"methods": []}, ValueError, "methods is empty"),
        ({"methods": ["rollout", "rollout"]}, ValueError, "twice"),
        ({"methods": [3]}, TypeError, "names, .name, options. and functions"),
        ({"methods": lambda trace: "no"}, TypeError, "returned str"),
        ({"methods": lambda trace: np.ones((2, 3))}, ValueError, "returned shape"),
        ({"methods": lambda trace: aw.rollout(trace).to("word")}, ValueError, "by 7 words"),
        ({"methods": lambda trace: np.full((1, N, N), np.nan)}, ValueError, "NaN"),
        ({"ranked": "other"}, ValueError, "Did you mean 'others'"),
        ({"layers": 5}, IndexError, "layers 0 to 2"),
    ],
)
def test_options_that_do_not_fit_are_named(bert, options, error, told):
    with pytest.raises(error, match=told):
        cue_contribution(*bert, [SAT], **options)


def test_no_examples_and_no_tokenizer_are_refused(bert):
    with pytest.raises(ValueError, match="examples is empty"):
        cue_contribution(*bert, [])
    with pytest.raises(TypeError, match="text tokenizer"):
        cue_contribution(bert[0], None, [SAT])


@pytest.mark.slow
def test_minilm_on_blimp_is_what_its_eager_attention_says(minilm, shared):
    model, tokenizer = minilm
    lines = (shared / "data" / "blimp" / "number_agreement_cues.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[::900]]
    card = cue_contribution(model, tokenizer, rows, methods="attention")
    eager = type(model)._from_config(model.config, attn_implementation="eager").eval()
    eager.load_state_dict(model.state_dict())
    for row, sample in zip(rows, card.samples, strict=True):
        words = [*row["words"]]
        words[row["target_index"]] = tokenizer.mask_token
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        word_ids = encoded.word_ids()
        with torch.no_grad():
            maps = torch.stack(eager(**encoded, output_attentions=True).attentions)[:, 0].mean(1)
        target = word_ids.index(row["target_index"])
        expected = sum(maps[:, target, word_ids.index(cue)] for cue in row["cue_indices"])
        np.testing.assert_allclose(sample[0, 0], expected, atol=2e-6)


def test_several_models_are_the_rows_of_one_table(bert):
    model, tokenizer = bert
    other = aw.randomized(model, copy=True, seed=1)
    models = {"trained": bert, "random": other}
    card = cue_contribution(models, tokenizer, iter([SAT, SPLIT]), methods=["attention", "rollout"])
    assert card.groups == ("trained", "trained", "random", "random", "", "")
    assert card.methods[-2:] == ("random", "oracle"), "baselines are there once"
    for name, item in (("trained", model), ("random", other)):
        alone = cue_contribution(item, tokenizer, [SAT, SPLIT], methods=["attention", "rollout"])
        for method in ("attention", "rollout"):
            np.testing.assert_array_equal(card.of(method, name), alone.of(method))
    with pytest.raises(ValueError, match="empty mapping"):
        cue_contribution({}, tokenizer, [SAT])
    with pytest.raises(ValueError, match=r"model\['random'\] has no tokenizer"):
        cue_contribution(models, None, [SAT])


def test_former_keywords_work_and_say_where_they_belong(bert):
    options = {"methods": "attention", "layers": 0}
    with pytest.warns(
        DeprecationWarning, match=r"'pieces', 'level' belong in protocol=aw.evaluate.CueProtocol"
    ):
        former = cue_contribution(*bert, [SPLIT], pieces="all", level=0.9, **options)
    protocol = CueProtocol(pieces="all", level=0.9)
    card = cue_contribution(*bert, [SPLIT], protocol=protocol, **options)
    assert (former.provenance, former.level) == (card.provenance, 0.9)
    np.testing.assert_array_equal(former.samples, card.samples)
    with pytest.raises(TypeError, match=r"'row' belong in protocol.*which is given too"):
        cue_contribution(*bert, [SPLIT], row="before", protocol=protocol, **options)
    with pytest.raises(TypeError, match=r"protocol takes an aw\.evaluate\.CueProtocol, not 'before'"):
        cue_contribution(*bert, [SPLIT], protocol="before", **options)
    with pytest.raises(ValueError, match="row 'after' is not one of"):
        CueProtocol(row="after")
