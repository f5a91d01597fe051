"""Models of live pages: how their numbers are stored, and their files beside a page."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import attnwidgets as aw
from attnwidgets.views.page.live import weights as live_weights
from attnwidgets.views.page.live.forward import torch_logits
from attnwidgets.views.page.live.kinds import Tensor, joined, pack, pack_exactly
from attnwidgets.views.page.live.weights import layout_of

from .live_pages import parts_of

# -- kinds -----------------------------------------------------------------------------------------


def random_numbers(*shape):
    return np.random.default_rng(0).normal(0, 0.1, shape).astype(np.float32)


@pytest.mark.parametrize(("kind", "bytes_a_number"), [("q4m", 0.625), ("q8", 1.0625), ("f16", 2), ("f32", 4)])
def test_numbers_that_a_kind_holds_come_back_bit_for_bit(kind, bytes_a_number):
    stored = pack(random_numbers(6, 64), kind).unpacked()
    tensor = pack_exactly(stored)
    assert tensor.kind == kind
    assert tensor.size == bytes_a_number * stored.size
    assert (tensor.unpacked().view(np.uint32) == stored.view(np.uint32)).all()


def test_groups_of_equal_numbers_and_zeros_come_back():
    values = np.repeat(np.float32([0, 0.5, -0.25]), 32)[:, None].reshape(3, 32)
    assert pack_exactly(values).kind == "q4m"
    np.testing.assert_array_equal(pack_exactly(values).unpacked(), values)


def test_only_matrices_of_whole_groups_are_stored_in_few_bits():
    stored = pack(random_numbers(8, 64), "q8").unpacked()
    assert pack_exactly(stored).kind == "q8"
    assert pack_exactly(stored.reshape(-1)).kind == "f32"
    assert pack_exactly(np.ascontiguousarray(stored[:, :40])).kind == "f32"


def test_negative_zeros_are_numbers_of_their_own():
    values = np.full((1, 32), -0.0, np.float32)
    tensor = pack_exactly(values)
    assert tensor.kind == "f16"
    assert np.signbit(tensor.unpacked()).all()


def test_rounding_to_eight_bits_errs_by_half_a_step():
    values = random_numbers(16, 64)
    steps = np.abs(values.reshape(-1, 32)).max(1, keepdims=True) / 127
    errors = np.abs(pack(values, "q8").unpacked() - values).reshape(-1, 32)
    assert (errors <= 0.52 * steps).all()


def test_tensors_start_at_multiples_of_sixteen_bytes():
    tensors = [
        Tensor("f16", (3,), b"abcdef"),
        Tensor("q8", (1, 32), b"n" * 32, b"ss"),
        Tensor("f32", (1,), b"last"),
    ]
    assert joined(tensors) == b"abcdef" + bytes(10) + b"n" * 32 + b"ss" + bytes(14) + b"last"


# -- models ----------------------------------------------------------------------------------------

SIZES = {"vocab_size": 9, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SOURCES = {**SIZES, "intermediate_size": 96, "num_key_value_heads": 2, "max_position_embeddings": 20}
FAMILIES = {
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**SOURCES, initializer_range=0.3)),
    "Mistral": lambda: MistralForCausalLM(MistralConfig(**SOURCES, sliding_window=8, initializer_range=0.3)),
    "Qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SOURCES, initializer_range=0.3)),
    "Qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SOURCES, head_dim=24, initializer_range=0.3)),
    "Bert": lambda: BertModel(BertConfig(**SIZES, intermediate_size=96, initializer_range=0.3)),
}


def random_model(family):
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("weights", ["auto", "exact", "int8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_numbers_of_a_page_are_computed_with_as_by_torch(family, weights):
    model = random_model(family)
    layout = layout_of(model, weights)
    rounded = layout.rounded_copy(model)
    ids = torch.tensor([[1, 4, 2, 8, 0, 3]])
    logits = torch_logits(rounded, {"input_ids": ids}, layout)  # compares with the pass of the page
    changed = [not torch.equal(a, b) for a, b in zip(rounded.parameters(), model.parameters(), strict=True)]
    assert any(changed) == (weights != "exact")
    assert layout.rounded == {"auto": "float16", "exact": "", "int8": "8 bits"}[weights]
    assert np.isfinite(logits).all()


def test_a_page_reads_no_text_beyond_a_sliding_window():
    assert layout_of(random_model("Mistral")).positions == 8


@pytest.mark.slow
def test_smollm2_is_stored_exactly_in_the_bits_of_its_own_file(smollm2):
    model, _ = smollm2
    layout = layout_of(model)
    assert layout.rounded == ""
    assert len(layout.data()) == pytest.approx(96.5e6, rel=1e-3)
    copy = dict(layout.rounded_copy(model).named_parameters())
    assert all(torch.equal(copy[name], value) for name, value in model.named_parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "rounding", "megabytes"),
    [
        ("auto", r"weights rounded to float16(: attention differs by up to 0\.00\d)?", 45.2),
        ("int8", r"weights rounded to 8 bits: attention differs by up to 0\.0\d", 24.1),
    ],
)
def test_minilm_says_what_rounding_changes_in_the_texts_of_the_page(
    minilm_trace, tmp_path, weights, rounding, megabytes
):
    path = aw.to_html(aw.Heatmap(minilm_trace), tmp_path / "page.html", live=True, weights=weights)
    [live] = parts_of(path)[0]["live"]
    assert re.fullmatch(rounding, live["rounding"])
    assert live["files"]["bytes"] == pytest.approx(megabytes * 1e6, rel=1e-2)
    assert (live["longest"], live["reader"], live["predicts"]["labels"]) == (256, None, [])
    data, reader = read_back(path, live)
    assert (reader["kind"], len(reader["tokens"])) == ("wordpiece", 30522)
    assert data == layout_of(minilm_trace.model, weights).data()


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def induction():
    return aw.zoo.induction()


@pytest.fixture(scope="module")
def dyck():
    return aw.zoo.dyck()


def written(model, text, path, **options):
    return aw.to_html(aw.Heatmap(aw.trace(*model, text)), path, live=True, **options)


def read_back(path, live):
    """The weights and the tokenizer of a page's model, checked as the page checks them."""
    files = live["files"]
    name = files["folder"].split("/")[1]
    data = b""
    for number, (file, length, checksum) in enumerate(files["parts"]):
        script = (path.parent / files["folder"] / file).read_text()
        [part] = re.fullmatch(rf'awPart\("{name}",{number},"([^"]*)"\)', script).groups()
        bytes_of_part = base64.b64decode(part)
        assert (len(bytes_of_part), zlib.crc32(bytes_of_part)) == (length, checksum)
        data += bytes_of_part
    assert len(data) == files["bytes"]
    file, length, checksum = files["tokenizer"]
    script = (path.parent / files["folder"] / file).read_text(encoding="utf-8")
    text = json.loads(re.fullmatch(rf'awTokenizer\("{name}",(".*")\)', script)[1])
    assert (len(text.encode()), zlib.crc32(text.encode())) == (length, checksum)
    return data, json.loads(text)


