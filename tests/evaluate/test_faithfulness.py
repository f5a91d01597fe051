"""Removal and its scores: by hand, against recorded scores, and where they must fail."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.evaluate import OPERATORS, aopc, area, characterization, faithfulness, fidelity
from attnwidgets.explanations import Attributions
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

EVERY = ("comprehensiveness", "sufficiency", "log_odds", "deletion", "insertion")
QUARTERS = (0.0, 0.25, 0.5, 1.0)
MASK = 4


@pytest.fixture(scope="module")
def classified() -> Any:
    """A trace of a random classifier in float64: [CLS] un ##believ ##able cat [SEP]."""
    return aw.trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat")


@pytest.fixture(scope="module")
def decoder() -> Any:
    """A trace of a random decoder without a tokenizer."""
    return aw.trace(tiny.build(tiny.TEXT["GPT-2"]).double(), None, input_ids=[3, 17, 42, 8, 99])


def given(trace: Any, values: Any, **options: Any) -> Attributions:
    return Attributions(values, axis=trace.axes()[0], stack=trace.default_stack, **options)


def run(trace: Any, ids: list[int], **more: Any) -> torch.Tensor:
    with torch.no_grad():
        return trace.model(input_ids=torch.tensor([ids]), **more).logits[0].double()


def additive(weights: list[float]) -> Any:
    """A trace of a BERT whose logit 1 is a sum of the weights of its words: a linear bag of words.

    Attention is uniform, positions and types are zeros, norms are the identity.
    """
    config = hf.BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4
    )
    model = hf.BertForSequenceClassification(config).double().eval()
    inner = model.bert
    for parameter in model.parameters():
        parameter.data.zero_()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.LayerNorm):
                setattr(module, name, torch.nn.Identity())
    table = inner.embeddings.word_embeddings.weight.data
    table[10 : 10 + len(weights), 0] = torch.tensor(weights, dtype=torch.float64)
    layer = inner.encoder.layer[0].attention
    layer.self.value.weight.data.copy_(torch.eye(8))
    layer.output.dense.weight.data.copy_(torch.eye(8))
    # The first token is not embedded: its state is the mean over the text.
    inner.pooler.dense.weight.data.copy_(0.01 * torch.eye(8))
    model.classifier.weight.data[1, 0] = 300.0
    return aw.trace(model, None, input_ids=[5, *range(10, 10 + len(weights))])


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_what_it_says(classified: Any, operator: str) -> None:
    ids = classified.inputs["input_ids"][0].tolist()
    result = faithfulness(
        classified,
        given(classified, [9, 0, 3, 2, 1, 9]),
        1,
        removal=aw.evaluate.Removal(operator, thresholds=(0.5,), score="number"),
        metrics="deletion",
    )
    gone = (2, 3)
    swapped = {"mask": MASK, "pad": 0}
    if operator == "delete":
        expected = run(classified, [item for at, item in enumerate(ids) if at not in gone])
    elif operator == "attention_mask":
        mask = torch.tensor([[int(at not in gone) for at in range(len(ids))]])
        expected = run(classified, ids, attention_mask=mask)
    elif operator in swapped:
        expected = run(classified, [swapped[operator] if at in gone else item for at, item in enumerate(ids)])
    else:
        model = copy.deepcopy(classified.model)
        table = model.bert.embeddings.word_embeddings.weight
        table.data = torch.cat([table.data, (table.data.mean(0) * (operator == "mean"))[None]])
        extra = len(table) - 1
        with torch.no_grad():
            swap = [extra if at in gone else item for at, item in enumerate(ids)]
            expected = model(input_ids=torch.tensor([swap])).logits[0]
    assert result.samples[0, 0, 0, 0] == pytest.approx(float(expected[1]), abs=1e-9)


def test_every_metric_by_hand(classified: Any) -> None:
    values = [9.0, 0.3, -3.0, 2.0, 1.0, 9.0]
    card = faithfulness(
        classified,
        {"mine": given(classified, values)},
        2,
        removal=aw.evaluate.Removal("mask", thresholds=QUARTERS),
        metrics=EVERY,
    )
    ids = classified.inputs["input_ids"][0].tolist()
    order = [3, 4, 1, 2]
    whole = run(classified, ids).softmax(-1)[2]
    for at, k in enumerate((0, 1, 2, 4)):
        less = run(classified, [MASK if i in order[:k] else item for i, item in enumerate(ids)]).softmax(-1)[
            2
        ]
        alone = run(classified, [MASK if i in order[k:] else item for i, item in enumerate(ids)]).softmax(-1)[
            2
        ]
        expected = [whole - less, whole - alone, (less / whole).log(), less, alone]
        np.testing.assert_allclose(card.of("mine")[0, :, at], np.array(expected), atol=1e-9)
    assert card.baselines == ("random", "oracle")
    np.testing.assert_allclose(aopc(card).of("mine")[0, :, 0], card.of("mine")[0].mean(-1))
    curve = card.of("mine")[0, 3]
    assert area(card).of("mine")[0, 3, 0] == pytest.approx(np.trapezoid(curve, QUARTERS))


