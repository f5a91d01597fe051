"""The truth of a model holds: roles, evidence, and every single ablation."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

import attnwidgets as aw
from attnwidgets.statistics.induction import fitting
from tests.zoo.made import EVERY, SMALL, made, traced


@pytest.mark.parametrize("name", SMALL)
def test_every_head_has_a_role_and_an_ablation(name):
    model, _, trace = traced(name)
    every = {(layer, head) for layer in range(trace.n_layers()) for head in range(trace.n_heads())}
    assert set(model.truth.heads) == set(model.truth.ablations) == every
    told = repr(model.truth).splitlines()
    assert told[0] == f"{model.truth.name}: {model.truth.does}"
    assert len(told) == 1 + len(every)
    for line, ((layer, head), role) in zip(told[1:], model.truth.heads.items(), strict=True):
        assert line == f"  head {layer}.{head}: {role}; without it: {model.truth.ablations[layer, head].says}"


@pytest.mark.parametrize("name", EVERY)
def test_the_model_gives_the_known_answer(name):
    model, tokenizer, trace = traced(name)
    row = trace.logits if trace.logits.dim() == 1 else trace.logits[model.truth.at]
    answer, best = model.truth.answer(trace.tokens), int(row.argmax())
    label = model.config.id2label.get(best) if name in ("additive", "negation", "histogram") else None
    assert (label or tokenizer.convert_ids_to_tokens(best)) == answer


def right(model, tokenizer, trace, answer):
    """The probability of the right answer."""
    row = trace.logits if trace.logits.dim() == 1 else trace.logits[model.truth.at]
    labels = model.config.label2id
    index = labels[answer] if answer in labels else tokenizer.convert_tokens_to_ids(answer)
    return float(row.softmax(-1)[index])


@pytest.mark.parametrize("name", SMALL)
def test_every_ablation_does_what_is_known(name):
    model, tokenizer, trace = traced(name)
    answer = model.truth.answer(trace.tokens)
    for head, ablation in model.truth.ablations.items():
        without = trace.rerun(aw.ablate_heads(trace, head))
        if not ablation.changes:
            assert float((without.logits - trace.logits).abs().max()) == 0.0, head
            assert ablation.probability is None
        elif ablation.probability is not None:
            result = right(model, tokenizer, without, answer)
            assert result == pytest.approx(ablation.probability, abs=1e-6), head
            assert right(model, tokenizer, trace, answer) > 0.9
        else:
            # The letter that the head reads is as good as absent: its weight is lost, or its "not".
            letters = [letter for index, letter in enumerate(trace.tokens[1:]) if index != head[1]]
            weights = model.truth.weights
            score = sum(weights.get(letter, 0) for letter in letters)
            score *= (-1) ** (letters.count("n") if name == "negation" else 0)
            assert without.logits.tolist() == pytest.approx([-score, score], abs=1e-5), head


def test_both_decoys_of_induction_together_change_nothing():
    _, _, trace = traced("induction")
    without = trace.rerun(aw.ablate_heads(trace, [(0, 1), (1, 1)]))
    assert torch.equal(without.logits, trace.logits)
    rows = aw.attention(trace).values
    # The decoys do attend: each letter to its copy, and to <s>.
    assert rows[0, 1, -1, [5, 11]].tolist() == [0.5, 0.5]
    assert rows[1, 1, -1, 0] == 1.0


def test_two_hops_need_both_heads_in_this_order():
    model, tokenizer, trace = traced("two_hop", "bcefaba")
    assert trace.predictions(1)[0].label == "c"
    # Another first link, a to e; the other tokens stay where they are.
    other = aw.trace(model, tokenizer, "bcefaea")
    assert other.predictions(1)[0].label == "f"
    # The output of either hop, carried over into the other text, brings the first answer back.
    for head in ((1, 0), (2, 0)):
        patched = other.rerun(aw.ablate_heads(other, head, "patch", reference=trace))
        assert patched.predictions(1)[0].label == "c", head
    # The second hop reads the first hop's output, and not the reverse: without the first, the second's
    # output is lost; without the second, the first hop's attention stays as it is.
    first, second = (trace.rerun(aw.ablate_heads(trace, head)) for head in ((1, 0), (2, 0)))
    rows = [aw.attention(item).values for item in (trace, first, second)]
    assert rows[0][2, 0, -1, 2] == rows[0][1, 0, -1, 6] == rows[2][1, 0, -1, 6] == 1.0
    assert rows[1][2, 0, -1, 0] == 1.0


@pytest.mark.parametrize("name", EVERY)
def test_replacing_evidence_changes_what_is_right(name):
    """Each token of the evidence matters: some other letter instead changes the answer or its score."""
    model, tokenizer, trace = traced(name)
    letters = list(trace.tokens[1:])
    evidence = model.truth.evidence(letters)
    assert evidence
    for position in evidence:
        logits = []
        for letter in model.truth.letters:
            changed = [*letters[: position - 1], letter, *letters[position:]]
            with torch.no_grad():
                outputs = model(**tokenizer("".join(changed), return_tensors="pt")).logits[0]
            logits.append(outputs if outputs.dim() == 1 else outputs[model.truth.at])
        assert max(float((logit - logits[0]).abs().max()) for logit in logits) > 0.4, position


def test_evidence_takes_text_tokens_spaces_and_positions():
    truth = made("induction")[0].truth
    expected = {5: "an earlier copy of the letter", 6: "what followed it, which is copied"}
    assert truth.evidence("fadebcfadeb") == expected | {11: "the letter that is looked for"}
    assert truth.evidence(["<s>", *"fadebcfadeb"]) == truth.evidence("fad ebc fadeb")
    assert list(truth.evidence("fadebcfadeb", at=8)) == [2, 3, 8]
    assert truth.answer("fadebcfadeb", at=-2) == "b"
    with pytest.raises(ValueError, match="at must be a token of the text, 0 to 3, not 4"):
        truth.evidence("abc", at=4)
    with pytest.raises(ValueError, match=r"text holds 'z'; the letters are 'abcdefghijklmnop'"):
        truth.evidence("abz")
    with pytest.raises(ValueError, match="text has 33 letters; the model reads at most 32"):
        truth.answer("a" * 33)


@pytest.mark.parametrize("how", ["all", "different"])
def test_what_counts_in_one_length_only_says_so(how):
    truth = made("histogram", how=how)[0].truth
    assert "exactly 10 letters" in repr(truth)
    with pytest.raises(ValueError, match="text has 3 letters; this model counts in texts of exactly 10"):
        truth.evidence("aba")


def test_a_copy_keeps_the_truth_and_so_does_another_precision():
    model, tokenizer = aw.zoo.induction("abcdefgh", 16)
    before = set(vars(model))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model).half()):
        assert other.truth == model.truth
        assert other.truth.evidence("abca") == model.truth.evidence("abca")
        assert aw.trace(other, tokenizer, "fadebcfadeb").predictions(1)[0].label == "c"
    assert not any("truth" in name for name in model.state_dict())
    assert not isinstance(model.truth, torch.nn.Module)
    assert set(vars(model)) == before


def test_a_model_from_files_has_its_truth_again(tmp_path):
    model, _ = aw.zoo.dyck("<>{}", depth=2, length=12)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not hasattr(loaded, "truth")
    assert aw.zoo.truth_of(loaded) == model.truth == aw.zoo.truth_of(model)
    assert aw.zoo.truth_of(loaded).answer("<{}") == ">"
    recurrent, _ = aw.zoo.last_marked("abc", 9, marker="!", beta=0.5)
    recurrent.save_pretrained(tmp_path / "recurrent")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "recurrent")
    assert aw.zoo.truth_of(loaded) == recurrent.truth
    other, _ = aw.zoo.histogram("all", "xyz", 5)
    other.save_pretrained(tmp_path / "other")
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "other")
    assert aw.zoo.truth_of(loaded) == other.truth


def test_a_model_of_which_nothing_is_known_is_refused():
    model = AutoModelForCausalLM.from_config(made("induction")[0].config)
    assert aw.zoo.truth_of(model) == made("induction")[0].truth
    model.config.zoo = {"name": "induction", "sizes": 3}
    with pytest.raises(ValueError, match=r"model\.config\.zoo is not what aw\.zoo wrote"):
        aw.zoo.truth_of(model)
    for junk in ({"name": "truth_of"}, "induction", None):
        model.config.zoo = junk
        with pytest.raises(ValueError, match=r"no known truth: this GPT2LMHeadModel has no \.truth"):
            aw.zoo.truth_of(model)


def test_making_models_leaves_the_readers_settings_alone():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    try:
        models = [getattr(aw.zoo, name)(**settings)[0] for name, (settings, _) in EVERY.items()]
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for model in models for p in model.parameters()} == {torch.float32}
    assert torch.equal(torch.rand(3), expected)
    assert not any(model.training for model in models)
    again = [getattr(aw.zoo, name)(**settings)[0] for name, (settings, _) in EVERY.items()]
    for first, second in zip(models, again, strict=True):
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            np.testing.assert_array_equal(a.detach(), b.detach())


def test_the_induction_head_is_found_by_its_score_and_in_the_explorer():
    model, tokenizer = made("induction")
    length, repeats = fitting(model, tokenizer)
    scores = aw.statistics.induction_score(model, tokenizer, length=length, repeats=repeats)["induction"]
    assert scores[1, 0] == pytest.approx(1.0, abs=1e-6)
    assert np.delete(scores.reshape(-1), 2).max() < 0.2
    assert (length, repeats) == (14, 2)
    patterns = aw.statistics.head_patterns(traced("induction")[2])
    assert [(item.layer, item.head) for item in patterns.top("previous", 1)] == [(0, 0)]


def test_large_models_are_scored_as_the_authors_do(minilm):
    assert fitting(*minilm) == (25, 4)