def beside(folder):
    """Names in the folder beside a page, by kind: scripts and models."""
    names = sorted(path.name for path in (folder / "attnwidgets-files").iterdir())
    return [name for name in names if name.endswith(".js")], [name for name in names if "." not in name]


@pytest.mark.slow
def test_a_folder_holds_the_page_its_script_and_the_model(induction, tmp_path):
    path = written(induction, "fadebc", f"{tmp_path}/site/")
    assert path == tmp_path / "site" / "index.html"
    text = path.read_text(encoding="utf-8")
    assert (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' blob:; worker-src blob:; "
        "style-src 'unsafe-inline'; img-src data: blob:"
    ) in text
    [script], [model] = beside(path.parent)
    assert f'<script src="attnwidgets-files/{script}"></script>' in text
    assert "works offline" in text
    [live] = parts_of(path)[0]["live"]
    assert live["files"]["folder"] == f"attnwidgets-files/{model}/"
    assert "aw-live-0" not in parts_of(path)[1]
    data, reader = read_back(path, live)
    assert data == layout_of(induction[0]).data()
    assert reader["kind"] == "characters"
    code = (path.parent / "attnwidgets-files" / script).read_text(encoding="utf-8")
    assert "globalThis.awEngine=" in code


@pytest.mark.slow
def test_weights_of_several_parts_are_read_back(induction, tmp_path, monkeypatch):
    monkeypatch.setattr("attnwidgets.views.page.live.files.PART", 1000)
    path = written(induction, "fadebc", f"{tmp_path}/")
    [live] = parts_of(path)[0]["live"]
    assert len(live["files"]["parts"]) > 3
    assert read_back(path, live)[0] == layout_of(induction[0]).data()


