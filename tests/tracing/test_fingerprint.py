"""Fingerprints: of weights and of vocabularies and options, wherever they lie."""

from __future__ import annotations

import pickle
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers

from attnwidgets.tracing.content import fingerprint_of, tokenizer_fingerprint
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_weights_that_are_offloaded_count(tmp_path: Path, where: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    prints = []
    for seed in (0, 1):
        model = random_classifier()
        with torch.no_grad():
            model.classifier.weight += seed
        plain = fingerprint_of(model)
        if where == "disk":
            accelerate.disk_offload(model, str(tmp_path / str(seed)), offload_buffers=True)
        else:
            accelerate.cpu_offload(model)
        assert next(model.parameters()).is_meta
        prints += [fingerprint_of(model), plain]
    assert prints[0] == prints[1] != prints[2] == prints[3]


def test_saving_a_model_leaves_its_fingerprint_and_a_hook_does_not(tmp_path: Path) -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    before = fingerprint_of(model)
    model.save_pretrained(tmp_path)
    assert fingerprint_of(model) == before
    assert fingerprint_of(type(model).from_pretrained(tmp_path)) == before
    handle = model.bert.encoder.layer[0].register_forward_hook(lambda *_: None)
    assert fingerprint_of(model) != before
    handle.remove()
    assert fingerprint_of(model) == before


def test_weights_that_are_packed_count() -> None:
    prints = []
    for seed in (0, 0, 1):
        model = random_classifier()
        with torch.no_grad():
            model.classifier.weight.mul_(1 + torch.arange(3)[:, None] * seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch moves this to another package
            prints.append(fingerprint_of(torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})))
    assert prints[0] == prints[1] != prints[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.wordpiece().save_pretrained(tmp_path / "one")
    return tmp_path / "one"


def loaded(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_a_tokenizer_is_the_same_in_another_folder_pickled_and_after_use(folder: Path) -> None:
    tokenizer = loaded(folder)
    before = tokenizer_fingerprint(tokenizer)
    tokenizer.save_pretrained(folder.parent / "two")
    assert tokenizer_fingerprint(loaded(folder.parent / "two")) == before
    assert tokenizer_fingerprint(pickle.loads(pickle.dumps(tokenizer))) == before
    tokenizer("the cat", truncation=True, max_length=3, padding="max_length")
    assert tokenizer_fingerprint(tokenizer) == before


def test_what_changes_ids_makes_another_tokenizer(folder: Path) -> None:
    before = tokenizer_fingerprint(loaded(folder))
    changed = [loaded(folder) for _ in range(4)]
    changed[0].add_tokens(["unbelievable"])
    changed[1].model_max_length = 8
    changed[2].backend_tokenizer.normalizer = None
    changed[3].mask_token = "cat"
    prints = {before, *map(tokenizer_fingerprint, changed)}
    assert len(prints) == 5
    assert tokenizer_fingerprint(None) not in prints


class Spaces:
    """A user's slow tokenizer."""

    def __init__(self, words: list[str], path: str) -> None:
        self.words, self.name_or_path = words, path
        self.init_kwargs = {"vocab_file": path, "name_or_path": path, "lower": True}

    def get_vocab(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(self.words)}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.words[at] for at in ids]


def test_a_slow_tokenizer_is_its_vocabulary_and_options() -> None:
    tokenizer, moved = Spaces(["a", "b"], "here"), Spaces(["a", "b"], "there")
    assert tokenizer_fingerprint(tokenizer) == tokenizer_fingerprint(moved)
    assert tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(Spaces(["b", "a"], "here"))
    moved.init_kwargs["lower"] = False
    assert tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(moved)
