from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.explanations.mixing.alti import alti, alti_logit
from attnwidgets.explanations.mixing.direct_logit_attribution import direct_logit_attribution
from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.archive import load
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.steps import Affine, Pointwise
from attnwidgets.tracing.anatomy.output_heads import head_of
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.units import Unit
from tests.explanations.mixing.against_authors import decoder_traces, numbers
from tests.tracing import tiny
from tests.tracing.families import FAMILIES, MORE, needs

IDS = [5, 17, 31, 9, 44, 8, 23, 60, 11]
LAST = len(IDS) - 1
DECODERS = ["GPT-2", "GPT-NeoX", "OPT", "Llama", "Qwen3", "Gemma 2", "Gemma 3"]
# Heads with an activation.
CURVED = ("XLM-RoBERTa", "CamemBERT", "RoBERTa-PreLayerNorm", "XLM-RoBERTa-XL", "ModernBERT decoder")


def _stirred(make, dtype: torch.dtype = torch.float64, **config):
    """Return a tiny model whose biases and norms are not the trivial initial values."""
    model = tiny.build(make)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn(parameter.shape, generator=generator))
    for name, value in config.items():
        setattr(model.config, name, value)
    return model.to(dtype)


def _token(position: int, index: int = 7):
    return aw.targets.token(index, position=position)


def _post_norm_decoder():
    return hf.OPTForCausalLM(
        hf.OPTConfig(
            vocab_size=tiny.VOCAB, hidden_size=32, num_hidden_layers=3, ffn_dim=37, num_attention_heads=4,
            word_embed_proj_dim=32, do_layer_norm_before=False,
        )
    )  # fmt: skip


def _classifier(name: str, **options):
    return lambda: getattr(hf, f"{name}ForSequenceClassification")(
        getattr(hf, f"{name}Config")(
            vocab_size=tiny.VOCAB, num_labels=3, pad_token_id=0, **tiny.SMALL, **options
        )
    )


CLASSIFIERS = {
    "BERT": _classifier("Bert"),
    "RoBERTa": _classifier("Roberta"),
    "Llama": _classifier("Llama"),
    "ModernBERT, mean": _classifier(
        "ModernBert",
        classifier_pooling="mean",
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "ViT": tiny.IMAGE["ViT"],
}


# The authors' numbers


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-9)])
def test_parts_are_the_authors(shared, dtype, tolerance) -> None:
    expected = numbers(shared, "tiny_gpt2_alti_logit")
    for name, traced in decoder_traces(shared, "tiny_gpt2", dtype).items():
        ids = expected[f"{name}/tokens_target_foil"].tolist()
        direct = direct_logit_attribution(traced, ids)
        table = dict(zip(direct.labels, direct.values.T, strict=True))
        for number in range(4):
            assert (
                np.abs(table[f"mlp {number}"] - expected[f"{name}/mlp_logit_layers"][number]).max()
                < tolerance
            )
            bias = expected[f"{name}/b_o_logits_layers"][number]
            assert np.abs(table[f"bias {number}"] - bias).max() < tolerance
            heads = expected[f"{name}/logit_aff_x_j_heads_last"][number]
            assert np.abs(direct.map.layer(number) - heads).max() < tolerance
        assert np.abs(table["initial"] - expected[f"{name}/init_logit"]).max() < tolerance
        assert np.abs(table["final bias"] - expected[f"{name}/lnf_bias"]).max() < tolerance
        untracked = alti_logit(traced, ids, tracked=False)
        off = untracked.map.values.transpose(1, 0, 2) - expected[f"{name}/logit_aff_x_j_per_layer"]
        assert np.abs(off).max() < tolerance
        linear = alti_logit(traced, ids, tracked=False, biases="apart").map.values
        assert np.abs(linear - expected[f"{name}/logit_lin_x_j_last"]).max() < tolerance


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tracked_attributions_are_the_authors(shared, dtype) -> None:
    expected = numbers(shared, "tiny_gpt2_alti_logit")
    # The authors' ALTI carries 1e-6 inside its distance.
    for compat, tolerance in ((None, 1e-4), ("authors", 2e-5 if dtype == "float32" else 1e-9)):
        for name, traced in decoder_traces(shared, "tiny_gpt2", dtype).items():
            target, foil = expected[f"{name}/tokens_target_foil"].tolist()
            both = alti_logit(traced, [target, foil], compat=compat)
            off = both.map.values.transpose(1, 0, 2) - expected[f"{name}/logit_aff_x_j_alti_per_layer"]
            assert np.abs(off).max() < tolerance
            apart = alti_logit(traced, target, foil, initial="apart", compat=compat)
            assert np.abs(apart.values - expected[f"{name}/alti_logit_contrastive"]).max() < tolerance
            # The authors' evaluation adds the difference of the initial logits to the last token.
            initial = expected[f"{name}/init_logit"]
            contrast = expected[f"{name}/alti_logit_contrastive"].copy()
            contrast[-1] += initial[0] - initial[1]
            assert np.abs(alti_logit(traced, target, foil, compat=compat).values - contrast).max() < tolerance