def test_words_are_removed_as_a_whole_and_magnitude_ranks_by_size(classified: Any) -> None:
    word = given(classified, [0, -4, -4, -4, 1, 0]).to("word")
    ids = classified.inputs["input_ids"][0].tolist()
    removal = aw.evaluate.Removal("delete", thresholds=(0.5,), score="number")
    by_size = replace(removal, by="magnitude")
    result = faithfulness(classified, word, 0, metrics="deletion", removal=by_size)
    assert result.unit == "word"
    outputs = run(classified, [ids[0], *ids[4:]])
    assert result.samples[0, 0, 0, 0] == pytest.approx(float(outputs[0]), abs=1e-9)
    result = faithfulness(classified, word, 0, metrics="deletion", removal=removal)
    outputs = run(classified, [*ids[:4], ids[5]])
    assert result.samples[0, 0, 0, 0] == pytest.approx(float(outputs[0]), abs=1e-9)


def test_a_decoder_goes_on_from_the_last_token_that_is_left(decoder: Any) -> None:
    values = given(decoder, [0, 1, 2, 3, 4])
    removal = aw.evaluate.Removal("delete", thresholds=(0.4, 1.0))
    result = faithfulness(decoder, values, 7, metrics="deletion", removal=removal)
    expected = run(decoder, [3, 17, 42])[-1].softmax(-1)[7]
    assert result.samples[0, 0, 0, 0] == pytest.approx(float(expected), abs=1e-9)
    assert np.isnan(result.samples[0, 0, 0, 1])
    assert "nothing is left" in result.warning
    masked = replace(removal, operator="attention_mask")
    result = faithfulness(decoder, values, 7, metrics="deletion", removal=masked)
    assert np.isnan(result.samples[0, 0, 0, 1])
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    expected = run(decoder, [3, 17, 42, 8, 99], attention_mask=mask)[-1].softmax(-1)[7]
    assert result.samples[0, 0, 0, 0] == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize(("rounding", "k"), [("ceil", 2), ("floor", 1), ("nearest", 1)])
def test_rounding_is_what_it_says(classified: Any, rounding: Any, k: int) -> None:
    values = given(classified, [0, 4, 3, 2, 1, 0])
    removal = aw.evaluate.Removal("mask", thresholds=(0.3,), rounding=rounding, score="number")
    result = faithfulness(classified, values, 0, metrics="deletion", removal=removal)
    exactly = replace(removal, thresholds=(k / 4,))
    exact = faithfulness(classified, values, 0, metrics="deletion", removal=exactly)
    np.testing.assert_array_equal(result.samples, exact.samples)


def test_batches_do_not_change_a_number(classified: Any) -> None:
    values = given(classified, [0, 4, 3, 2, 1, 0])
    for operator in OPERATORS:
        single, many = (
            faithfulness(
                classified, values, removal=aw.evaluate.Removal(operator, batch_size=size), metrics=EVERY
            )
            for size in (1, 64)
        )
        np.testing.assert_allclose(single.samples, many.samples, atol=1e-12)


def test_on_an_additive_model_the_oracle_is_never_beaten_and_chance_lies_between() -> None:
    weights = [0.3, -0.2, 0.7, 0.1, -0.5]
    trace = additive(weights)
    whole, single = float(trace.logits[1]), []
    for at in range(len(weights)):
        ids = [5, *(0 if at == i else 10 + i for i in range(len(weights)))]
        single.append(whole - float(run(trace, ids)[1]))
    np.testing.assert_allclose(np.array(single) / np.array(weights), single[0] / weights[0], rtol=2e-2)
    orders = {
        str(order): given(trace, [-9.0, *np.argsort(order)]) for order in itertools.permutations(range(5))
    }
    picked = dict(list(orders.items())[::5])
    for oracle in ("leave_one_out", "greedy"):
        card = faithfulness(
            trace,
            picked,
            1,
            removal=aw.evaluate.Removal(
                "zero", thresholds=(0.2, 0.4, 0.6, 0.8), oracle=oracle, special=False
            ),
            metrics=("comprehensiveness", "sufficiency"),
        )
        best = card.of("oracle")[0][:, None]
        others = np.stack([card.of(name)[0] for name in (*picked, "random")], axis=1)
        assert (others[0] <= best[0] + 1e-9).all()
        assert (others[1] >= best[1] - 1e-9).all()
        assert (others.std(axis=1) > 0.001).all()


