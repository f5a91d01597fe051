"""Tokenizers of a live page read texts as those of Python do: ids, spans, special tokens and labels."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import attnwidgets as aw
from attnwidgets.tracing.recording.inputs import encode
from attnwidgets.views.page.live.readers import packed_reader

pytestmark = pytest.mark.slow

JS = Path(__file__).parents[2] / "js"
ODD = [
    "  two  spaces ",
    "Café naïve Ångström ŝ",
    "don't they're I'LL we've 'tis",
    "2024-11-27, 3.14159 ½ ² Ⅷ ①",
    "日本語 text 中文字 한국어",
    "emoji 👩‍👩‍👧 ok 🙂! 👍🏽 🇩🇪🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "tab\tline\nbreak\r\nend\x0bvertical\x0cfeed",
    "a\u0301 e\u0308 q\u0323\u0307",
    "İstanbul ẞ ﬁ ΟΔΟΣ ǅ",
    "x\u200by \ufeffz a\ufeff b \x85 c\u2028d",
    "[MASK] and [SEP] <|im_start|>user<|im_end|><|endoftext|>",
    "Ελληνικά русский עברית العربية ไทย हिन्दी क्षि",
    "a" * 120,
    "$5€ #hash @you ~`^|<>",
    "\u00a0nbsp\u2003em   \u3000",
    "١٢٣ ४५",
    "—“quotes”…",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "\0 \ufffd \x7f",
]
DRIVER = """
const {read, labelsOf} = require(process.argv[2]);
const {readers, texts} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const points = (text, at) => [...text.slice(0, at)].length;
console.log(JSON.stringify(readers.map((reader) => texts.map((text) => {
  const {ids, spans, special} = read(reader, text);
  const placed = spans.map((span) => span.map((at) => points(text, at)));
  return {ids, spans: placed, special, labels: labelsOf(reader, ids)};
}))));
"""


def byte_pairs(texts):
    """A tokenizer as GPT-2's, of pairs that are frequent in some texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"]
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


@pytest.fixture(scope="module")
def texts():
    return [item.text for item in aw.demo_texts()][:300] + ODD


@pytest.fixture(scope="module")
def tokenizers(texts):
    names = {"encoder": "wordpiece", "decoder": "SmolLM2"}
    made = {name: aw.demo_model(kind)[1] for kind, name in names.items()}
    return {**made, "GPT-2": byte_pairs(texts)}


@pytest.fixture(scope="module")
def answers(tokenizers, texts, tmp_path_factory):
    """The tokens that a page reads, by the name of the tokenizer."""
    tool = JS / "node_modules/.bin/esbuild"
    if shutil.which("node") is None or not tool.exists():
        pytest.skip("needs Node.js and js/node_modules (make js)")
    folder = tmp_path_factory.mktemp("readers")
    entry = "export * from './src/live/reader.ts'; export * from './src/live/labels.ts';"
    command = [tool, "--bundle", "--platform=node", "--format=cjs", f"--outfile={folder / 'reader.cjs'}"]
    subprocess.run(command, cwd=JS, input=entry, text=True, check=True, capture_output=True)
    (folder / "driver.cjs").write_text(DRIVER, encoding="utf-8")
    readers = [packed_reader(tokenizer, 10_000) for tokenizer in tokenizers.values()]
    given = json.dumps({"readers": readers, "texts": texts})
    command = ["node", folder / "driver.cjs", folder / "reader.cjs"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(tokenizers, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", ["wordpiece", "SmolLM2", "GPT-2"])
def test_texts_are_read_as_by_the_tokenizer(name, answers, tokenizers, texts):
    for text, answer in zip(texts, answers[name], strict=True):
        sample = encode(tokenizers[name], text)
        shown = sample.text
        assert answer["ids"] == list(sample.ids), text
        assert answer["special"] == list(shown.special), text
        assert answer["spans"] == [list(span) for span in shown.spans], text
        assert answer["labels"] == list(shown.tokens), text


def refused(**parts):
    """The refusal of a tokenizer like GPT-2's with other parts."""
    tokenizer = Tokenizer(parts.pop("model", None) or models.BPE({}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    with pytest.raises(ValueError, match="the tokenizer") as error:
        packed_reader(PreTrainedTokenizerFast(tokenizer_object=tokenizer), 20)
    return str(error.value)


def test_what_a_page_does_not_read_is_refused_by_name():
    assert "Unigram" in refused(model=models.Unigram([("a", -1.0)], None))
    assert "NFC" in refused(normalizer=normalizers.NFC())
    assert "Metaspace" in refused(pre_tokenizer=pre_tokenizers.Metaspace())
    assert "ByteLevel" in refused(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True))
    assert "some bytes" in refused(model=models.BPE({"a": 0}, [], unk_token="a"))
    assert "byte_fallback" in refused(model=models.BPE({}, [], byte_fallback=True))
    assert "Whitespace" in refused(
        model=models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"), pre_tokenizer=pre_tokenizers.Whitespace()
    )
