"""Strange texts through every kind of tokenizer, and the results computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from tests.tracing import tiny

from .fuzzing import fingerprint, fuzz, told

ATOMS = [
    *("👩‍👩‍👧‍👦", "🏳️‍🌈", "שלום", "مرحبا", "ﷺ", "𝒳", "𐍈", "ก็็็็็", "ẞ", "İ", "ǅ", "日本語", "。"),
    *("\u202eabc\u202c", "\0", "\ud800", "\udfff", "\ud83d\ude00", "\x1b[31m", "\u200b", "\ufeff"),
    *("e\u0301" * 5, "a" * 50, "   ", "\n\n", "\t", "\r", "\u2028", "\x85", "\u200e", '"', "`", "...", "''"),
    *("</script>", "<img src=x onerror=alert(1)>", "$x_{", "\\frac", "{{x}}", "%s", "1e400", "-0"),
    *("[MASK]", "[SEP]", "[CLS]", "[PAD]", "<unk>", "<s>", "<|end|>", "<0x0A>", "the", "cat", "don't"),
]  # fmt: skip
ALONE = [
    "",
    "   ",
    "\n",
    "\0",
    "\ud800",
    "[CLS]",
    "[SEP][SEP]",
    "\u200b" * 20,
    "😀" * 40,
    " " * 300,
    "a" * 300,
]


def text(r: Any) -> str:
    if r.random() < 0.05:
        return r.choice(ALONE)
    return r.choice(["", " "]).join(r.choice(ATOMS) for _ in range(r.randint(1, 8)))


@pytest.fixture(scope="module")
def models() -> list[tuple[Any, Any]]:
    import transformers as hf

    def small(make: Any, config: Any, size: int) -> Any:
        return tiny.build(lambda: make(config(vocab_size=size, **tiny.SMALL))).train()

    wordpiece, byte_level, metaspace = tiny.wordpiece(), tiny.byte_level(), tiny.metaspace()
    return [
        (small(hf.BertForMaskedLM, hf.BertConfig, len(wordpiece)), wordpiece),
        (small(hf.LlamaForCausalLM, hf.LlamaConfig, len(byte_level)), byte_level),
        (small(hf.BertModel, hf.BertConfig, len(metaspace)), metaspace),
        (small(hf.BertModel, hf.BertConfig, 100), metaspace),  # the wrong tokenizer
    ]


def test_texts(models: Any, tmp_path: Any) -> None:
    before = [fingerprint(model) for model, _ in models]

    def a_text(r: Any) -> None:
        model, reader = r.choice(models)
        given: dict[str, Any] = {"text": text(r)}
        if r.random() < 0.15:
            given["text_pair"] = text(r)
        if r.random() < 0.15:
            given = {"words": [text(r) for _ in range(r.randint(0, 4))]}
        if r.random() < 0.1:
            given = {"text": [text(r) for _ in range(r.randint(0, 3))]}
        trace = told(lambda: aw.trace(model, reader, **given, truncation=r.random() < 0.5))
        for item in trace if isinstance(trace, list) else [trace] * (trace is not None):
            _answers(r, item, tmp_path)

    fuzz(a_text, 50)
    assert [fingerprint(model) for model, _ in models] == before


def _answers(r: Any, trace: Any, folder: Any) -> None:
    attention = aw.attention(trace)
    "".join(trace.tokens).encode()
    for unit in ("token", "word", "sentence"):
        rows = np.asarray(attention.to(unit).values).sum(-1)
        assert np.abs(rows - 1).max() < 1e-4, f"rows of {unit} do not sum to 1"
        assert sorted(i for span in trace.units[unit].spans for i in span) == [*range(len(trace.tokens))]
    use = r.choice(["save", "page", "picture", "words", "zeroing", "rollout"])
    if use == "save":
        assert aw.load(attention.save(folder / "map")).query.tokens == trace.tokens
    elif use == "page":
        view = aw.Heatmap(trace)
        assert "</html>" in view.to_html(folder / "page.html").read_text(encoding="utf-8")
        view.close()
    elif use == "picture":
        view = aw.TokenStrip(attention)
        assert view.save(folder / f"strip.{r.choice(['svg', 'pdf', 'png'])}", dpi=30).stat().st_size
        view.close()
    elif use == "words":
        assert (repr(trace) + repr(attention) + aw.Heatmap(trace).describe()).encode()
    elif use == "zeroing":
        zeroed = told(lambda: aw.value_zeroing(trace, unit="word").values)
        assert zeroed is None or np.isfinite(zeroed).all()
    else:
        assert np.abs(aw.rollout(trace).values.sum(-1) - 1).max() < 1e-4
