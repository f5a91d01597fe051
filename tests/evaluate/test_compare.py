"""Comparisons over a data set: the scores of each text by itself, shared, stored, resumed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.evaluate import (
    compare,
    complexity,
    effective_complexity,
    faithfulness,
    fidelity,
    infidelity,
    plausibility,
    single_removals,
)
from attnwidgets.explanations import Attributions
from tests.explanations.made import random_classifier
from tests.tracing import tiny

TEXTS = ["unbelievable cat", "cat", "cat cat unbelievable cat cat", "the cat"]
EVERY = ("comprehensiveness", "sufficiency", "log_odds", "fidelity_plus", "fidelity_minus", "monotonicity",
         "non_sensitivity", "gini", "entropy")  # fmt: skip


@pytest.fixture(scope="module")
def classifier() -> Any:
    return random_classifier().double(), tiny.wordpiece()


def methods() -> dict[str, Any]:
    return {"saliency": "saliency", "signed": ("input_x_gradient", {}), "length": lengths}


def lengths(trace: Any) -> Attributions:
    """A user's method: the lengths of tokens."""
    return Attributions([len(token) / 7 for token in trace.tokens], axis=trace.axes()[0], stack="self")


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-9, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["mask", "delete", "attention_mask", "zero"])
def test_each_text_scores_what_it_scores_alone(classifier: Any, operator: Any) -> None:
    model, tokenizer = classifier
    result = compare(
        methods(),
        EVERY,
        TEXTS,
        model,
        tokenizer,
        removal=aw.evaluate.Removal(operator, thresholds=(0.2, 0.5), batch_size=7),
    )
    traces = aw.trace(model, tokenizer, TEXTS)
    chosen = [0, 1, 2, 4]  # without chance, whose draws belong to a text
    plain = faithfulness(
        traces, methods(), removal=aw.evaluate.Removal(operator, thresholds=(0.2, 0.5)), metrics=EVERY[:3]
    )
    same(result["removal"].samples[:, :3][:, :, chosen], plain.samples[:, :, chosen])
    hard = fidelity(traces, methods(), removal=aw.evaluate.Removal(operator, thresholds=(0.2, 0.5)))
    same(result["removal"].samples[:, 3:][:, :, [0, 1, 2]], hard.samples[:, :, [0, 1, 2]])
    alone = single_removals(traces, methods(), operator=operator, metrics=EVERY[5:7])
    same(result["single_removals"].samples[:, :, chosen], alone.samples[:, :, chosen])
    read = {
        "saliency": [aw.saliency(t) for t in traces],
        "signed": [aw.input_x_gradient(t) for t in traces],
        "length": [lengths(t) for t in traces],
    }
    same(result["complexity"].samples, complexity(read, metrics=EVERY[7:]).samples)
    assert result.table.metrics == EVERY
    assert result.table.methods == ("saliency", "signed", "length", "random", "oracle")
    same(result.table.mean[:3, :3, 0], plain.mean[:, :3].mean(-1))


@pytest.mark.slow
def test_sums_counts_and_noise_are_compared_as_well(classifier: Any) -> None:
    chosen = {"saliency": "saliency", "length": lengths}
    metrics = ["infidelity", "effective_complexity", "max_sensitivity", "average_sensitivity"]
    result = compare(chosen, metrics, TEXTS[:3], *classifier, removal=aw.evaluate.Removal("mask", draws=4))
    traces = aw.trace(*classifier, TEXTS[:3])
    assert result.table.metrics == tuple(metrics)
    alone = {
        "infidelity": infidelity(traces, chosen, operator="mask", samples=64),
        "effective_complexity": effective_complexity(
            traces, chosen, removal=aw.evaluate.Removal("mask", oracle="leave_one_out")
        ),
    }
    same(result["effective_complexity"].of("saliency"), alone["effective_complexity"].of("saliency"))
    same(result["effective_complexity"].of("oracle"), alone["effective_complexity"].of("oracle"))
    # Its sets are drawn by a seed for each text; on a text the oracle leaves less than any method.
    ours, theirs = result["infidelity"], alone["infidelity"]
    assert (ours.of("oracle") <= ours.of("saliency") + 1e-12).all()
    assert ours.mean[0, 0, 0] == pytest.approx(theirs.mean[0, 0, 0], rel=0.5)
    moved = result["stability"]
    assert (moved.of("saliency") > 0).all()
    assert not moved.of("length").any(), "lengths do not see noise"
    with pytest.raises(ValueError, match="operator is missing"):
        compare(chosen, "infidelity", TEXTS, *classifier)