def test_chance_never_wins_beyond_its_interval() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(12, 5))
    traces = [additive(list(row)) for row in weights]
    chosen = {
        "weights": [given(trace, [-9.0, *row]) for trace, row in zip(traces, weights, strict=True)],
        "drawn": [given(trace, [-9.0, *rng.permutation(5)]) for trace in traces],
    }
    card = faithfulness(traces, chosen, 1, removal=aw.evaluate.Removal("zero", thresholds=(0.2, 0.4, 0.6)))
    low, high = card.interval
    ours, drawn, random = (card.methods.index(name) for name in ("weights", "drawn", "random"))
    assert (card.mean[0, ours] > high[0, random]).all()
    assert (card.mean[1, ours] < low[1, random]).all()
    assert (low[:, drawn] <= high[:, random]).all(), "a drawn order is an order by chance"
    assert (low[:, random] <= high[:, drawn]).all()


def test_where_the_input_does_not_matter_all_score_as_chance(classified: Any) -> None:
    model = copy.deepcopy(classified.model)
    model.classifier.weight.data.zero_()
    trace = aw.trace(model, classified.tokenizer, "unbelievable cat")
    card = faithfulness(
        trace, {"mine": given(trace, [0, 1, 2, 3, 4, 0])}, 1, operator="pad", metrics=EVERY[:3]
    )
    np.testing.assert_allclose(card.samples, 0.0, atol=1e-12)


def test_fidelity_in_both_modes_and_kinds(classified: Any) -> None:
    values = given(classified, [0, 4, 3, 2, 1, 0])
    ids = classified.inputs["input_ids"][0].tolist()
    decision = int(classified.logits.argmax())
    cuts = [(range(1, 1 + k), range(1 + k, 5)) for k in (1, 2)]
    parts = [
        [run(classified, [MASK if i in g else t for i, t in enumerate(ids)]) for g in cut] for cut in cuts
    ]
    for label in range(3):
        hard = fidelity(
            classified,
            values,
            label,
            removal=aw.evaluate.Removal("mask", thresholds=(0.25, 0.5)),
            mode="phenomenon",
        ).samples[0, :, 0]
        right = decision == label
        expected = [[abs(right - int(part.argmax() == label)) for part in pair] for pair in parts]
        np.testing.assert_array_equal(hard, np.array(expected).T)
    soft = fidelity(
        classified, values, removal=aw.evaluate.Removal("mask", thresholds=(0.25, 0.5)), kind="probability"
    )
    whole = classified.logits.double().softmax(-1)[decision]
    expected = [[float(whole - part.softmax(-1)[decision]) for part in pair] for pair in parts]
    np.testing.assert_allclose(soft.samples[0, :, 0], np.array(expected).T, atol=1e-6)
    model = fidelity(classified, values, removal=aw.evaluate.Removal("mask", thresholds=(0.25, 0.5))).samples[
        0, :, 0
    ]
    expected = [[int(part.argmax() != decision) for part in pair] for pair in parts]
    np.testing.assert_array_equal(model, np.array(expected).T)


def test_characterization_and_its_limits() -> None:
    assert characterization(0.6, 0.2) == pytest.approx(2 / (1 / 0.6 + 1 / 0.8))
    assert characterization(0.6, 0.2, (0.9, 0.1)) == pytest.approx(characterization(0.6, 0.2, (9, 1)))
    np.testing.assert_array_equal(characterization([0, 0.5, 1, 0], [0.5, 1, 0, 1]), [0, 0, 1, 0])
    assert np.isnan(characterization([-0.1, 1.2, np.nan, 0.5], [0, 0, 0, -0.1])).all()
    with pytest.raises(ValueError, match="weights must be two numbers above zero"):
        characterization(0.5, 0.5, (0, 1))


