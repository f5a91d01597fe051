"""Scores as pairs of parts: to plain references, to recorded attention, and on compiled models."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.families import FAMILIES, IDS, MORE, Family
from tests.zoo.made import made

if TYPE_CHECKING:
    from pathlib import Path

SEVERAL = ("BERT", "ModernBERT", "GPT-2", "OPT", "Qwen3", "Gemma 2", "Cohere", "T5", "OLMo 2", "GLM-4", "ViT")
# Blocks whose states do not follow from each other, or that read another sequence.
REFUSED = {"YOLOS": "something unknown lies between", "XLNet": "no description fits"}
GPT_OSS = Family(
    lambda: hf.GptOssForCausalLM(
        hf.GptOssConfig(vocab_size=tiny.VOCAB, **tiny.SMALL, **tiny.GQA, num_local_experts=4, pad_token_id=0)
    )
)
# Norms of queries and keys by head, a factor of rotations, ALiBi, and sinks.
OTHER = {
    "StableLM, q/k norm": Family(
        lambda: tiny._plain("StableLm", "ForCausalLM", **tiny.GQA, qk_layernorm=True)
    ),
    "Cohere, q/k norm": Family(
        lambda: tiny._plain("Cohere", "ForCausalLM", **tiny.GQA, use_qk_norm=True, pad_token_id=0)
    ),
    "Llama, YaRN": Family(
        lambda: tiny._plain(
            "Llama", "ForCausalLM", **tiny.GQA, max_position_embeddings=64,
            rope_parameters={
                "rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 16,
            },
        )
    ),
    "Falcon, ALiBi": Family(
        lambda: hf.FalconForCausalLM(
            hf.FalconConfig(
                vocab_size=tiny.VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True
            )
        )
    ),
    "GPT-OSS": GPT_OSS,
}  # fmt: skip
EVERY = FAMILIES | MORE | OTHER
# No rule carries tokens through their feed-forward layers.
EXPERTS = {"Mixtral", "Qwen3 MoE", "OLMoE", "Granite MoE", "Phi-MoE", "GPT-OSS", "Switch Transformers"}


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gpt2", "bert", "t5"])
def test_pairs_are_those_of_plain_code(shared: Path, name: str) -> None:
    folder = shared / "reference" / "why"
    about = json.loads((folder / "manifest.json").read_text("utf-8"))[name]
    with np.load(folder / f"{name}.npz") as file:
        reference = dict(file)
    config = getattr(hf, about["config"])(**json.loads(str(reference["config"])))
    model = getattr(hf, about["model"])(config).eval()
    weights = {key[2:]: torch.tensor(value) for key, value in reference.items() if key.startswith("w/")}
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    trace = aw.trace(model.double(), None, input_ids=reference["ids"].tolist())
    # transformers' RMSNorm computes in float32 in a model of float64.
    close = {"atol": 1e-10 if name in ("gpt2", "bert") else 1e-5, "rtol": 0}
    for tag in about["cells"]:
        layer, head, query, key = map(int, tag.split("."))
        for expected, foil in {"rivals": "others", "row": "row", "token 1": 1, "": None}.items():
            why = aw.why(trace, query, key, layer=layer, head=head, foil=foil)
            order = [why.parts.index(part) for part in reference[f"{tag}/names"]]
            assert len(order) == len(why.parts)
            at = f"{tag}/contrast/{expected}" if expected else f"{tag}/pairs"
            np.testing.assert_allclose(why.pairs[np.ix_(order, order)], reference[at], **close)
            if expected:
                bias = why.given.get("position bias", 0.0)
                np.testing.assert_allclose(bias, reference[f"{tag}/bias/{expected}"], **close)


@pytest.mark.slow
def test_parts_of_a_trained_model_are_those_of_hooks(shared: Path, smollm2: Any) -> None:
    model, tokenizer = smollm2
    with np.load(shared / "reference" / "why" / "smollm2.npz") as file:
        reference = dict(file)
    for number in range(3):
        cell = json.loads(str(reference[f"{number}/cell"]))
        trace = aw.trace(model.float(), tokenizer, cell["text"])
        why = aw.why(trace, cell["query"], cell["key"], layer=cell["layer"], head=cell["head"])
        order = [why.parts.index(part) for part in reference[f"{number}/names"]]
        # Single precision, and 30 to 90 of pairs that cancel.
        assert why.total == pytest.approx(float(reference[f"{number}/total"]), abs=1e-5)
        np.testing.assert_allclose(why.asks[order], reference[f"{number}/ask"], atol=1e-5)
        np.testing.assert_allclose(why.offers[order], reference[f"{number}/offer"], atol=1e-5)
        assert sum(map(abs, why.sizes)) == pytest.approx(float(reference[f"{number}/pairs_abs"]), rel=1e-5)


def contrast(trace: Any, why: Any, stack: str) -> float:
    """The total by recorded attention alone: log A_ij less the foil's mean of log A_ik."""
    weights = trace.layer_array(why.layer, stack)[why.head, why.query].astype(np.float64)
    some = why.foil_weights > 0
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return float(logs[why.key] - why.foil_weights[some] @ logs[some])


