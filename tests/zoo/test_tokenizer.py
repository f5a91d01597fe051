"""The tokenizer of letters, and arguments that cannot be."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import attnwidgets as aw
from tests.zoo.made import SMALL, made


def test_a_text_begins_with_the_start_token_and_has_no_end():
    model, tokenizer = made("induction")
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    encoded = tokenizer(" fa\tb ")
    assert encoded == {"input_ids": [16, 5, 0, 1], "attention_mask": [1, 1, 1, 1]}
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == ["<s>", "f", "a", "b"]
    assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == "fab"
    assert tokenizer("fab", return_offsets_mapping=True)["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (2, 3)]
    assert tokenizer("<s>fab", add_special_tokens=False)["input_ids"] == encoded["input_ids"]
    assert model.config.bos_token_id == tokenizer.bos_token_id == 16


def test_generation_goes_on_as_the_text_did():
    model, tokenizer = made("induction")
    out = model.generate(**tokenizer("fadebcfa", return_tensors="pt"), max_new_tokens=10, do_sample=False)
    assert tokenizer.decode(out[0], skip_special_tokens=True) == "fadebcfadebcfadebc"


def test_texts_of_several_lengths_are_padded_with_a_token_of_the_readers_choice():
    model, tokenizer = aw.zoo.additive("abcd", 6)
    tokenizer.pad_token = tokenizer.bos_token
    batch = tokenizer(["abca", "b"], padding=True, return_tensors="pt")
    assert batch["attention_mask"].tolist() == [[1] * 5, [1, 1, 0, 0, 0]]
    with torch.no_grad():
        scores = model(**batch).logits[:, 1]
    assert scores.tolist() == pytest.approx([3.0, 0.5], abs=1e-6)


def test_other_letters_and_long_texts_are_named():
    model, tokenizer = aw.zoo.induction("abc", 5)
    with pytest.raises(ValueError, match=r"text 'abx' holds 'x'; the letters of this model are 'abc'"):
        tokenizer("abx")
    with pytest.raises(ValueError, match="holds 'A'"):
        tokenizer(["ab", "A"])
    with pytest.raises(ValueError, match=r"6 letters; this model reads at most 5 \(its argument length\)"):
        tokenizer("ab cab c")
    with pytest.raises(ValueError, match=r"holds 'x'; the letters of this model are 'abc'"):
        aw.trace(model, tokenizer, "abx")
    assert len(tokenizer("abcab").input_ids) == 6


def test_saved_and_loaded_it_is_the_same(tmp_path):
    _, tokenizer = made("dyck")
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert dict(loaded("([]")) == dict(tokenizer("([]"))
    assert loaded.bos_token == "<s>"
    assert loaded.model_max_length == 21
    with pytest.raises(Exception, match="UNK"):  # refused by the library itself, and never read as another
        loaded("x")


@pytest.mark.parametrize("letters", ["éß", "字母", "אב", "🙂🙃", "01", ".?!", "ＡＢ"])
def test_any_letters_will_do(letters):
    model, tokenizer = aw.zoo.induction(letters, 6)
    text = (letters + letters)[:-1]
    assert aw.trace(model, tokenizer, text).predictions(1)[0].id == len(letters) - 1
    assert model.truth.answer(text) == letters[-1]
    assert aw.zoo.histogram("same", letters, 4)[0].truth.answer(letters[0] * 3) == "3"


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"letters": ""}, ValueError, "letters must have . to 64 characters, not 0"),
        ({"letters": "abca"}, ValueError, "letters holds 'a' twice"),
        ({"letters": "a b"}, ValueError, r"letters holds ' ' \(character 1\), which is not a visible"),
        ({"letters": "a\u202eb"}, ValueError, r"letters holds '\\u202e'"),
        ({"letters": "a\u0301b"}, ValueError, "letters holds '.*' .character 1."),
        ({"letters": "a\x00"}, ValueError, r"letters holds '\\x00'"),
        ({"letters": "<s>/"}, ValueError, "letters can spell '<s>'"),
        ({"letters": [*"abcd"]}, TypeError, "letters must be a string .*, not list"),
        ({"letters": "".join(map(chr, range(0x4E00, 0x4E41)))}, ValueError, "to 64 characters, not 65"),
        ({"length": 0}, ValueError, "length must be 1 to 64, not 0"),
        ({"length": 65}, ValueError, "length must be 1 to 64, not 65"),
        ({"length": 4.0}, TypeError, "length must be a whole number, not 4.0"),
        ({"length": True}, TypeError, "length must be a whole number, not True"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_argument(name, arguments, error, said):
    with pytest.raises(error, match=said):
        getattr(aw.zoo, name)(**arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("histogram", {"how": "some"}, "how 'some' is not one of 'same', 'all', 'different'.* 'same'"),
        ("dyck", {"letters": "()["}, "letters must be pairs"),
        ("dyck", {"depth": 0}, "depth must be 1 to 64"),
        ("negation", {"no": "x"}, "no must be one of the letters 'abcdn', not 'x'"),
        ("negation", {"letters": "n"}, "letters must have 2 to 64 characters, not 1"),
        ("additive", {"weights": {"a": 1}}, "weights must hold the letters 'abcdefgh', each once; see 'b'"),
        ("additive", {"letters": "a", "weights": {"a": float("nan")}}, r"weights\['a'\] must be a number"),
        (
            "additive",
            {"letters": "a", "weights": {"a": 2000}},
            r"weights\['a'\] must be a number from -1,024",
        ),
        ("additive", {"letters": "a", "weights": {"a": "1"}}, r"weights\['a'\] must be a number"),
    ],
)
def test_options_of_single_models_are_checked(name, arguments, said):
    with pytest.raises(ValueError, match=said):
        getattr(aw.zoo, name)(**arguments)


def test_a_misspelt_model_names_the_nearest():
    with pytest.raises(AttributeError, match="Did you mean 'induction'"):
        _ = aw.zoo.inducton
