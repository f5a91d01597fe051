"""Patching single places: against plain hooks, on planted circuits, to the references, and at its cost."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import attnwidgets as aw
from attnwidgets.circuits import suffix_runs
from attnwidgets.circuits.estimate import estimated
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.suffix_runs import SuffixRuns
from attnwidgets.explanations.targets.target_set import resolve_target_set
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.intervene.made import logits, t5
from tests.tracing import tiny
from tests.tracing.test_anatomy import falcon_h1, gemma4

from .made import CLEAN, CORRUPT, counted, induction, pair, planted

ALL = ("state", "attention", "mlp", "head")


def difference(trace: Any) -> float:
    """The logit of token 7 less that of token 9, after the last token."""
    row = logits(trace)[-1].double()
    return float(row[7] - row[9])


def by_interventions(base: Any, source: Any, site: str) -> np.ndarray:
    """Every cell by a plain pass under an intervention, without any reuse."""
    width = base.n_heads() if site == "head" else len(base.tokens)
    raw = np.zeros((base.n_layers(), width))
    for layer, at in np.ndindex(raw.shape):
        where = {"heads": at} if site == "head" else {"tokens": at}
        with aw.circuits.set_activations(base, site, layer, source, **where):
            raw[layer, at] = difference(base)
    return raw - difference(base)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GPT-2", "Llama", "OPT", "GPT-NeoX"])
def test_it_is_what_plain_passes_give(name: str) -> None:
    clean, corrupt = pair(name)
    both = aw.circuits.patch(clean, corrupt, 7, foil=9, how="both", sweep=aw.circuits.Sweep(batch_size=3))
    for result, base, source in ((both.denoise, corrupt, clean), (both.noise, clean, corrupt)):
        assert result.base == pytest.approx(difference(base), abs=1e-9)
        assert result.source == pytest.approx(difference(source), abs=1e-9)
        for site in ALL:
            raw = by_interventions(base, source, site)
            assert np.abs(raw).max() > 1e-3
            np.testing.assert_allclose(result.raw[site], raw, atol=1e-9)
            shares = result.heads if site == "head" else result.values[site]
            np.testing.assert_allclose(shares, raw / (result.source - result.base), atol=1e-6)


@pytest.mark.slow
def test_encoders_and_sliding_windows_run_whole() -> None:
    mask = aw.targets.token(7, position=2)
    clean, corrupt = pair("BERT")
    result = aw.circuits.patch(clean, corrupt, mask, foil=aw.targets.token(9, position=2))
    with aw.circuits.set_activations(corrupt, "state", 1, clean, tokens=2):
        row = logits(corrupt)[2]
    assert result.raw["state"][1, 2] == pytest.approx(float(row[7] - row[9]) - result.base, abs=1e-9)
    assert result.raw["state"][0, 2] == 0, "this token is the same in both"
    clean, corrupt = pair("Gemma 2")
    result = aw.circuits.patch(clean, corrupt, 7, foil=9, sites="state")
    np.testing.assert_allclose(result.raw["state"], by_interventions(corrupt, clean, "state"), atol=1e-5)


def test_blocks_that_are_shared() -> None:
    mask = {"target": aw.targets.token(7, position=4), "foil": aw.targets.token(9, position=4)}
    clean, corrupt = pair("ALBERT")
    result = aw.circuits.patch(clean, corrupt, **mask, sites=("state", "head"))
    for layer in range(3):
        everything = [("state", layer, token) for token in range(7)]
        assert aw.circuits.patch_cells(clean, corrupt, everything, **mask).share == 1
    assert np.abs(result.raw["state"][1] - result.raw["state"][2]).max() > 1e-6


def test_a_decoder_reads_an_encoder_that_stays_as_it_is() -> None:
    clean = t5()
    corrupt = aw.trace(clean.model, tiny.wordpiece(), "unbelievable cat", target_text="cat mat")
    assert len(corrupt.axes("decoder")[0]) == len(clean.axes("decoder")[0])
    target, foil = (aw.targets.token(token, position=1) for token in (7, 9))
    result = aw.circuits.patch(clean, corrupt, target, foil=foil, stack="decoder", sites="state")
    assert result.raw["state"].shape == (2, len(clean.axes("decoder")[0]))


def test_the_induction_circuit_is_found_exactly() -> None:
    both = aw.circuits.patch(*induction(), "c", foil="a", how="both")
    for result in both:
        states = np.zeros((2, 12))
        states[:, 6] = 1
        assert np.array_equal(result.values["state"], states)
        assert np.array_equal(result.heads, [[0, 0], [1, 0]])
        attention = np.zeros((2, 12))
        attention[1, 11] = 1
        assert np.array_equal(result.values["attention"], attention)
        assert not result.values["mlp"].any()
        assert result.top(1)[0].share == 1
    assert (both.denoise.base, both.denoise.source) == (both.noise.source, both.noise.base)


@pytest.mark.parametrize("name", ["value", "key"])
def test_planted_circuits_to_the_reference(shared: Any, name: str) -> None:
    module = planted(shared)
    reference = np.load(shared / "reference" / "circuits" / "planted.npz")
    model = module.planted()
    clean_ids, corrupt_ids, target, foil = module.PAIRS[name]
    clean, corrupt = (aw.trace(model, None, input_ids=ids) for ids in (clean_ids, corrupt_ids))
    both = aw.circuits.patch(clean, corrupt, target, foil=foil, how="both", sites=("state", "head"))
    for result in both:
        for site, outcome in (("resid", result.values["state"]), ("head", result.heads)):
            np.testing.assert_allclose(outcome, reference[f"{name}_{result.direction}_{site}"], atol=1e-6)
    # "value": head 1.1 alone; "key": head 0.0 first, head 1.1 from it.
    np.testing.assert_allclose(both.denoise.heads, [[float(name == "key"), 0], [0, 1]], atol=1e-6)


CASES = {
    "france_italy": ("The capital of France is", "The capital of Italy is", " Paris", " Rome"),
    "ioi_one": (
        "When Mary and John went to the store, John gave a drink to",
        "When Mary and John went to the store, Mary gave a drink to",
        " Mary",
        " John",
    ),
}


KEYS = {"state": "resid", "attention": "attn", "mlp": "mlp", "head": "head"}


def compare(result: Any, reference: Any, prefix: str, tolerance: float) -> None:
    """Compare every site of a result with a reference, and the runs themselves."""
    assert result.clean == pytest.approx(float(reference["mc"]), abs=1e-4)
    assert result.corrupt == pytest.approx(float(reference["mr"]), abs=1e-4)
    for site in result.sites:
        shares = result.heads if site == "head" else result.values[site]
        np.testing.assert_allclose(shares, reference[f"{prefix}_{KEYS[site]}"], atol=tolerance)
        if site != "head":
            assert not result.raw[site][:, : int(reference["s"])].any(), "before the first different token"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sites", "how", "best"),
    [
        ("france_italy", ("state", "head"), "denoise", (23, 4)),
        pytest.param("france_italy", ("state", "head"), "noise", (23, 4), marks=pytest.mark.extended),
        pytest.param("france_italy", ("attention", "mlp"), "denoise", None, marks=pytest.mark.extended),
        pytest.param("ioi_one", ("state", "head"), "denoise", (23, 3), marks=pytest.mark.extended),
        pytest.param("ioi_one", ("state", "head"), "noise", (23, 3), marks=pytest.mark.extended),
    ],
)
def test_smollm2_to_the_reference(
    shared: Any, smollm2: Any, name: str, sites: tuple[str, ...], how: str, best: Any
) -> None:
    reference = np.load(shared / "reference" / "circuits" / f"{name}.npz")
    model, tokenizer = smollm2
    clean, corrupt, target, foil = CASES[name]
    options = {"foil": foil, "sites": sites, "how": how, "model": model, "tokenizer": tokenizer}
    result = aw.circuits.patch(clean, corrupt, target, **options)
    compare(result, reference, how, 2e-4)
    if best is not None:
        assert (result.top("head", 1)[0].layer, result.top("head", 1)[0].head) == best


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_estimates_on_smollm2_to_the_reference(shared: Any, smollm2: Any, name: str) -> None:
    reference = np.load(shared / "reference" / "circuits" / f"{name}.npz")
    model, tokenizer = smollm2
    clean, corrupt, target, foil = CASES[name]
    options = {"foil": foil, "sites": ("state", "head"), "model": model, "tokenizer": tokenizer}
    for result in aw.circuits.patch(clean, corrupt, target, how="both", estimate=True, **options):
        compare(result, reference, f"atp_{result.direction}", 2e-3)
        for cell in result.checked:
            key = f"{result.direction}_{KEYS[cell.site]}"
            column = cell.head if cell.site == "head" else cell.token
            assert cell.exact == pytest.approx(float(reference[key][cell.layer, column]), abs=2e-4)


# -- cost -----------------------------------------------------------------------------------------


def deep(n_layers: int = 6) -> tuple[Any, Any]:
    model = tiny.build(lambda: tiny._plain("Llama", "ForCausalLM", **tiny.GQA, num_hidden_layers=n_layers))
    ids = [torch.arange(3, 23).tolist() for _ in range(2)]
    ids[1][14] = 99
    return tuple(aw.trace(model, None, input_ids=row) for row in ids)


def test_a_sweep_of_states_costs_what_is_stated() -> None:
    clean, corrupt = deep()
    n_layers, n, m = 6, 20, 6
    whole_pass = n_layers * n  # tokens that the blocks of a forward pass read
    with counted(LlamaDecoderLayer) as whole:
        aw.circuits.patch(clean, corrupt, 7, foil=9, sites="state")
    # The tokens before the first difference once, and those after it once in each run.
    preparation = (n - m + 2 * m) * n_layers
    sweep = whole["tokens"] - preparation
    assert 0 < sweep / whole_pass <= (n_layers + 1) / 2 * m**2 / n
    # Every layer's call runs the blocks from there on; three calls prepare.
    assert whole["calls"] <= 3 * n_layers + n_layers * (n_layers + 1) // 2


@pytest.mark.slow
def test_an_estimate_costs_two_passes_forward_beside_its_check(monkeypatch: Any) -> None:
    clean, corrupt = deep()
    passes = []
    backward = suffix_runs.gradients
    monkeypatch.setattr(suffix_runs, "gradients", lambda *a: (passes.append(1), backward(*a))[1])
    both = pair_of(clean, corrupt, None, "patch")
    targets = resolve_target_set(clean, 7, 9, "patch").single("patch")
    with counted(LlamaDecoderLayer) as whole, SuffixRuns(both, targets, ALL, "patch", [1]) as runs:
        raw, checked = estimated(runs, both, ALL, 1, 0, 32)
    n_layers, n, m = 6, 20, 6
    # The whole text of a run, and of the other the tokens behind the shared prefix.
    assert whole["calls"] == 2 * n_layers
    assert whole["tokens"] == n_layers * (n + m)
    assert len(passes) == 1
    assert checked == []
    result = aw.circuits.patch(clean, corrupt, 7, foil=9, estimate=True)
    for site in ALL:
        np.testing.assert_array_equal(raw[site], result.raw[site])
    with pytest.raises(ValueError, match="checked must be 1 or more, not 0"):
        aw.circuits.patch(clean, corrupt, 7, foil=9, estimate=True, sweep=aw.circuits.Sweep(checked=0))


# -- properties ------------------------------------------------------------------------------------


def test_an_estimate_is_exact_where_the_model_is_linear() -> None:
    clean, corrupt = pair("Llama")
    result = aw.circuits.patch(
        clean,
        corrupt,
        lambda outputs: outputs.logits[:, -1, 7].double(),
        sites=("state", "mlp"),
        estimate=True,
    )
    exact = aw.circuits.patch(clean, corrupt, lambda outputs: outputs.logits[:, -1, 7].double(), sites="mlp")
    # The last MLP's output only passes the final norm: close, and checked.
    assert result.values["mlp"][1, -1] == pytest.approx(exact.values["mlp"][1, -1], abs=0.2)
    assert {cell.chosen for cell in result.checked} == {"largest", "random"}
    assert -1 <= result.agreement <= 1
    circuit = aw.circuits.patch(*induction(), "c", foil="a", sites="head", estimate=True)
    np.testing.assert_allclose(circuit.heads, [[0, 0], [1, 0]], atol=1e-6)
    assert "checked places" in circuit.title


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Gemma 2", "GPT-NeoX"])
@pytest.mark.parametrize("target", [7, aw.targets.token(7, position=5)])
def test_one_direction_is_estimated_as_both_are(name: str, target: Any) -> None:
    clean, corrupt = pair(name)
    both = aw.circuits.patch(clean, corrupt, target, how="both", estimate=True)
    for expected in both:
        outcome = aw.circuits.patch(clean, corrupt, target, how=expected.direction, estimate=True)
        assert (outcome.clean, outcome.corrupt) == pytest.approx((expected.clean, expected.corrupt), abs=1e-9)
        for site in ALL:
            np.testing.assert_allclose(outcome.raw[site], expected.raw[site], rtol=1e-5, atol=1e-9)
        exact = [[cell.exact for cell in result.checked] for result in (outcome, expected)]
        np.testing.assert_allclose(*exact, rtol=1e-5, atol=1e-6)


def test_targets_of_other_kinds() -> None:
    clean, corrupt = pair("GPT-2")
    for target in (aw.targets.span(5, 7), aw.targets.embedding_norm(6), aw.targets.token(7, position=5)):
        result = aw.circuits.patch(clean, corrupt, target, sites="state")
        assert np.isfinite(result.values["state"]).all()
        assert aw.circuits.patch_cells(clean, corrupt, [("state", 1, None)], target).share == 1
    named = aw.circuits.patch(clean, corrupt, sites="head")
    assert named.target == clean.predictions(1)[0].label


def test_half_precision_computes_in_single() -> None:
    model = tiny.build(tiny.TEXT["Llama"]).to(torch.bfloat16)
    clean, corrupt = (aw.trace(model, None, input_ids=ids) for ids in (CLEAN, CORRUPT))
    result = aw.circuits.patch(clean, corrupt, 7, foil=9, sites=("state", "head"))
    wide = [aw.trace(model.float(), None, input_ids=ids) for ids in (CLEAN, CORRUPT)]
    expected = aw.circuits.patch(*wide, 7, foil=9, sites=("state", "head"))
    np.testing.assert_allclose(result.raw["state"], expected.raw["state"], atol=1e-5)
    np.testing.assert_allclose(result.raw["head"], expected.raw["head"], atol=1e-5)


def test_the_model_comes_back_as_it_was() -> None:
    clean, corrupt = pair("Llama")
    model = clean.model
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    before, gradients = logits(clean), [parameter.requires_grad for parameter in model.parameters()]
    aw.circuits.patch(clean, corrupt, 7, foil=9, estimate=True)
    assert torch.equal(logits(clean), before)
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert gradients == [parameter.requires_grad for parameter in model.parameters()]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert aw.interventions() == ()


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_results_are_labelled_saved_and_drawn(tmp_path: Any) -> None:
    result = aw.circuits.patch(*induction(), "c", foil="a", estimate=True)
    again = aw.load(result.save(tmp_path / "patching.safetensors"))
    assert repr(again) == repr(result)
    assert again.checked == result.checked
    assert all(np.array_equal(again.raw[site], result.raw[site]) for site in ALL)
    rows = result.to_rows()
    assert len(rows) == 3 * 2 * 12 + 2 * 2
    assert {"site": "head", "layer": 1, "token": None, "head": 0}.items() <= rows[-2].items()
    changed = next(row for row in rows if row["site"] == "state" and row["token"] == 6)
    assert (changed["clean"], changed["corrupt"], result.differs) == ("c", "a", (6,))
    assert "token 6" in str(result.provenance["differs"])
    assert len(result.figure().axes) == 5  # four sites and the scale
    assert {"text/plain", "image/png"} == set(result._repr_mimebundle_())
    with pytest.raises(AttributeError, match="immutable"):
        result.clean = 1.0
    with pytest.raises(ValueError, match="read-only"):
        result.values["state"][0, 0] = 1


def test_runs_that_agree_have_no_shares() -> None:
    clean, corrupt = induction()
    result = aw.circuits.patch(clean, corrupt, "e", foil="g")
    assert np.isnan(result.values["state"]).all()
    assert not result.raw["state"].any()
    assert "shares are undefined" in result.warning
    assert np.isnan(aw.circuits.patch_cells(clean, corrupt, [("state", 0, 6)], "e", foil="g").share)


def test_what_cannot_be_patched_is_said() -> None:
    clean, corrupt = induction()
    model, tokenizer = clean.model, clean.tokenizer
    patch, patch_cells = aw.circuits.patch, aw.circuits.patch_cells
    short = aw.trace(model, tokenizer, "fadefadeb")
    with pytest.raises(ValueError, match="12 tokens and corrupt 10") as caught:
        patch(clean, short, "c")
    assert caught.value.args[0].splitlines()[1:3] == [
        "  clean  : <s> | f | a | d | e | b | c | f | a | d | e | b",
        "  corrupt: <s> | f | a | d | e | · | · | f | a | d | e | b",
    ]
    assert "patch(..., sweep=aw.circuits.Sweep(align=True))" in str(caught.value)
    # Of long texts, the tokens around the difference.
    texts = (aw.trace(model, tokenizer, text) for text in ("abcdefghfadebc", "abcdefghfacdebc"))
    with pytest.raises(ValueError, match=r"\n  clean  : … \| e .* \| a \| · \| d \| e \| b \| c\n"):
        patch(*texts, "c")
    half = [aw.trace(copy.deepcopy(model).to(torch.bfloat16), tokenizer, "fadebcfadeb")]
    half.append(aw.trace(half[0].model, tokenizer, "fadebafadeb"))
    for function, edge in (
        (aw.circuits.path_patch, [("head", 0, 0), ("head", 1, 0)]),
        (aw.circuits.edge_attribution, []),
    ):
        with pytest.raises(ValueError, match="half precision rounds away; load the model in float32"):
            function(*half, *edge, "c", foil="a")
    with pytest.raises(ValueError, match="load the model in float32"):
        patch(
            half[0], aw.trace(half[0].model, tokenizer, "fadefadeb"), "c", sweep=aw.circuits.Sweep(align=True)
        )
    assert patch(*half, "c", foil="a", sites="head").heads[1, 0] == pytest.approx(1, abs=0.05)
    with pytest.raises(ValueError, match="same input"):
        patch(clean, aw.trace(model, tokenizer, "fadebcfadeb"), "c")
    with pytest.raises(ValueError, match="two models"):
        patch(clean, induction()[1], "c")
    with pytest.raises(ValueError, match="2 tokens"):
        patch(clean, corrupt, "ca")
    with pytest.raises(ValueError, match="Did you mean 'noise'"):
        patch(clean, corrupt, "c", how="nois")
    with pytest.raises(ValueError, match="site 'heads' is not one of"):
        patch(clean, corrupt, "c", sites="heads")
    with pytest.raises(TypeError, match="model is missing"):
        patch("fadebcfadeb", "fadebafadeb", "c")
    with pytest.raises(TypeError, match="pass a trace"):
        patch(3, corrupt, "c")
    with pytest.raises(ValueError, match="cells is empty"):
        patch_cells(clean, corrupt, [], "c")
    with pytest.raises(ValueError, match="list of places, not 'state'"):
        patch_cells(clean, corrupt, ("state", 0, 6), "c")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cells are"):
        patch_cells(clean, corrupt, [("state", 0)], "c")
    with pytest.raises(IndexError, match="head 2 is out of range"):
        patch_cells(clean, corrupt, [("head", 0, 2)], "c")
    with pytest.raises(ValueError, match="recorded before that"), aw.ablate_heads(model, (1, 0)):
        patch(clean, corrupt, "c")
    bare = tiny.build(tiny.TEXT["ELECTRA"]).double()
    pair_of_states = [aw.trace(bare, None, input_ids=ids) for ids in (CLEAN, CORRUPT)]
    with pytest.raises(ValueError, match="no head"):
        patch(*pair_of_states)


def test_every_site_of_a_model_whose_last_blocks_share_keys_and_values() -> None:
    model = tiny.build(gemma4)
    clean, corrupt = (aw.trace(model, None, input_ids=[5, 17, seen, 9, 44]) for seen in (31, 32))
    result = aw.circuits.patch(clean, corrupt, 7, foil=9)
    block = model.model.layers[-1]
    of = {"attention": block.post_attention_layernorm, "mlp": block.post_feedforward_layernorm}
    for site, module in of.items():
        outputs: list[torch.Tensor] = []
        handle = module.register_forward_hook(
            lambda _, __, output, outputs=outputs: outputs.append(output.clone())
        )
        with torch.no_grad():
            model(clean.input_ids[None])
        handle.remove()

        def patched(_: Any, __: Any, output: torch.Tensor, outputs: Any = outputs) -> torch.Tensor:
            return torch.cat([output[:, :-1], outputs[0][:, -1:]], dim=1)

        handle = module.register_forward_hook(patched)
        with torch.no_grad():
            row = model(corrupt.input_ids[None]).logits[0, -1].double()
        handle.remove()
        assert result.raw[site][-1, -1] == pytest.approx(float(row[7] - row[9]) - result.base, abs=1e-5)
    for site in ("state", "head"):
        np.testing.assert_allclose(result.raw[site], by_interventions(corrupt, clean, site), atol=1e-5)


def test_sites_that_work_are_named_where_one_is_not_described() -> None:
    model = tiny.build(falcon_h1)
    clean, corrupt = (aw.trace(model, None, input_ids=[5, 17, seen, 9]) for seen in (31, 32))
    with pytest.raises(UnsupportedModelError, match=r"not described.* Known in this model: 'state', 'head'"):
        aw.circuits.patch(clean, corrupt, 7)
    assert aw.circuits.patch(clean, corrupt, 7, sites=("state", "head")).values["state"].shape == (2, 4)


def test_former_keywords_of_the_sweep_warn_and_give_the_same() -> None:
    model = aw.demo_model("induction")
    clean, corrupt = (aw.trace(*model, text) for text in ("fadebcfadeb", "fadebafadeb"))
    options: dict[str, Any] = {"sites": "state", "estimate": True}
    now = aw.circuits.patch(clean, corrupt, "c", **options, sweep=aw.circuits.Sweep(checked=2))
    with pytest.warns(DeprecationWarning, match=r"patch: 'checked' belong in sweep=aw\.circuits\.Sweep\("):
        former = aw.circuits.patch(clean, corrupt, "c", **options, checked=2)
    assert former.checked == now.checked
    assert len(now.checked) == 2
    with pytest.raises(TypeError, match=r"sweep takes an aw\.circuits\.Sweep, not 3"):
        aw.circuits.patch(clean, corrupt, "c", sweep=3)