@pytest.mark.parametrize(
    "family", [name if name in SEVERAL else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]
)
def test_pairs_sum_to_what_attention_says(family: str) -> None:
    trace = EVERY[family].traced()
    for stack in trace.stacks:
        layers = trace.layers(stack)
        cells = [
            (layer, head, query, 4) for layer in (layers[0], layers[-1]) for head, query in ((0, 5), (3, 5))
        ]
        if stack in ("decoder", "cross") or family in REFUSED:
            with pytest.raises(UnsupportedModelError, match=REFUSED.get(family, "another sequence")):
                aw.why(trace, 1, 0, layer=layers[-1], head=0, stack=stack)
            continue
        for layer, head, query, key in cells:
            for by in ("component",) if family in EXPERTS else ("component", "token"):
                for foil in ("others", "row", 5):
                    why = aw.why(trace, query, key, layer=layer, head=head, foil=foil, by=by, stack=stack)
                    # Weights are float32, and a logarithm has their relative error.
                    assert why.total == pytest.approx(contrast(trace, why, stack), abs=1e-5)


@pytest.mark.parametrize("family", ["BERT", "Llama", "T5"])
def test_the_total_is_the_log_odds_and_how_undecided_the_others_are(family: str) -> None:
    trace = FAMILIES[family].traced(torch.float64)
    why = aw.why(trace, 6, 2, layer=1, head=1)
    rest = why.foil_weights[why.foil_weights > 0]
    entropy = -float(rest @ np.log(rest))
    assert why.total == pytest.approx(np.log(why.attention / (1 - why.attention)) + entropy, abs=1e-6)
    # A foil and the key, exchanged.
    forward, backward = (aw.why(trace, 6, key, layer=1, head=1, foil=foil) for key, foil in ((2, 5), (5, 2)))
    np.testing.assert_allclose(forward.pairs, -backward.pairs, atol=1e-12)


def test_what_softmax_removes_is_in_no_contrast() -> None:
    model = FAMILIES["BERT"].model(torch.float64)
    every = []
    for _ in range(2):
        trace = aw.trace(model, None, input_ids=IDS)
        every.append([aw.why(trace, 6, 2, layer=1, head=1, foil=foil) for foil in ("others", 4, None)])
        attention = model.bert.encoder.layer[1].attention.self
        attention.key.bias.data += torch.linspace(-3, 3, 32, dtype=torch.float64)
    (others, token, raw), (others_after, token_after, raw_after) = every
    np.testing.assert_allclose(others.pairs, others_after.pairs, atol=1e-12)
    np.testing.assert_allclose(token.pairs, token_after.pairs, atol=1e-12)
    assert abs(raw.total - raw_after.total) > 0.1
    assert "leaves attention as it is" in raw.warning
    assert not others.warning


@pytest.mark.parametrize("groups", ["kind", 1, 2, {"MLP 0": "early", "head 0.1": "early"}])
def test_groups_sum_to_the_same(groups: Any) -> None:
    why = aw.why(FAMILIES["GPT-2"].traced(), 6, 2, layer=1, head=1)
    grouped = why.to(groups)
    assert grouped.total == pytest.approx(why.total, abs=1e-12)
    assert len(grouped.parts) < len(why.parts)
    kinds = {"early": ("MLP 0", "head 0.1"), "heads": [f"head 0.{head}" for head in range(4)]}
    for name in set(kinds) & set(grouped.parts):
        members = [why.parts.index(part) for part in kinds[name]]
        assert grouped.asks[grouped.parts.index(name)] == pytest.approx(why.asks[members].sum(), abs=1e-12)
        assert grouped.offers[grouped.parts.index(name)] == pytest.approx(
            why.offers[members].sum(), abs=1e-12
        )
    for of in ("pairs", "asks", "offers"):
        shares = grouped.top(1, of)
        assert sum(share.value for share in shares) == pytest.approx(why.total, abs=1e-9)
        assert "other" in (shares[-1].query or shares[-1].key)


def test_words_are_sums_over_their_tokens() -> None:
    trace = aw.trace(*aw.demo_model("encoder"), "A bewildering unputdownable thriller.")
    tokens, words = (aw.why(trace, 3, 2, layer=3, head=1, by=by) for by in ("token", "word"))
    assert len(words.parts) < len(tokens.parts)
    assert words.total == pytest.approx(tokens.total, abs=1e-9)
    spans = trace.axes("self")[0].units["word"].spans
    for number, span in enumerate(spans):
        assert words.asks[number] == pytest.approx(tokens.asks[list(span)].sum(), abs=1e-9)


