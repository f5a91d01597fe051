"""Translators: to closed forms, to a model whose blocks are affine, to published files, and at their ends."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.circuits.translator import ridge_map
from tests.intervene.made import text

TEXTS = ["fadebcfadebcgahb", "hgabhgabcdhgabcd", "cdcdabefabefcdgh"]


def induction() -> tuple[Any, Any, Any]:
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    return model, tokenizer, aw.trace(model, tokenizer, "fadebcfadeb")


def test_ridge_is_exact_on_an_affine_map() -> None:
    torch.manual_seed(0)
    x, matrix, bias = torch.randn(50, 6).double(), torch.randn(6, 6).double(), torch.randn(6).double()
    for result, expected in zip(ridge_map(x, x @ matrix + bias, 0.0), (matrix, bias), strict=True):
        torch.testing.assert_close(result, expected)


def test_ridge_is_the_minimum_of_its_loss() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 5).double(), torch.randn(40, 5).double()
    ridge = 0.3
    # The same as least squares with a row of sqrt(lambda) for every direction, and none for the bias.
    centred = (x - x.mean(0)).numpy()
    rows = np.sqrt(ridge * np.mean((centred**2).sum(0))) * np.eye(5)
    above = np.hstack([x.numpy(), np.ones((40, 1))])
    below = np.hstack([rows, np.zeros((5, 1))])
    whole = np.linalg.lstsq(np.vstack([above, below]), np.vstack([y.numpy(), np.zeros((5, 5))]), rcond=None)
    matrix, bias = ridge_map(x, y, ridge)
    np.testing.assert_allclose(matrix, whole[0][:5], atol=1e-10)
    np.testing.assert_allclose(bias, whole[0][5], atol=1e-10)


def test_the_lens_is_exact_where_blocks_are_affine() -> None:
    trace = text("GPT-2")
    model = trace.model
    with torch.no_grad():
        for block in model.transformer.h:
            for module in (block.attn.c_proj, block.mlp.c_proj):
                module.weight.zero_()
                module.bias.normal_()
    rows = np.random.default_rng(0).integers(3, 120, (40, 60))

    class Ids:
        """Stands for a tokenizer: a text is the number of a row of ids."""

        def convert_ids_to_tokens(self, ids: Any) -> Any:
            return [str(index) for index in ids]

        def __call__(self, number: str, **_: Any) -> Any:
            return {"input_ids": rows[int(number)].tolist()}

    translator = aw.circuits.fit_translator(model, Ids(), map(str, range(40)), ridge=0)
    plain, fitted = (aw.circuits.lens(trace.rerun(), 7, translator=chosen) for chosen in (None, translator))
    assert plain.kl[0].min() > 0.01
    np.testing.assert_allclose(fitted.kl, 0, atol=1e-5)


def test_a_translator_is_saved_and_kept_to_its_model(tmp_path: Any) -> None:
    model, tokenizer, trace = induction()
    translator = aw.circuits.fit_translator(model, tokenizer, TEXTS)
    again = aw.circuits.Translator.load(translator.save(tmp_path / "translator.safetensors"))
    first, second = (aw.circuits.lens(trace, "c", translator=item) for item in (translator, again))
    assert np.array_equal(first.kl, second.kl)
    assert "ridge 0.03" in first.title
    assert not np.array_equal(first.kl[0], aw.circuits.lens(trace, "c").kl[0])
    np.testing.assert_array_equal(first.kl[-1], 0)

    with torch.no_grad():
        next(model.parameters()).mul_(1.1)
    with pytest.raises(ValueError, match="other weights"):
        aw.circuits.lens(trace, "c", translator=again)
    with pytest.raises(ValueError, match=r"2 layers of width \d+, and the model 2 of width 32"):
        aw.circuits.lens(text("GPT-2"), 7, translator=again)


def test_half_precision_is_the_same_model() -> None:
    from attnwidgets.tracing.content import sampled_fingerprint_of

    model = text("GPT-2").model
    before = sampled_fingerprint_of(model)
    assert sampled_fingerprint_of(model.bfloat16()) == before


def test_fitting_leaves_the_model_as_it_was() -> None:
    model, tokenizer, _ = induction()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    aw.circuits.fit_translator(model, tokenizer, TEXTS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_a_published_tuned_lens_is_read(tmp_path: Any) -> None:
    trace = text("Llama")
    head = trace.model.get_output_embeddings().weight.detach().numpy()
    hashed = hashlib.sha256(np.array_str(head, precision=1).encode()).hexdigest()  # as tuned-lens does
    torch.manual_seed(1)
    state = {f"{layer}.weight": 0.1 * torch.randn(32, 32) for layer in range(2)}
    state |= {f"{layer}.bias": torch.randn(32) for layer in range(2)}
    torch.save(state, tmp_path / "params.pt")
    config = {"d_model": 32, "num_hidden_layers": 2, "base_model_name_or_path": "a/model"}
    config |= {"lens_type": "linear_tuned_lens", "unembed_hash": hashed}
    (tmp_path / "config.json").write_text(json.dumps(config))
    translator = aw.circuits.Translator.load(tmp_path)
    assert "tuned lens of a/model" in repr(translator)

    states: list[torch.Tensor] = []
    model = trace.model
    handles = [
        layer.register_forward_pre_hook(lambda _, args: states.append(args[0]))
        for layer in model.model.layers
    ]
    with torch.no_grad():
        model(**trace.inputs)
        expected = [
            model.lm_head(
                model.model.norm(
                    h + torch.nn.functional.linear(h, state[f"{at}.weight"].to(h), state[f"{at}.bias"].to(h))
                )
            )[0].softmax(-1)[:, 7]
            for at, h in enumerate(states)
        ]
    for handle in handles:
        handle.remove()
    lens = aw.circuits.lens(trace, 7, translator=translator)
    np.testing.assert_allclose(lens.probability[:2], torch.stack(expected), atol=1e-6)

    (tmp_path / "config.json").write_text(json.dumps(config | {"unembed_hash": "0" * 64}))
    with pytest.raises(ValueError, match="another output embedding"):
        aw.circuits.lens(trace, 7, translator=aw.circuits.Translator.load(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(ValueError, match="not a tuned lens of a known form"):
        aw.circuits.Translator.load(tmp_path)


class Harmful:
    def __reduce__(self) -> Any:
        return (print, ("harm",))


def test_what_is_no_translator_is_refused(tmp_path: Any, capsys: Any) -> None:
    model, tokenizer, trace = induction()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        aw.circuits.Translator.load(tmp_path / "none.safetensors")
    other = aw.circuits.lens(trace, "c").save(tmp_path / "lens.safetensors")
    with pytest.raises(aw.circuits.TranslatorError, match="not a translator"):
        aw.circuits.Translator.load(other)
    (tmp_path / "text.safetensors").write_text("text")
    with pytest.raises(aw.circuits.TranslatorError, match="not a saved translator"):
        aw.circuits.Translator.load(tmp_path / "text.safetensors")
    with pytest.raises(aw.circuits.TranslatorError, match=r"lacks config\.json and params\.pt"):
        aw.circuits.Translator.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    torch.save({"0.weight": Harmful()}, tmp_path / "params.pt")
    with pytest.raises(ValueError, match="cannot be read as weights only"):
        aw.circuits.Translator.load(tmp_path)
    assert "harm" not in capsys.readouterr().out
    with pytest.raises(TypeError, match="translator is a str"):
        aw.circuits.lens(trace, "c", translator="one")
    with pytest.raises(ValueError, match="ridge must be 0"):
        aw.circuits.fit_translator(model, tokenizer, TEXTS, ridge=-1)
    with pytest.raises(ValueError, match="no 6 tokens in a row"):
        aw.circuits.fit_translator(model, tokenizer, ["abc", ""])
    with pytest.raises(ValueError, match="predicts tokens"):
        aw.circuits.fit_translator(*aw.demo_model("classifier"), ["A moving and very funny film, again."])


@pytest.mark.extended
def test_what_the_logit_lens_misses_in_smollm2_a_translator_reads(smollm2: Any) -> None:
    model, tokenizer = smollm2
    ids = tokenizer(" ".join(aw.demo_book())[5000:60000], verbose=False)["input_ids"]
    fitted_on, held_out = tokenizer.decode(ids[: 14 * 128]), ids[9000:9128]
    translator = aw.circuits.fit_translator(model, tokenizer, fitted_on)
    trace = aw.trace(model, None, input_ids=held_out)
    plain, fitted = (aw.circuits.lens(trace, 0, translator=chosen) for chosen in (None, translator))
    # KL(model || lens) in nats and share of equal top tokens, without the sink's first tokens
    measured = {0: (103, 0.00, 2.4, 0.26), 12: (16.7, 0.08, 1.8, 0.37), 18: (17.5, 0.15, 1.4, 0.46)}
    measured |= {26: (5.3, 0.40, 0.56, 0.62), 28: (2.7, 0.52, 0.30, 0.75)}
    for layer, (plain_kl, plain_top, fitted_kl, fitted_top) in measured.items():
        for lens, kl, top in ((plain, plain_kl, plain_top), (fitted, fitted_kl, fitted_top)):
            assert lens.kl[layer, 4:].mean() == pytest.approx(kl, rel=0.06)
            best = [[cell[0].id for cell in lens.top_tokens(1, layer=row)[0]] for row in (layer, -1)]
            assert np.mean(np.equal(*best)[4:]) == pytest.approx(top, abs=0.03)