def test_characterization_of_a_data_set_has_an_interval() -> None:
    hits = np.zeros((40, 2, 2, 1))
    hits[:24, 0, 0], hits[:8, 1, 0] = 1, 1  # fid+ 0.6, fid- 0.2
    hits[:, 1, 1] = 1
    names = {"metrics": ["fidelity_plus", "fidelity_minus"], "methods": ["a", "random"], "x": [0.1]}
    card = aw.results.Scorecard(hits, baselines=["random"], x_name="share", **names)
    result = characterization(card)
    assert result.mean[0, 0, 0] == pytest.approx(2 / (1 / 0.6 + 1 / 0.8))
    assert result.mean[0, 1, 0] == 0, "fid- = 1 is the limit"
    low, high = result.interval
    assert low[0, 0, 0] < result.mean[0, 0, 0] < high[0, 0, 0]
    assert 0.1 < high[0, 0, 0] - low[0, 0, 0] < 0.4
    interval = result.select(method="a").interval[0]
    assert interval[0, 0, 0] == low[0, 0, 0]
    with pytest.raises(ValueError, match="must have 'fidelity_plus'"):
        characterization(card.select(metric="fidelity_minus"))


def test_several_texts_methods_by_name_and_rows_of_maps(classified: Any) -> None:
    traces = aw.trace(classified.model, classified.tokenizer, ["unbelievable cat", "cat cat"])
    card = faithfulness(
        traces,
        {
            "gradient": "input_x_gradient",
            "l2": ("saliency", {}),
            "row": lambda trace: aw.rollout(trace).select(layer=-1).to_attributions("row", query="cls"),
        },
        1,
        removal=aw.evaluate.Removal("delete", thresholds=(0.5,)),
    )
    assert card.n_examples == len(traces) == 2
    assert card.methods == ("gradient", "l2", "row", "random", "oracle")
    alone = faithfulness(
        traces[1],
        aw.input_x_gradient(traces[1], 1),
        1,
        removal=aw.evaluate.Removal("delete", thresholds=(0.5,), draws=1),
    )
    np.testing.assert_allclose(card.of("gradient")[1], alone.samples[0, :, 0], atol=1e-12)
    assert "row" in card._repr_html_()
    listed = faithfulness(
        traces, ["input_x_gradient", ("saliency", {})], 1, removal=aw.evaluate.Removal("delete", draws=1)
    )
    assert listed.methods == ("input_x_gradient", "saliency", "random", "oracle")