def test_content_and_position_sum_to_the_total() -> None:
    for family, split in (("Llama", "turned"), ("GPT-2", "embedded"), ("T5", "biased")):
        why = aw.why(FAMILIES[family].traced(), 6, 2, layer=1, head=1)
        shares = why.place
        assert shares is not None
        assert sum(shares) == pytest.approx(why.total, abs=1e-5), split
    # Of tokens that are all the same, in the first layer, only the position differs.
    trace = aw.trace(FAMILIES["Llama"].model(), None, input_ids=[7] * 8)
    shares = aw.why(trace, 6, 2, layer=0, head=1).place
    assert shares is not None
    assert abs(shares.content) < 1e-5 < abs(shares.position)


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "OLMo 2"])
def test_attention_without_a_part_is_that_of_a_model_without_it(family: str) -> None:
    """Taken out of the projection's input, in the model's modules: the norm follows."""
    model = EVERY[family].model()
    block = model.model.layers[1]
    written: dict[str, Any] = {}
    for name, module in (("MLP 0", model.model.layers[0]),):
        module.mlp.register_forward_hook(lambda _, __, output, name=name: written.update({name: output}))
    if family == "OLMo 2":  # a block's update passes a norm
        model.model.layers[0].post_feedforward_layernorm.register_forward_hook(
            lambda _, __, output: written.update({"MLP 0": output})
        )
    block.register_forward_pre_hook(
        lambda _, args, kwargs: written.update(x=(*args, *kwargs.values())[0]), with_kwargs=True
    )
    trace = aw.trace(model, None, input_ids=IDS)
    why = aw.why(trace, 6, 2, layer=1, head=1)
    read = getattr(block, "input_layernorm", torch.nn.Identity())
    for side, token, linear in (("key", 2, block.self_attn.k_proj), ("query", 6, block.self_attn.q_proj)):
        removal = why.without("MLP 0", side)
        with torch.no_grad():
            model(torch.tensor([IDS]))
            replaced = torch.nn.functional.linear(
                read(written["x"] - written["MLP 0"]), linear.weight, linear.bias
            )

            def swap(_: Any, __: Any, output: Any, token: int = token, replaced: Any = replaced) -> Any:
                output[:, token] = replaced[:, token]
                return output

            handle = linear.register_forward_hook(swap)
            model.set_attn_implementation("eager")
            row = model(torch.tensor([IDS]), output_attentions=True).attentions[1][0, 1, 6]
            handle.remove()
        np.testing.assert_allclose(removal.row, row, atol=1e-6)
        assert removal.after == pytest.approx(float(row[2]), abs=1e-6)
        assert removal.before == pytest.approx(why.attention)
        assert (removal.random == why.without("MLP 0", side).random).all()


def test_a_removal_without_a_norm_is_what_the_shares_predict() -> None:
    why = aw.why(FAMILIES["BERT"].traced(), 6, 2, layer=1, head=1)
    for side in ("query", "key"):
        removal = why.without(["MLP 0", "head 0.2"], side)
        assert removal.after == pytest.approx(removal.predicted, abs=1e-6)
        assert removal.is_predicted
        assert "predict" not in repr(removal)


def test_a_removal_that_the_shares_do_not_predict_says_so() -> None:
    """In a block with a norm, a part that is all of the state takes the norm with it."""
    why = aw.why(made_trace("induction", "fadebcfadeb"), 11, 6, layer=1, head=0)
    removal = why.without(1)
    assert removal.parts == ("head 0.0",)
    assert removal.holds
    assert (removal.before, removal.after) == (pytest.approx(1), pytest.approx(0, abs=1e-6))
    assert removal.random.min() > 0.99


def made_trace(name: str, text: str) -> Any:
    settings = {"letters": "abcdefgh", "length": 16} if name == "induction" else {}
    return aw.trace(*made(name, **settings), text)


def test_the_induction_head_asks_for_its_token_after_the_head_before() -> None:
    why = aw.why(made_trace("induction", "fadebcfadeb"), 11, 6, layer=1, head=0, foil=3)
    [share] = [share for share in why.top(None) if abs(share.value) > 1e-3]
    assert share[:2] == ("token", "head 0.0")
    assert share.value == pytest.approx(why.total, rel=1e-6)
    assert share.value == pytest.approx(77.187, abs=1e-3)
    source = aw.why(made_trace("induction", "fadebcfadeb"), 11, 6, layer=1, head=0, foil=3, by="token")
    assert source.top(1)[0][:2] == ("b [11]", "b [5]")
    before = aw.why(made_trace("induction", "fadebcfadeb"), 5, 4, layer=0, head=0)
    assert before.top(1)[0][:2] == ("position", "position")
    assert before.place is not None
    assert before.place.position == pytest.approx(before.total, rel=1e-6)


