"""The table of docs/architectures.md agrees with the code, and faults would show in it."""

from __future__ import annotations

import importlib
import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.models import judge as judging
from tests.models.build import Kind, build, kinds
from tests.models.judge import CHECKED, FAULT, judge
from tests.models.shrink import HEADS, WIDTH

if TYPE_CHECKING:
    from pathlib import Path

# Types that people use, and a type of each kind of block and of input.
USED = """
bert roberta xlm-roberta distilbert electra albert deberta-v2 mpnet modernbert esm longformer
gpt2 gpt_neox opt bloom falcon phi phi3 llama llama4_text mistral ministral3 mixtral qwen2 qwen3 qwen3_moe
qwen3_next qwen3_5 gemma2 gemma3 gemma3n_text gemma4 gpt_oss deepseek_v2 deepseek_v3
glm4 glm4_moe minimax_m2 cohere2 olmo2 smollm3 granite lfm2 granitemoehybrid falcon_h1 nemotron_h mamba mamba2
rwkv t5 t5gemma bart marian m2m_100 led whisper wav2vec2 hubert wavlm
vit dinov2 siglip swin resnet
"""
WITH_PICTURE = ("llava", "gemma3", "qwen2_vl", "qwen3_vl", "idefics3", "paligemma", "molmo2")
LABELS = [*USED.split(), *(f"{name}, picture" for name in WITH_PICTURE)]
KINDS = {kind.label: kind for kind in kinds()}
AGAIN = "make models"


@pytest.fixture(scope="module")
def script(root: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "benchmarks")
        yield importlib.import_module("architectures")


@pytest.fixture(scope="module")
def page(root: Path) -> list[str]:
    """Lines of the page; skips under another version of transformers than the page's."""
    text = (root / "docs" / "architectures.md").read_text(encoding="utf-8")
    version = re.search(r"transformers (\d[\d.]*\d)", text)
    assert version, AGAIN
    if version[1] != hf.__version__:
        pytest.skip(f"the table is of transformers {version[1]}, this is {hf.__version__}")
    return text.splitlines()


def notes_of(page: list[str]) -> dict[str, str]:
    result = (re.fullmatch(r"- \*([a-z]+)\*: (.*)", line) for line in page)
    return {note[1]: note[2] for note in result if note}


def assert_same(script: Any, page: list[str], kind: Kind, verdicts: dict[str, str]) -> None:
    """Assert that a line of the page is made of these verdicts."""
    notes = notes_of(page)
    listed = dict(notes)
    assert script.line(kind, verdicts, notes) in page, f"{verdicts}: {AGAIN}"
    assert notes == listed, f"a reason is new: {AGAIN}"


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_a_line_of_the_table_is_what_the_code_does(script: Any, page: list[str], label: str) -> None:
    assert_same(script, page, KINDS[label], judge(KINDS[label]))


@pytest.mark.extended
def test_the_whole_table_is_what_the_code_does(script: Any, page: list[str]) -> None:
    for kind, verdicts in script.judged(list(KINDS.values())):
        assert_same(script, page, kind, verdicts)


def test_every_type_is_in_the_table(script: Any, page: list[str]) -> None:
    assert script.heading() in page, AGAIN
    rows = {line.split(" | ")[0].removeprefix("| ") for line in page if line.startswith("| ")}
    assert KINDS.keys() - rows == set(), AGAIN


def test_small_models_have_every_kind_of_block() -> None:
    for name, expected in (("qwen3_next", {"linear_attention", "full_attention"}), ("llama", None)):
        config = build(KINDS[name]).config
        assert (config.hidden_size, config.num_attention_heads) == (WIDTH, HEADS)
        assert 3 <= config.num_hidden_layers <= 6
        assert expected is None or set(config.layer_types) == expected


def test_parameters_are_the_same_every_time_and_none_is_even() -> None:
    first, again = (build(KINDS["bert"]) for _ in range(2))
    for before, after in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(before, after)
        assert before.std() > 0


def _of(value: Any) -> Any:
    return lambda *_, **__: value


def test_what_is_wrong_or_without_effect_or_crashes_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    right = judge(KINDS["llama"])
    assert {right[name] for name in ("attention", "value_zeroing", "lrp", "ablation")} == {CHECKED}
    zeroed = aw.value_zeroing

    def moved(*given: Any, **options: Any) -> Any:
        result = zeroed(*given, **options)
        return type("Moved", (), {"layer": lambda _, number: result.layer(number) + 0.1})()

    def crash(*_: Any, **__: Any) -> Any:
        raise KeyError("sliding_attention")

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("no: not raised by the package")

    for name, other in {
        "ablate_heads": _of(nullcontext()),
        "value_zeroing": moved,
        "lrp": crash,
        "alti": refuse,
    }.items():
        monkeypatch.setattr(judging.aw, name, other)
    wrong = judge(KINDS["llama"])
    faults = {name: said for name, said in wrong.items() if said.startswith(FAULT)}
    assert faults.keys() == {"ablation", "value_zeroing", "lrp", "alti"}
    assert "no effect in layer 0" in faults["ablation"]
    assert "differs by" in faults["value_zeroing"]
    assert "KeyError" in faults["lrp"]