# Invariants of any model


@pytest.mark.parametrize("family", [*FAMILIES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_sum_to_the_logit_in_every_family(family, dtype) -> None:
    needs("head", family)
    traced = FAMILIES[family].traced(dtype)
    if traced.logits is None or "cross" in traced.stacks:
        with pytest.raises(ValueError, match=r"this trace has no logits|also reads another sequence"):
            direct_logit_attribution(traced, 1)
        return
    of_classes = traced.logits.dim() == 1
    for position in (None,) if of_classes else (-1, 3):
        targets = [1, 2] if of_classes else [_token(position, index) for index in (1, 2)]
        scores = (traced.logits if of_classes else traced.logits[position])[[1, 2]].numpy()
        direct = direct_logit_attribution(traced, targets)
        assert np.allclose(direct.values.sum(-1), scores, atol=1e-5)
        assert np.abs(direct.residual).max() < _tolerance(traced.model, dtype)
        if dtype == torch.float64:  # our arithmetic leaves no residual at all
            row = position if position is None else position % len(traced.logits)
            recomputed = head_of(traced, "self", "test", row).recomputed(row)[[1, 2]].tolist()
            parts = [alti_logit(traced, target).provenance["parts"] for target in targets]
            sums = [sum(value for name, value in part.items() if name != "logit") for part in parts]
            assert np.allclose(sums, recomputed, atol=1e-9, rtol=0)


def _tolerance(model, dtype: torch.dtype) -> float:
    """Norms other than LayerNorm compute in float32 in any precision, which leaves fewer digits."""
    if dtype == torch.float32:
        return 1e-5
    norms = [module for module in model.modules() if "Norm" in type(module).__name__]
    rounded = not all(isinstance(module, torch.nn.LayerNorm) for module in norms)
    return 1e-6 if rounded else 1e-9


@pytest.mark.parametrize("family", [*MORE])
def test_parts_sum_to_the_logit_wherever_blocks_and_head_are_described(family) -> None:
    needs("head", family)
    traced = MORE[family].traced(torch.float64)
    if traced.logits is None or "cross" in traced.stacks or family == "ESM":
        with pytest.raises(
            ValueError, match=r"no logits|also reads another sequence|no description of a head"
        ):
            direct_logit_attribution(traced, _token(-1))
        return
    direct = direct_logit_attribution(traced, _token(-1))
    assert np.abs(direct.residual) < _tolerance(traced.model, torch.float64)
    assert bool(direct.warning) == (family in CURVED)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_parts_sum_to_a_class_whatever_the_head_reads(name) -> None:
    model = _stirred(CLASSIFIERS[name])
    images = name == "ViT"
    image = torch.randn(3, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    traced = trace(model, None, image=image) if images else trace(model, None, IDS)
    direct = direct_logit_attribution(traced, [0, 2])
    assert np.abs(direct.residual).max() < (1e-6 if name == "Llama" else 1e-9)
    token = alti_logit(traced, 1, 0)
    assert token.values.shape == (len(traced.axes()[0]),)
    assert np.isclose(
        token.values.sum() + token.residual, float(traced.logits[1] - traced.logits[0]), atol=1e-5
    )
    assert ("linear through the origin" in token.warning) == (name in ("BERT", "RoBERTa", "ModernBERT, mean"))


@pytest.mark.parametrize("scale", [{"final_logit_softcapping": 0.5}, {}])
def test_a_capped_logit_is_shared_in_the_proportions_of_the_one_before_the_cap(scale) -> None:
    model = _stirred(tiny.TEXT["Gemma 2"], **scale)
    traced = trace(model, None, IDS)
    model.config.final_logit_softcapping = None
    free = direct_logit_attribution(trace(model, None, IDS), 7)
    model.config.final_logit_softcapping = scale.get("final_logit_softcapping", 30.0)
    capped = direct_logit_attribution(traced, 7)
    assert np.isclose(capped.values.sum(), float(traced.logits[-1, 7]), atol=1e-5)
    ratio = capped.values / free.values
    assert np.allclose(ratio, ratio[0], rtol=1e-4)
    assert "soft cap" in capped.warning


def test_post_norm_decoders_are_taken_apart_through_every_later_norm() -> None:
    traced = trace(_stirred(_post_norm_decoder), None, IDS)
    assert np.abs(direct_logit_attribution(traced, 7).residual) < 1e-9
    parts = alti_logit(traced, 7).provenance["parts"]
    assert abs(parts["norm bias"]) > 1e-3
    assert alti_logit(trace(_stirred(tiny.TEXT["GPT-2"]), None, IDS), 7).provenance["parts"]["norm bias"] == 0


@pytest.mark.parametrize("family", ["Llama", "Gemma 3", "GPT-NeoX", "BERT"])
def test_heads_are_what_their_vectors_say(family) -> None:
    """Every head's vector for every token is made and taken through the norms with their real deviations."""
    needs("head", family)
    traced = trace(_stirred(tiny.TEXT[family]), None, IDS)
    result = direct_logit_attribution(traced, _token(4)).map.layer(1)
    block = block_of(traced, 1, "self", "test")
    matrix, row, _ = block.branch()
    vectors = torch.einsum("hij,hjv,hvd,i->hijd", block.weights(), block.head_values(), matrix, row)[:, 4]
    if family == "BERT":  # post-norm: through both norms of its block
        vectors = block.norm1.direct(vectors) / block.norm1.deviation(block.middle[4])
        vectors = block.norm2.direct(vectors) / block.norm2.deviation(block.last[4])
    state = block.output[4]
    for step in head_of(traced, "self", "test", 4).steps:
        if isinstance(step, Affine):
            vectors = vectors @ step.matrix
        elif isinstance(step, Pointwise):
            vectors = vectors * (step(state) / state)
        else:
            vectors = step.direct(vectors) / step.deviation(state)
        state = step(state[None])[0]
    assert np.allclose(result[:, 0], vectors[..., 7], atol=1e-6)


@pytest.mark.parametrize("family", DECODERS)
def test_no_later_token_and_no_hidden_one_counts(family) -> None:
    needs("head", family)
    traced = trace(_stirred(tiny.TEXT[family], torch.float32), None, IDS)
    early = alti_logit(traced, _token(3))
    assert not early.values[4:].any()
    assert not early.map.values[..., 4:].any()
    assert early.values[:4].all()
    read = (traced.attention_layer(1)[:, LAST].numpy() != 0).any(0)
    direct = direct_logit_attribution(traced, 7).map.layer(1)[:, 0]
    assert not direct[:, ~read].any()


def test_tracking_shares_what_a_layer_reads_as_alti_rolled_out_says() -> None:
    traced = trace(_stirred(tiny.TEXT["Llama"]), None, IDS)
    untracked = alti_logit(traced, [7, 11], tracked=False).map
    tracked = alti_logit(traced, [7, 11])
    rolled = alti(traced, rolled_out=True)
    assert np.array_equal(tracked.map.layer(0), untracked.layer(0))
    for number in range(1, tracked.map.n_layers):
        expected = untracked.layer(number) @ rolled.layer(number - 1)
        assert np.allclose(tracked.map.layer(number), expected, atol=1e-6)
    assert np.allclose(
        tracked.values.sum(-1), alti_logit(traced, [7, 11], tracked=False).values.sum(-1), atol=1e-5
    )


def test_layers_and_what_they_leave_out_add_up() -> None:
    traced = trace(
        _stirred(lambda: tiny._plain("Llama", "ForCausalLM", **tiny.GQA, num_hidden_layers=3)), None, IDS
    )
    whole = alti_logit(traced, 7, 11)
    initial = whole.values - alti_logit(traced, 7, 11, initial="apart").values
    assert np.flatnonzero(initial).tolist() == [LAST]
    assert np.allclose(whole.map.values.sum((0, 1)) + initial, whole.values, atol=1e-5)
    for layers in (0, [1, 2], slice(0, 2), -1):
        some = alti_logit(traced, 7, 11, layers=layers)
        assert np.allclose(some.map.values, whole.map.select(layer=layers).values, atol=1e-7)
        assert np.allclose(some.map.values.sum((0, 1)) + initial, some.values, atol=1e-5)
        assert np.isclose(some.values.sum() + some.residual, whole.values.sum() + whole.residual, atol=1e-5)


def test_a_foil_is_the_difference() -> None:
    traced = trace(_stirred(tiny.TEXT["GPT-2"]), None, IDS)
    apart = alti_logit(traced, 7).values - alti_logit(traced, 11).values
    contrast = alti_logit(traced, 7, 11)
    assert np.allclose(contrast.values, apart, atol=1e-6)
    assert contrast.foil == "11"
    assert "7" in contrast.title
    assert np.isclose(
        contrast.provenance["parts"]["logit"], float(traced.logits[-1, 7] - traced.logits[-1, 11])
    )
    several = alti_logit(traced, [7, 8], 11)
    assert np.allclose(several.values[0], apart, atol=1e-6)
    assert several.values.shape == (2, len(IDS))
    assert len(several.residual) == 2
    early = alti_logit(traced, _token(3, 7), 11)  # the foil is read where the target is
    assert np.allclose(
        early.values,
        alti_logit(traced, _token(3, 7)).values - alti_logit(traced, _token(3, 11)).values,
        atol=1e-6,
    )


def test_the_prediction_is_explained_unless_told_otherwise() -> None:
    traced = trace(_stirred(tiny.TEXT["GPT-2"]), None, IDS)
    best = int(traced.logits[-1].argmax())
    assert np.array_equal(alti_logit(traced).values, alti_logit(traced, best).values)


@pytest.mark.parametrize("family", ["GPT-2", "Llama"])
def test_neither_batch_padding_nor_chunks_change_anything(family) -> None:
    model = _stirred(tiny.TEXT[family], torch.float32)
    ids = torch.tensor([[*IDS[:5], 0, 0, 0, 0], IDS])
    mask = torch.tensor([[1] * 5 + [0] * 4, [1] * 9])
    short, long = trace(model, None, {"input_ids": ids, "attention_mask": mask})
    for result, ids in ((short, IDS[:5]), (long, IDS)):
        alone = trace(model, None, ids)
        assert np.allclose(alti_logit(result, 7).values, alti_logit(alone, 7).values, atol=2e-5)
        direct = direct_logit_attribution(result, 7, by="head")
        assert np.allclose(direct.values, direct_logit_attribution(alone, 7, by="head").values, atol=2e-5)
    assert np.allclose(alti_logit(long, 7, chunk_size=2).values, alti_logit(long, 7).values, atol=1e-5)


def test_half_precision_agrees_with_single() -> None:
    model = _stirred(tiny.TEXT["Llama"], torch.float32)
    single = alti_logit(trace(model, None, IDS), 7)
    half = alti_logit(trace(copy.deepcopy(model).bfloat16(), None, IDS), 7)
    assert np.abs(half.values - single.values).max() < 0.05 * np.abs(single.values).max()


# How it leaves


def test_components_are_named_and_heads_sum_to_layers() -> None:
    traced = trace(_stirred(tiny.TEXT["GPT-2"]), None, IDS)
    layers = direct_logit_attribution(traced, 7)
    assert layers.labels == (
        "initial", "attention 0", "bias 0", "mlp 0", "attention 1", "bias 1", "mlp 1", "final bias"
    )  # fmt: skip
    heads = direct_logit_attribution(traced, 7, by="head")
    table = dict(zip(heads.labels, heads.values, strict=True))
    total = sum(table[f"head 1.{head}"] for head in range(4))
    assert np.isclose(total, layers.values[4], atol=1e-6)
    assert np.isclose(table["head 1.2"], heads.map.layer(1)[2].sum(), atol=1e-6)
    assert list(layers.to_dataframe()["source"]) == list(layers.labels)
    assert (
        "bias 0" not in direct_logit_attribution(trace(tiny.build(tiny.TEXT["Llama"]), None, IDS), 7).labels
    )


def test_it_leaves_and_comes_back(tmp_path) -> None:
    reader = tiny.byte_level()
    model = tiny.build(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(
        vocab_size=len(reader), n_embd=32, n_layer=2, n_head=4, n_positions=64
    )))  # fmt: skip
    traced = trace(model, reader, "the cat the cats")
    outcome = alti_logit(traced, " the", foil="cat")
    for result in (outcome, direct_logit_attribution(traced, " the")):
        back = load(result.save(tmp_path / f"{result.method}.safetensors"))
        assert np.array_equal(back.values, result.values)
        assert np.array_equal(back.map.values, result.map.values)
        assert back.provenance == result.provenance
        assert json.dumps(result.to_description()[0])
    words = outcome.to("word")
    assert words.values.shape == words.map.shape[-1:] == (4,)
    assert np.isclose(words.values.sum(), outcome.values.sum(), atol=1e-6)
    pairs = Unit("pair", ("x", "y"), ((0, 1), tuple(range(2, len(outcome.labels)))), (False, False))
    assert outcome.to(pairs).map.shape == (2, 1, 2)
    assert "alti_logit" in methods()
    assert methods()["alti_logit"].kind == "attributions"
    assert outcome.map.query_labels == (f"{outcome.target} rather than {outcome.foil}",)


# Refused input


def test_wrong_targets_name_what_works() -> None:
    reader = tiny.byte_level()
    model = tiny.build(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(
        vocab_size=len(reader), n_embd=32, n_layer=2, n_head=4, n_positions=64
    )))  # fmt: skip
    traced = trace(model, reader, "the cat")
    with pytest.raises(ValueError, match="foil 'cat' is the target itself"):
        alti_logit(traced, "cat", foil="cat")
    with pytest.raises(ValueError, match="is 3 tokens for this model"):
        alti_logit(traced, "he cat")
    with pytest.raises(ValueError, match="is not a single logit, which alti_logit needs"):
        alti_logit(traced, aw.targets.embedding_norm())
    with pytest.raises(IndexError, match="token ids are 0 to"):
        direct_logit_attribution(traced, 10**6)
    with pytest.raises(IndexError, match="layer 2 is out of range"):
        alti_logit(traced, layers=2)
    with pytest.raises(ValueError, match="initial 'last' is not one of 'own', 'apart'"):
        alti_logit(traced, initial="last")
    with pytest.raises(ValueError, match=r"biases 'share' is not one of 'shared', 'apart'\..*shared"):
        alti_logit(traced, biases="share")
    with pytest.raises(ValueError, match="by 'heads' is not one of 'layer', 'head'"):
        direct_logit_attribution(traced, by="heads")


def test_what_has_no_logit_is_told_what_works() -> None:
    headless = trace(tiny.build(tiny.TEXT["ELECTRA"]), None, IDS)
    with pytest.raises(ValueError, match=r"this trace has no logits.*AutoModelForCausalLM.*aw\.alti"):
        alti_logit(headless, 7)
    given = from_attentions([torch.full((1, 2, 3, 3), 1 / 3)], tokens=list("abc"))
    with pytest.raises(ValueError, match="made from given numbers"):
        direct_logit_attribution(given, 7)
    other = trace(tiny.build(tiny.SEQ2SEQ["T5"]), None, input_ids=IDS, max_new_tokens=2)
    with pytest.raises(ValueError, match="also reads another sequence"):
        alti_logit(other, 7)