@pytest.mark.slow
def test_the_largest_pair_is_the_circuit_of_every_text() -> None:
    chance = random.Random(0)
    model, tokenizer = made("induction", letters="abcdefgh", length=16)
    cells = 0
    for _ in range(40):
        text = "".join(chance.choice("abcdefgh") for _ in range(chance.randint(4, 16)))
        trace = aw.trace(model, tokenizer, text)
        for at in range(2, len(text) + 1):
            if model.truth.rule(text, at).answer is None:
                continue
            for key in (number for number in range(2, at + 1) if text[number - 2] == text[at - 1]):
                share = aw.why(trace, at, key, layer=1, head=0, foil=0).top(1)[0]
                assert share[:2] == ("token", "head 0.0")
                cells += 1
    assert cells > 50


def test_both_hops_ask_for_what_came_before() -> None:
    chance = random.Random(0)
    model, tokenizer = made("two_hop")
    for _ in range(10):
        letters = chance.sample("abcdefgh", 6)
        pairs = ["".join(letters[number] for number in pair) for pair in ((0, 1), (1, 2), (3, 4), (5, 3))]
        chance.shuffle(pairs)
        trace = aw.trace(model, tokenizer, " ".join(pairs) + " " + letters[0])
        last = len(trace.tokens) - 1
        for layer, asks in ((1, "token"), (2, "head 1.0")):
            key = int(np.asarray(aw.attention(trace).layer(layer))[0, last].argmax())
            why = aw.why(trace, last, key, layer=layer, head=0)
            assert max(why.top(None), key=lambda share: share.value)[:2] == (asks, "head 0.0")
            assert why.without(1).holds


def test_cells_without_a_score_are_refused() -> None:
    trace = FAMILIES["Llama"].traced()
    with pytest.raises(ValueError, match=r"token 2 .* does not read token 5 .* masked"):
        aw.why(trace, 2, 5, layer=0, head=0)
    with pytest.raises(ValueError, match=r"foil: token 2 .* does not read token 5"):
        aw.why(trace, 2, 1, layer=0, head=0, foil=5)
    with pytest.raises(ValueError, match="nothing to choose between"):
        aw.why(trace, 0, 0, layer=0, head=0)
    with pytest.raises(ValueError, match="the key itself"):
        aw.why(trace, 3, 1, layer=0, head=0, foil=1)
    with pytest.raises(IndexError, match="head 4 is out of range"):
        aw.why(trace, 3, 1, layer=0, head=4)
    with pytest.raises(ValueError, match="by"):
        aw.why(trace, 3, 1, layer=0, head=0, by="letter")
    why = aw.why(trace, 3, 1, layer=1, head=0)
    with pytest.raises(ValueError, match="parts"):
        why.without("MLP 7")
    with pytest.raises(ValueError, match="one by one"):
        why.to("kind").without("heads")
    with pytest.raises(ValueError, match="more than are left"):
        why.without(why.parts[:-1])


def test_attention_that_is_not_of_these_scores_is_refused() -> None:
    model = FAMILIES["Llama"].model()
    with aw.edit_attention(model, (1, 1)):
        trace = aw.trace(model, None, input_ids=IDS)
        with pytest.raises(UnsupportedModelError, match="layer 1, LlamaDecoderLayer, does not compute"):
            aw.why(trace, 6, 2, layer=1, head=1)


@pytest.mark.parametrize("family", ["BLOOM", "GPT-Neo", "MPNet"])
def test_blocks_without_queries_and_keys_are_refused_by_name(family: str) -> None:
    trace = Family(tiny.OUTSIDE[family]).traced()
    with pytest.raises(UnsupportedModelError, match=r"needs queries and keys, and \w+Block|Layer computes"):
        aw.why(trace, 6, 2, layer=0, head=1)


def test_in_words() -> None:
    why = aw.why(made_trace("induction", "fadebcfadeb"), 11, 6, layer=1, head=0, foil=3)
    assert repr(why) == (
        "<Why by component: 'b' reads 'c' with 1 in head 1.0. Rather than 'd', its score is +77.19. "
        "'b' asks with token +77.19. 'c' offers head 0.0 +77.19.>"
    )
    rows = why.to_rows()
    assert len(rows) == len(why.parts) ** 2
    assert sum(row["share"] for row in rows) == pytest.approx(why.total)


def test_half_precision_is_split_to_its_precision() -> None:
    trace = FAMILIES["Llama"].traced(torch.bfloat16)
    why = aw.why(trace, 6, 2, layer=1, head=1)
    weights = np.asarray(aw.attention(trace).layer(1))[1, 6]
    assert why.attention == pytest.approx(float(weights[2]))
