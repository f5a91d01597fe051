"""The trained models: loaded from the package, as good as they are said to be, and traced like any other."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import attnwidgets as aw
from attnwidgets.zoo.scenes import COLOURS
from attnwidgets.zoo.train.alice import bits, book, n_gram_bits
from attnwidgets.zoo.train.dyck import balanced, matches
from attnwidgets.zoo.train.histogram import counts
from attnwidgets.zoo.train.induction import build, repeating
from attnwidgets.zoo.train.recall import pairs, recalled
from attnwidgets.zoo.train.recipe import Schedule, fit
from attnwidgets.zoo.train.recipes import RECIPES
from attnwidgets.zoo.trained_models import WEIGHTS, make_tokenizer, shipped

SHIPPED = [(name, seed) for name, seeds in shipped().items() for seed in seeds]
TEXTS = {
    "alice": "the blimwick said to alice, 'who are you?' alice looked at the bli",
    "dates": "March 5, 1987",
    "dyck": "([()[]])",
    "histogram": "abacabadab",
    "induction": "fadebcfadeb",
    "recall": "a3c5b1a3d0c",
}
ATTENDING = [(name, seed) for name, seed in SHIPPED if name in TEXTS and name not in {"recall", "scenes"}]
every_model = pytest.mark.parametrize(("name", "seed"), SHIPPED)


def test_what_is_shipped_is_what_the_recipes_say():
    assert shipped() == {name: RECIPES[name].seeds for name in sorted(RECIPES)}


def test_the_weights_are_small():
    sizes = {path.name: path.stat().st_size for path in WEIGHTS.iterdir()}
    assert sizes["alice-0.safetensors"] < 600_000
    assert sizes["fairwashed-0.safetensors"] < 80_000  # beside the classifier, which the demo has
    assert sizes["scenes-0.safetensors"] < 400_000
    assert sum(sizes.values()) < 1_950_000


@pytest.mark.slow
@every_model
def test_a_model_reaches_what_it_is_said_to_reach(name, seed):
    model, tokenizer = aw.zoo.trained(name, seed)
    recipe = RECIPES[name]
    again = recipe.measure(model, tokenizer)
    assert again == pytest.approx(dict(model.truth.measured), abs=0.01)
    assert not model.truth.exact
    assert "measured, not exact" in repr(model.truth)
    assert next(model.parameters()).dtype == torch.float32
    assert not model.training


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("period", [6, 10, 16])
def test_induction_continues_what_repeats(seed, period):
    model, tokenizer = aw.zoo.trained("induction", seed)
    rng = random.Random(100 + period)
    ids = tokenizer([repeating(rng, period, 2 * period) for _ in range(200)], return_tensors="pt")[
        "input_ids"
    ]
    with torch.no_grad():
        guessed = model(input_ids=ids).logits[:, period + 1 : -1].argmax(-1)
    assert (guessed == ids[:, period + 2 :]).float().mean() >= 0.94


@pytest.mark.parametrize("seed", [0, 1])
def test_a_head_of_the_second_layer_looks_where_induction_looks(seed):
    model, tokenizer = aw.zoo.trained("induction", seed)
    trace = aw.trace(model, tokenizer, repeating(random.Random(5), 12, 24))
    # In the second copy, token t (0 is <s>) looks at the token after its first copy: t - 12 + 1.
    queries = np.arange(14, 25)
    first, second = (trace.attention_layer(layer).numpy() for layer in (0, 1))
    assert second[:, queries, queries - 11].mean(1).max() > 0.6
    assert first[:, queries, queries - 11].mean(1).max() < 0.3


@pytest.mark.slow
def test_one_layer_cannot_do_induction():
    recipe = RECIPES["induction"]
    tokenizer = make_tokenizer(recipe.tokenizer)
    shallow = replace(
        recipe, build=lambda tokenizer: build(tokenizer, layers=1), schedule=Schedule(150, 4e-3)
    )
    measured = recipe.measure(fit(shallow, tokenizer, seed=0), tokenizer)
    assert max(measured[f"accuracy, period {period}"] for period in (10, 16)) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dyck_knows_which_bracket_closes(seed):
    model, tokenizer = aw.zoo.trained("dyck", seed)
    rng = random.Random(50)
    right = asked = 0
    for text in {balanced(rng) for _ in range(200)}:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        closing = {bracket: tokenizer.convert_tokens_to_ids(bracket) for bracket in ")]"}
        for match in matches(text):
            guess = max(closing, key=lambda bracket: logits[match, closing[bracket]])
            right, asked = right + (guess == text[match]), asked + 1
    assert right / asked >= 0.99


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dyck_is_solved_without_looking_at_the_matching_bracket(seed):
    model, tokenizer = aw.zoo.trained("dyck", seed)
    measured = model.truth.measured
    assert all(abs(measured[f"layer {layer}, on the match"] - measured["evenly"]) < 0.1 for layer in (0, 1))
    text = "([()[]])(([]))"
    weights = aw.trace(model, tokenizer, text).attention_layer(1)[0]
    # Token p predicts the bracket at position p; the bracket at position q is token q + 1.
    looks = [int(weights[query].argmax()) == opened + 1 for query, opened in matches(text).items()]
    assert sum(looks) <= len(looks) / 2


@pytest.mark.parametrize(
    ("written", "date"),
    [
        ("March 5, 1987", "1987-03-05"),
        ("17 October 2044", "2044-10-17"),
        ("Dec 28 1999", "1999-12-28"),
        ("3/11/2020", "2020-11-03"),
    ],
)
def test_dates_are_written_right_one_by_one_and_in_a_batch(written, date):
    model, tokenizer = aw.zoo.trained("dates")
    alone = model.generate(**tokenizer(written, return_tensors="pt"), do_sample=False)
    assert tokenizer.decode(alone[0], skip_special_tokens=True) == date
    # Beside a longer text the text is padded, which the mask hides.
    batch = tokenizer([written, "September 26, 1966"], return_tensors="pt", padding=True)
    together = tokenizer.batch_decode(model.generate(**batch, do_sample=False), skip_special_tokens=True)
    assert together == [date, "1966-09-26"]


def test_recall_says_the_digit_that_a_letter_had():
    model, tokenizer = aw.zoo.trained("recall")
    rng = random.Random(12)
    right = asked = 0
    for text in (pairs(rng) for _ in range(100)):
        with torch.no_grad():
            guessed = model(**tokenizer(text, return_tensors="pt")).logits[0].argmax(-1)
        digits = [tokenizer.convert_ids_to_tokens(int(guessed[i])) == text[i] for i in recalled(text)]
        right, asked = right + sum(digits), asked + len(digits)
    assert right / asked >= 0.98
    assert asked > 500


def test_recall_is_traced_without_attention_and_removal_names_the_pair():
    model, tokenizer = aw.zoo.trained("recall")
    trace = aw.trace(model, tokenizer, TEXTS["recall"])
    assert [mixer.kind for block in trace.anatomy.stacks["self"] for mixer in block.mixers] == ["state space"]
    assert trace.predictions(1)[0].label == "5"
    # The last c (11) asks for c5 (3 and 4).
    removed = aw.occlusion(trace).values
    assert set(np.argsort(removed)[-3:]) == {3, 4, 11}


def test_letters_that_came_before_are_those_whose_digit_is_known():
    text = pairs(random.Random(3))
    assert len(text) == 32
    assert len({text[i : i + 2] for i in range(0, 32, 2)}) == len(set(text[::2]))
    assert recalled("a3c5a3a3c5") == [5, 7, 9]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_histogram_counts(seed):
    model, tokenizer = aw.zoo.trained("histogram", seed)
    rng = random.Random(77)
    texts = ["".join(rng.choices("abcdefgh", k=10)) for _ in range(300)]
    with torch.no_grad():
        guessed = model(**tokenizer(texts, return_tensors="pt")).logits[:, 1:].argmax(-1)
    assert (guessed == torch.tensor([counts(text) for text in texts])).float().mean() >= 0.97


def test_scenes_are_answered_from_the_cell_that_is_their_evidence():
    model, processor = aw.demo_model("scenes")
    scenes = [model.truth.scene(number) for number in range(12)]
    assert {len({cell for cell, _ in scene.shapes.values()}) for scene in scenes} == {4}
    for scene in scenes:
        picture = Image.fromarray(scene.image)
        inputs = processor(text=[scene.text], images=picture, return_tensors="pt")
        written = model.generate(**inputs, do_sample=False, max_new_tokens=10)
        assert processor.tokenizer.decode(written[0], skip_special_tokens=True).endswith(scene.answer)
        top, left, bottom, right = scene.evidence
        inside = scene.image[top:bottom, left:right]
        colour = COLOURS[scene.answer.split()[3]]
        assert (inside == colour).all(-1).sum() == (scene.image == colour).all(-1).sum() > 8
    trace = aw.trace(model, processor, scene.text, image=scene.image)
    assert trace.units["token"].boxes[1] == pytest.approx((0.0, 0.0, 8.0, 8.0), abs=0.05)
    assert trace.predictions(1)[0].label == "the"


def test_a_scene_needs_a_model_of_pictures_and_its_words():
    with pytest.raises(ValueError, match=r"'dyck' reads text; aw\.zoo\.trained\(\"scenes\"\) reads pictures"):
        aw.zoo.trained("dyck")[0].truth.scene()
    _, processor = aw.zoo.trained("scenes")
    with pytest.raises(ValueError, match="text holds 'dog'; the words of this model are what color is"):
        processor.tokenizer("what color is the dog ?")


@pytest.mark.slow
def test_alice_reads_what_it_never_saw_better_than_n_grams_do():
    model, tokenizer = aw.zoo.trained("alice")
    learned, held_out = book()
    assert bits(model, tokenizer, held_out) < n_gram_bits(learned, held_out)


def test_alice_goes_on_with_letters_that_repeat():
    model, tokenizer = aw.zoo.trained("alice")
    ids = tokenizer("qzjxvwkbmf" * 2 + "qzj", return_tensors="pt")
    written = model.generate(**ids, do_sample=False, max_new_tokens=7)
    assert tokenizer.decode(written[0], skip_special_tokens=True) == "qzjxvwkbmf" * 3
    assert model.truth.measured["accuracy, random letters"] > 0.9
    assert {role.split(" (")[0] for role in model.truth.heads.values()} == {"induction", "previous token"}


@pytest.mark.parametrize(("name", "seed"), ATTENDING)
def test_a_model_is_traced_and_shown(name, seed, tmp_path):
    model, tokenizer = aw.zoo.trained(name, seed)
    trace = aw.trace(model, tokenizer, TEXTS[name])
    special = {"<s>", "</s>"}
    tokens = [token.replace("␣", " ") for token in trace.tokens if token not in special]
    assert tokens == list(TEXTS[name])
    weights = trace.attention_layer(0)
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5)
    page = tmp_path / "page.html"
    aw.Explorer(trace).to_html(page)
    assert model.config.name_or_path in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["alice", "dyck", "induction", "recall"])
def test_generating_needs_no_mask_of_the_readers(name):
    model, tokenizer = aw.zoo.trained(name)
    inputs = tokenizer(TEXTS[name][:8], return_tensors="pt")
    assert set(inputs) == {"input_ids", "attention_mask"}
    options = {"do_sample": False, "max_new_tokens": 6}
    with_mask = model.generate(**inputs, **options)
    without = model.generate(inputs["input_ids"], **options)
    assert with_mask.shape[1] == inputs["input_ids"].shape[1] + 6
    assert torch.equal(with_mask, without)


def test_a_damaged_file_is_refused(tmp_path):
    whole = (WEIGHTS / "dyck-0.safetensors").read_bytes()
    flipped = bytearray(whole)
    flipped[-1000] ^= 1
    damaged = tmp_path / "mine.safetensors"
    for content in (bytes(flipped), whole[:-10], b"", b"PK\x03\x04" + whole):
        damaged.write_bytes(content)
        with pytest.raises(ValueError, match=r"file mine\.safetensors is damaged"):
            aw.zoo.trained("dyck", file=damaged)
    damaged.write_bytes(whole)
    assert aw.zoo.trained("dyck", file=damaged)[0].truth.seed == 0


def test_a_file_of_something_else_is_refused(tmp_path):
    from safetensors.torch import save_file

    foreign = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.zeros(2)}, foreign, {"format": "pt"})
    with pytest.raises(ValueError, match=r"does not hold a model of aw\.zoo\.trained"):
        aw.zoo.trained("dyck", file=foreign)
    with pytest.raises(ValueError, match="holds the model 'dyck', not 'alice'"):
        aw.zoo.trained("alice", file=WEIGHTS / "dyck-0.safetensors")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        aw.zoo.trained("dyck", file=tmp_path / "nowhere")


def test_an_unknown_name_or_seed_is_refused_with_what_there_is():
    with pytest.raises(ValueError, match="Did you mean 'induction'"):
        aw.zoo.trained("inductoin")
    with pytest.raises(ValueError, match="seed of 'dyck' must be one of 0, 1, 2, not 7"):
        aw.zoo.trained("dyck", seed=7)


def test_loading_leaves_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    aw.zoo.trained("dyck")
    assert torch.equal(torch.rand(2), expected)


def test_text_that_a_model_cannot_read_is_refused_by_name():
    _, tokenizer = aw.zoo.trained("alice")
    with pytest.raises(ValueError, match="holds '7'"):
        tokenizer("at 7 o'clock")
    with pytest.raises(ValueError, match="at most 143"):
        tokenizer("a" * 144)
    read = tokenizer("“Éh—Alice’s”")["input_ids"]
    assert tokenizer.decode(read, skip_special_tokens=True) == '"eh-alice\'s"'