@pytest.mark.slow
def test_a_decoder_and_one_of_two_stacks_are_compared_as_well() -> None:
    gpt = tiny.build(tiny.TEXT["GPT-2"]).double()
    traces = [aw.trace(gpt, None, input_ids=ids) for ids in ([3, 17, 42, 8, 99], [4, 5], [9, 8, 7, 3])]
    t5 = tiny.build(tiny.SEQ2SEQ["T5"]).double()
    two = [aw.trace(t5, tiny.wordpiece(), text, target_text="cat") for text in TEXTS[:2]]
    for several, operator in ((traces, "delete"), (traces, "pad"), (two, "mask")):
        if operator == "pad":
            gpt.config.pad_token_id = 0
        result = compare(
            "saliency", "comprehensiveness", several, removal=aw.evaluate.Removal(operator, thresholds=(0.5,))
        )
        plain = faithfulness(
            several,
            "saliency",
            removal=aw.evaluate.Removal(operator, thresholds=(0.5,)),
            metrics="comprehensiveness",
        )
        same(result["removal"].samples[:, :, [0, 2]], plain.samples[:, :, [0, 2]])


def test_labels_and_rationales_of_a_data_set_are_used(classifier: Any) -> None:
    model, tokenizer = classifier
    texts = [
        {"text": "unbelievable cat", "label": 2, "rationale": [(13, 16)]},
        {"text": "the cat", "label": 0, "rationale": [(4, 7)]},
    ]
    result = compare(
        {"length": lengths},
        ["fidelity_plus", "recall"],
        texts,
        model,
        tokenizer,
        removal=aw.evaluate.Removal("mask", thresholds=(0.5,)),
        target="label",
    )
    traces = aw.trace(model, tokenizer, [text["text"] for text in texts])
    hard = fidelity(
        traces,
        {"length": lengths},
        [2, 0],
        removal=aw.evaluate.Removal("mask", thresholds=(0.5,)),
        mode="phenomenon",
    )
    same(result["removal"].of("length"), hard.of("length")[:, :1])
    gold = plausibility(traces, {"length": lengths}, [text["rationale"] for text in texts], metrics="recall")
    same(result["plausibility"].of("length"), gold.of("length"))


def test_rationales_may_be_numbers_of_elements(classifier: Any) -> None:
    def told(rationale: Any) -> np.ndarray:
        texts = [{"text": "unbelievable cat", "rationale": rationale}]
        return compare({"length": lengths}, ["auprc"], texts, *classifier)["plausibility"].of("length")

    expected = told([(13, 16)])  # [CLS] un ##believ ##able cat [SEP]
    assert np.isfinite(expected).all()
    same(told([4]), expected)
    assert (told([2]) != expected).all()


class Counted:
    """A method that writes down its calls, and is interrupted at a call."""

    def __init__(self, log: Any, interrupt: int) -> None:
        self.log, self.interrupt = log, interrupt
        log.touch()

    def __call__(self, trace: Any) -> Attributions:
        with self.log.open("a") as file:
            file.write(f"{trace.text}\n")
        if len(self.calls()) == self.interrupt:
            raise KeyboardInterrupt
        return lengths(trace)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.mark.slow
