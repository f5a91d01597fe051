"""`python -m attnwidgets.zoo.train`: its prints and files, and untouched files."""

from __future__ import annotations

import random
import re

import pytest
import torch

import attnwidgets as aw
from attnwidgets.zoo.train.__main__ import main
from attnwidgets.zoo.train.alice import LENGTH, book, made_up_name, n_gram_bits, passage
from attnwidgets.zoo.train.dyck import balanced, matches
from attnwidgets.zoo.train.recipe import fit
from attnwidgets.zoo.train.recipes import RECIPES
from attnwidgets.zoo.trained_models import make_tokenizer


@pytest.mark.slow
def test_a_short_training_says_how_far_it_is_from_the_package_and_writes_what_can_be_loaded(tmp_path, capsys):
    out = tmp_path / "new folder" / "mine.safetensors"
    assert main(["dyck", "--seed", "1", "--steps", "3", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "GPT2LMHeadModel, 62,850 parameters, 3 steps" in said
    now, package = map(float, re.search(r"closing bracket +(\S+) +(\S+)", said).groups())
    assert now < 0.9 < package
    model, tokenizer = aw.zoo.trained("dyck", file=out)
    assert model.truth.seed == 1
    assert model.truth.measured["accuracy, closing bracket"] == pytest.approx(now, abs=5e-4)
    assert aw.trace(model, tokenizer, "([])").attention_layer(1).shape == (1, 5, 5)


@pytest.mark.slow
def test_a_seed_that_is_not_shipped_is_compared_with_those_that_are(capsys):
    main(["dyck", "--seed", "9", "--steps", "1"])
    heading = capsys.readouterr().out
    assert all(f"package, seed {seed}" in heading for seed in (0, 1, 2))


@pytest.mark.slow
def test_checkpoints_are_written_to_a_folder_and_end_at_the_weights_that_are_measured(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["dyck", "--seed", "1", "--steps", "4", "--keep", "2", "--out", str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"3 checkpoints: aw.checkpoints({str(folder)!r})" in said
    run = aw.checkpoints(folder)
    assert run.steps == (0, 2, 4)
    recipe = RECIPES["dyck"]
    measured = recipe.measure(run.model(4), run.tokenizer)["accuracy, closing bracket"]
    assert float(re.search(r"closing bracket +(\S+)", said)[1]) == pytest.approx(measured, abs=5e-4)
    with pytest.raises(SystemExit):
        main(["dyck", "--keep", "2", "--out", str(folder)])
    assert "exists: --keep writes to a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["dyck", "--keep", "2"],
        ["dyck", "--keep", "0", "--out", "run"],
        ["dick"],
        ["dyck", "--steps", "0"],
        ["dyck", "--seed", "-1"],
        ["dyck", "--seed", "x"],
        [],
    ],
)
def test_what_cannot_be_trained_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_seed_gives_the_same_weights_and_leaves_threads_and_random_numbers_alone():
    recipe = RECIPES["dyck"]
    tokenizer = make_tokenizer(recipe.tokenizer)
    threads = torch.get_num_threads()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first, same, other = (fit(recipe, tokenizer, seed, steps=2) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == threads
    weight = "transformer.h.0.attn.c_attn.weight"
    assert torch.equal(first.state_dict()[weight], same.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])


@pytest.mark.extended
def test_dyck_learns_again(tmp_path, capsys):
    out = tmp_path / "dyck.safetensors"
    main(["dyck", "--seed", "0", "--out", str(out)])
    assert "package, seed 0" in capsys.readouterr().out
    assert aw.zoo.trained("dyck", file=out)[0].truth.measured["accuracy, closing bracket"] >= 0.99


def test_brackets_are_balanced_three_deep_and_matched():
    rng = random.Random(1)
    for text in (balanced(rng) for _ in range(200)):
        shorter = text
        for _ in range(3):
            shorter = shorter.replace("()", "").replace("[]", "")
        result = matches(text)
        assert len(text) == 20
        assert shorter == ""
        assert all(text[opened] + text[closed] in {"()", "[]"} for closed, opened in result.items())
    assert matches("([])") == {2: 1, 3: 0}


def test_nothing_of_what_is_held_out_is_learned():
    learned, held_out = book()
    assert len(learned) > 10 * len(held_out) > 80_000
    rng = random.Random(2)
    whole_lines = [line for line in held_out.split("\n") if len(line) > 2 * LENGTH]
    assert len(whole_lines) > 5
    assert not any(line[:LENGTH] in learned for line in whole_lines)
    assert all(len(passage(rng, 0.4, 0.2, few_letters=True)) == LENGTH for _ in range(300))


def test_made_up_names_are_not_words_of_the_book():
    rng = random.Random(4)
    words = set(re.findall("[a-z]+", "".join(book())))
    names = [made_up_name(rng) for _ in range(200)]
    assert all(re.fullmatch("[a-z]{2,10}", name) for name in names)
    assert sum(name in words for name in names) < 20


def test_n_grams_of_a_text_that_repeats_need_few_bits():
    assert n_gram_bits("abc " * 500, "abc " * 50) < 0.1
    noise = "".join(random.Random(6).choices("abcdefgh", k=20_000))
    assert n_gram_bits(noise[:10_000], noise[10_000:], order=1) == pytest.approx(3, abs=0.01)