@pytest.mark.slow
def test_pages_of_a_folder_share_a_model_and_leave_nothing_stale(induction, dyck, tmp_path, monkeypatch):
    monkeypatch.setattr("attnwidgets.views.page.live.packing.MOST_PARAMETERS", 10)
    first, second = tmp_path / "week1.html", tmp_path / "week2.html"
    written(induction, "fadebc", first)
    part = next(tmp_path.glob("attnwidgets-files/*/part-000.js"))
    before = part.stat().st_mtime_ns
    written(induction, "abcabc", second)
    assert [len(names) for names in beside(tmp_path)] == [1, 1]
    assert part.stat().st_mtime_ns == before
    written(dyck, "([]", second)
    assert len(beside(tmp_path)[1]) == 2  # the first page still has its model
    written(dyck, "([])", first)
    assert len(beside(tmp_path)[1]) == 1
    (tmp_path / "attnwidgets-files" / "mine.txt").write_text("not of a page")
    aw.to_html(aw.Heatmap(aw.trace(*dyck, "([])")), first)
    assert len(beside(tmp_path)[1]) == 1
    aw.to_html(aw.Heatmap(aw.trace(*dyck, "([])")), second)
    assert beside(tmp_path) == ([], [])
    assert (tmp_path / "attnwidgets-files" / "mine.txt").exists()


@pytest.mark.slow
def test_a_damaged_part_is_written_again(induction, tmp_path):
    path = written(induction, "fadebc", f"{tmp_path}/")
    part = next(tmp_path.glob("attnwidgets-files/*/part-000.js"))
    part.write_text(part.read_text()[:-40])
    path = written(induction, "fadebc", f"{tmp_path}/")
    assert read_back(path, parts_of(path)[0]["live"][0])


@pytest.mark.slow
def test_a_page_that_is_refused_leaves_the_earlier_one_as_it_was(tmp_path):
    model, tokenizer = aw.zoo.induction()
    trace = aw.trace(model, tokenizer, "fadebc")
    path = aw.to_html(aw.Heatmap(trace), f"{tmp_path}/", live=True)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    with pytest.raises(ValueError, match="trace the text again"):
        aw.to_html(aw.Heatmap(trace), path, live=True)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


# -- refusals --------------------------------------------------------------------------------------


def test_weights_beyond_the_limit_are_refused_with_their_size_and_a_way_out(monkeypatch):
    model = random_model("Llama")
    size = len(layout_of(model).data())
    monkeypatch.setattr(live_weights, "MOST_BYTES", int(0.7 * size))
    with pytest.raises(ValueError, match=r"weights of LlamaForCausalLM take .* MB.*weights='int8' takes"):
        layout_of(model)
    assert layout_of(model, "int8").rounded == "8 bits"
    monkeypatch.setattr(live_weights, "MOST_BYTES", int(0.4 * size))
    with pytest.raises(ValueError, match="use a smaller model"):
        layout_of(model, "int8")
    monkeypatch.setattr(live_weights, "MOST_BYTES", int(0.2 * size))
    with pytest.raises(ValueError, match=r"has [\d,]+ parameters, and a page computes models of at most"):
        layout_of(model)


def test_models_that_a_page_does_not_compute_are_refused_by_name():
    model = AlbertModel(AlbertConfig(**SIZES, intermediate_size=96, embedding_size=8))
    with pytest.raises(
        ValueError, match="AlbertModel has no blocks of a kind that a page computes: GPT2, Llama"
    ):
        layout_of(model)


def test_options_of_weights_are_named(given, tmp_path):
    view = aw.Heatmap(given())
    with pytest.raises(ValueError, match="int4"):
        aw.to_html(view, tmp_path / "page.html", live=True, weights="int4")
    with pytest.raises(ValueError, match=r"weights='int8'.*live=True"):
        aw.to_html(view, tmp_path / "page.html", weights="int8")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        aw.to_html(view, f"{tmp_path}/missing/page/")


def test_a_path_that_ends_in_a_slash_is_a_folder_of_a_page(given, tmp_path):
    path = aw.Heatmap(given()).to_html(f"{tmp_path}/page/")
    assert path == tmp_path / "page" / "index.html"
    assert [item.name for item in path.parent.iterdir()] == ["index.html"]