def test_scores_are_kept_by_content_and_a_run_goes_on_where_it_stopped(
    classifier: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    model, tokenizer = classifier
    monkeypatch.setattr(sys.modules[compare.__module__], "WINDOW", 1)
    counted = Counted(tmp_path / "log", 3)

    def run(**more: Any) -> Any:
        chosen = {"length": counted} | more.pop("methods", {})
        texts = more.pop("texts", TEXTS)
        removal = aw.evaluate.Removal("mask", thresholds=more.pop("thresholds", None))
        return compare(
            chosen, ["deletion", "gini"], texts, more.pop("model", model), tokenizer, removal=removal,
            cache=tmp_path / "scores", **more,
        )  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        run()
    whole = run()
    assert counted.calls() == [*TEXTS[:3], *TEXTS[2:]], "finished texts are not scored again"
    assert whole.reused == 2
    again = run(texts=TEXTS[::-1])
    assert len(counted.calls()) == 5
    for family in whole:
        assert np.array_equal(again[family].samples, whole[family].samples[::-1], equal_nan=True)
    more = run(methods={"other": "saliency"})
    assert len(counted.calls()) == 5
    same(more["removal"].of("length"), whole["removal"].of("length"))
    run(thresholds=(0.3,))
    assert len(counted.calls()) == 9, "other options are other scores"
    other = random_classifier().double()
    with torch.no_grad():
        other.classifier.bias += 1
    run(model=other)
    assert len(counted.calls()) == 13, "other weights are another model"
    with aw.ablate_heads(model, (0, 0)):
        run()
    assert len(counted.calls()) == 17, "a model with an intervention is another model"
    for file in (tmp_path / "scores").rglob("*.safetensors"):
        file.write_bytes(b"broken")
    assert run().reused == 0
    assert run().reused == 4


def test_an_interrupt_costs_no_more_than_a_few_long_texts(
    classifier: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys.modules[compare.__module__], "LONG", 100)
    texts = [" ".join(["cat"] * (20 + at)) for at in range(4)]
    counted = Counted(tmp_path / "log", 4)

    def run() -> Any:
        return compare({"slow": counted}, "gini", texts, *classifier, cache=tmp_path / "scores")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert run().reused == 2, "a shard closes with the text that is too many"


def test_processes_share_the_texts(classifier: Any) -> None:
    model, tokenizer = classifier
    alone = compare("saliency", "comprehensiveness", TEXTS, model, tokenizer, operator="mask")
    shared = compare("saliency", "comprehensiveness", TEXTS, model, tokenizer, operator="mask", jobs=2)
    same(shared["removal"].samples, alone["removal"].samples)


def test_a_model_that_ignores_its_input_makes_every_method_score_as_chance() -> None:
    model = random_classifier().double()
    with torch.no_grad():
        model.classifier.weight.zero_()
    result = compare(lengths, "comprehensiveness", TEXTS, model, tiny.wordpiece(), operator="mask")
    assert not result["removal"].of("lengths")[0].any()
    assert not np.nan_to_num(result["removal"].samples).any()


def test_it_is_shown_as_a_table_and_a_plot(classifier: Any) -> None:
    result = compare(methods(), EVERY, TEXTS, *classifier, operator="mask")
    shown = result._repr_html_()
    assert "saliency" in shown
    assert "fidelity plus" in shown
    assert "oracle" in shown
    assert len(result.figure().axes) == 5
    assert len(result.figure("complexity", kind="table").axes) >= 1


def bad(classifier: Any) -> list[Any]:
    def call(metrics: Any = "gini", dataset: Any = ("cat",), chosen: Any = "saliency", **more: Any) -> Any:
        return lambda: compare(chosen, metrics, dataset, *classifier, **more)

    return [
        (call("comprehensivness"), ValueError, "Did you mean 'comprehensiveness'"),
        (call("comprehensiveness"), ValueError, "operator is missing"),
        (call(dataset=["cat", " "]), ValueError, r"dataset\[1\] has an empty text"),
        (call(dataset=[]), ValueError, "dataset is empty"),
        (call(dataset="cat"), TypeError, "texts"),
        (call(dataset=[3]), TypeError, r"dataset\[0\] is a int"),
        (call("recall"), ValueError, "no rationale"),
        (call(target="label"), ValueError, "no label"),
        (call(chosen="salience"), ValueError, "Did you mean 'saliency'"),
        (call(chosen="attention"), TypeError, "is a map"),
        (call("deletion", operator="blank"), ValueError, "operator 'blank'"),
        (call(jobs=0), ValueError, "jobs"),
        (lambda: compare("saliency", "gini", ["cat"]), ValueError, "model is missing"),
    ]


@pytest.mark.parametrize("case", range(13))
def test_bad_input_is_named(classifier: Any, case: int) -> None:
    call, error, message = bad(classifier)[case]
    with pytest.raises(error, match=message):
        call()