def test_the_model_comes_back_as_it_was(classified: Any) -> None:
    model = classified.model
    before = copy.deepcopy(model.state_dict())
    hooks = [len(module._forward_hooks) for module in model.modules()]
    model.train()
    try:
        faithfulness(
            classified, "input_x_gradient", 1, removal=aw.evaluate.Removal("mean", thresholds=(0.5,))
        )
        assert model.training
    finally:
        model.eval()
    assert hooks == [len(module._forward_hooks) for module in model.modules()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_undefined_is_nan_with_the_reason(classified: Any) -> None:
    constant = faithfulness(classified, {"flat": given(classified, [1] * 6)}, 1, operator="mask")
    assert np.isnan(constant.of("flat")).all()
    assert not np.isnan(constant.of("random")).any()
    assert "flat is constant" in constant.warning
    norm = aw.targets.embedding_norm(0)
    card = faithfulness(
        classified,
        given(classified, [0, 1, 2, 3, 4, 0]),
        norm,
        removal=aw.evaluate.Removal("mask", thresholds=(0.5,)),
        metrics=EVERY[:3:2],
    )
    assert np.isfinite(card.samples[0, 0]).all()
    assert np.isnan(card.samples[0, 1]).all()
    assert "no probability" in card.warning


def test_one_token_and_none(classified: Any) -> None:
    trace = aw.trace(classified.model, classified.tokenizer, "cat")
    card = faithfulness(
        trace, given(trace, [0, 1, 0]), 1, removal=aw.evaluate.Removal("mask", thresholds=(1.0,))
    )
    assert np.isfinite(card.samples).all()
    bare = aw.trace(classified.model, None, input_ids=[1, 7, 2])
    alone = faithfulness(
        bare, given(bare, [0, 1, 0]), 1, removal=aw.evaluate.Removal("delete", thresholds=(1.0,))
    )
    assert np.isnan(alone.samples[0, 0]).all()


def test_bad_input_is_said(classified: Any, decoder: Any) -> None:
    values = given(classified, [0, 4, 3, 2, 1, 0])
    with pytest.raises(ValueError, match="Did you mean 'delete'"):
        faithfulness(classified, values, operator="delte")
    with pytest.raises(ValueError, match=r"no mask token\); possible are 'delete', 'zero'"):
        faithfulness(decoder, given(decoder, [0, 1, 2, 3, 4]), operator="mask")
    with pytest.raises(ValueError, match="Did you mean 'sufficiency'"):
        faithfulness(classified, values, operator="mask", metrics="suficiency")
    with pytest.raises(ValueError, match="another input than traces"):
        faithfulness(decoder, values, operator="delete")
    with pytest.raises(TypeError, match="to_attributions"):
        faithfulness(classified, aw.rollout(classified), operator="delete")
    with pytest.raises(ValueError, match=r"unit='\.\.\.'"):
        faithfulness(classified, {"a": values, "b": values.to("word")}, operator="mask")
    with pytest.raises(ValueError, match=r"use one, \.select"):
        faithfulness(classified, aw.input_x_gradient(classified, [0, 1]), operator="mask")
    with pytest.raises(ValueError, match="'delete' moves the tokens"):
        faithfulness(classified, values, aw.targets.embedding_norm(0), operator="delete")
    with pytest.raises(ValueError, match="shares of the features"):
        faithfulness(classified, values, removal=aw.evaluate.Removal("mask", thresholds=(5,)))
    with pytest.raises(ValueError, match="draws must be at least 1"):
        faithfulness(classified, values, removal=aw.evaluate.Removal("mask", draws=0))
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        faithfulness(classified, values, removal=aw.evaluate.Removal("mask", batch_size=0))
    with pytest.raises(ValueError, match="true label of every trace"):
        fidelity(classified, values, operator="mask", mode="phenomenon")
    with pytest.raises(ValueError, match="'positve' is not a class"):
        faithfulness(classified, values, "positve", operator="mask")
    with pytest.raises(ValueError, match="2 for 1 traces"):
        faithfulness(classified, [values, values], operator="mask")


@pytest.mark.slow
def test_comprehensiveness_and_sufficiency_equal_ferret(shared: Path, minilm: Any) -> None:
    from safetensors.torch import load_file

    folder = shared / "reference" / "lrp"
    encoder, tokenizer = minilm
    config = copy.deepcopy(encoder.config)
    config.num_labels = 3
    model = hf.BertForSequenceClassification(config).eval()
    model.bert.load_state_dict(encoder.state_dict(), strict=False)
    model.load_state_dict(load_file(folder / "models" / "minilm_head.safetensors"), strict=False)
    arrays = np.load(folder / "ferret_minilm.npz")
    trace = aw.trace(model, tokenizer, input_ids=arrays["input_ids"].tolist())
    names = ("gradxinput", "ig_pad", "attnlrp", "grad_l2")
    scores = {name: given(trace, arrays[f"scores.{name}"]) for name in names}
    n = len(trace.tokens) - 2
    shares = [round(0.1 * step, 1) for step in range(1, 11)]
    for ours, theirs in (("delete", "del"), ("mask", "mask")):
        card = faithfulness(
            trace,
            scores,
            0,
            removal=aw.evaluate.Removal(
                ours, thresholds=shares, rounding="floor", positive=True, oracle=None, draws=1
            ),
        )
        for name in names:
            # ferret takes sets that are equal once, and none that is empty.
            positive = int((arrays[f"scores.{name}"][1:-1] > 0).sum())
            sizes = [min(int(share * n), positive) for share in shares]
            once = [at for at, size in enumerate(sizes) if size and size not in sizes[:at]]
            result = card.of(name)[0][:, once].mean(axis=-1)
            expected = [arrays[f"aopc_{kind}.{theirs}_pos.{name}"] for kind in ("compr", "suff")]
            np.testing.assert_allclose(result, expected, atol=1e-5)


def test_several_texts_show_their_progress_as_one(classified: Any) -> None:
    from attnwidgets._progress import observing

    seen: list[tuple[int, int | None, str]] = []
    with observing(lambda *step: seen.append(step)):
        faithfulness(
            [classified] * 3, "input_x_gradient", 1, removal=aw.evaluate.Removal("mask", thresholds=(0.5,))
        )
    assert seen == [(done, 3, "scoring") for done in range(4)]
    seen.clear()
    values = given(classified, [0, 4, 3, 2, 1, 0])
    with observing(lambda *step: seen.append(step)):
        faithfulness(
            classified, values, 1, removal=aw.evaluate.Removal("mask", thresholds=(0.5,), batch_size=1)
        )
    assert {phase for *_, phase in seen} == {"removing"}


def test_help_describes_every_shared_option() -> None:
    for name in ("faithfulness", "infidelity", "single_removals", "importance_correlation"):
        described = getattr(aw.evaluate, name).__doc__
        assert "operator: How features are removed" in described
        assert "{operator}" not in described
