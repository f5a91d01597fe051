"""Which tokens a steering changes, in a single pass and in generate()."""

from __future__ import annotations

import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

from .steered import IDS, big_llama, sae_of


@pytest.fixture(scope="module")
def llama():
    return big_llama()


def changed(model, ids=IDS, run=None, **options) -> list[list[int]]:
    """The positions of the tokens whose states are changed, pass by pass, of the first row."""
    passes: list[list[int]] = []
    seen = {"states": []}

    def before(_, __, output):
        seen["plain"] = output

    def after(_, __, output):
        moved = (output[0] - seen["plain"][0]).norm(dim=-1) > 0
        passes.append(torch.nonzero(moved).flatten().tolist())

    module = model.get_submodule("model.layers.0")
    with aw.steer(model, sae_of(), 4, 3.0, **options):
        handles = [
            module.register_forward_hook(before, prepend=True),
            module.register_forward_hook(after),
        ]
        try:
            with torch.no_grad():
                (run or (lambda: model(input_ids=ids)))()
        finally:
            for handle in handles:
                handle.remove()
    return passes


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5]),
        (2, [2]),
        ([0, -1], [0, 5]),
        (slice(1, None), [1, 2, 3, 4, 5]),
        (slice(-3, -1), [3, 4]),
        (slice(0, 6, 2), [0, 2, 4]),
        ("prompt", [0, 1, 2, 3, 4, 5]),
        ("generated", []),
        ("last", [5]),
    ],
)
def test_only_the_tokens_at_the_positions_change(llama, positions, expected):
    assert changed(llama, positions=positions) == [expected]


def generating(model, ids, **options):
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0} | options
    return lambda: model.generate(input_ids=ids, **options)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        (None, [[0, 1, 2, 3, 4, 5], [0], [0]]),
        ("prompt", [[0, 1, 2, 3, 4, 5], [], []]),
        ("generated", [[], [0], [0]]),
        ("last", [[5], [0], [0]]),
        ([1, 7], [[1], [], [0]]),
        (slice(-1, 7), [[5], [0], []]),
    ],
)
def test_positions_go_on_counting_in_generation_with_a_cache(llama, positions, expected):
    assert changed(llama, run=generating(llama, IDS[:1]), positions=positions) == expected


@pytest.mark.parametrize(
    "positions", [None, "prompt", "generated", "last", -1, [0, 7], slice(-2, None), slice(None, -1)]
)
@pytest.mark.parametrize("beams", [1, 2])
def test_generation_with_and_without_a_cache_is_the_same(llama, positions, beams):
    sae = sae_of()
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "num_beams": beams}
    result = []
    for use_cache in (True, False):
        with aw.steer(llama, sae, 4, 6.0, positions=positions):
            result.append(generating(llama, IDS[:1], use_cache=use_cache, **options)())
            again = generating(llama, IDS[:1, :3], use_cache=use_cache, **options)()
        result.append(again)  # another prompt, in the same block
    assert torch.equal(result[0], result[2])
    assert torch.equal(result[1], result[3])
    assert not torch.equal(result[0], generating(llama, IDS[:1], **options)())


def test_a_model_generates_by_its_own_method_again(llama):
    before = dict(vars(llama))
    with aw.steer(llama, sae_of(), 4, 3.0), aw.steer(llama, sae_of(), 9, 3.0):
        pass
    assert vars(llama) == before
    with pytest.raises(RuntimeError), aw.steer(llama, sae_of(), 4, 3.0):
        raise RuntimeError
    assert vars(llama) == before


@pytest.mark.parametrize("positions", [None, [1, 4], "last", "generated", slice(-2, None)])
def test_padding_on_the_left_changes_nothing(llama, positions):
    sae = sae_of()
    padded = torch.cat([torch.zeros(1, 2, dtype=torch.long), IDS[:1, :4]], dim=1)
    batch = torch.cat([IDS[1:], padded])
    mask = torch.ones_like(batch)
    mask[1, :2] = 0
    options = {"max_new_tokens": 4, "min_new_tokens": 4}
    with aw.steer(llama, sae, [4, 9], 3.0, positions=positions):
        alone = generating(llama, IDS[:1, :4], **options)()
    with aw.steer(llama, sae, [4, 9], 3.0, positions=positions):
        together = generating(llama, batch, attention_mask=mask, **options)()
    assert together[1, 2:].tolist() == alone[0].tolist()


def test_special_tokens_are_left_alone_where_asked_to():
    model, tokenizer = tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()
    sae = sae_of()
    encoded = tokenizer(["the cat", "the cat sat."], padding=True, return_tensors="pt")

    def hidden():
        with torch.no_grad():
            return model(**encoded, output_hidden_states=True).hidden_states[1]

    plain = hidden()
    special = torch.isin(encoded["input_ids"], torch.tensor([0, 2, 3]))
    for skip in (tokenizer, [0, 2, 3]):
        with aw.steer(model, sae, 4, 3.0, skip_special=skip):
            moved = (hidden() - plain).norm(dim=-1) > 0
        assert torch.equal(moved, ~special)
    with aw.steer(model, sae, 4, 3.0, skip_special=tokenizer, positions=[0, 1]):
        moved = (hidden() - plain).norm(dim=-1) > 0
    assert moved.nonzero().tolist() == [[0, 1], [1, 1]]
    embedded = model.get_input_embeddings()(encoded["input_ids"])
    with (
        aw.steer(model, sae, 4, 3.0, skip_special=tokenizer),
        pytest.raises(ValueError, match="needs token ids"),
    ):
        model(inputs_embeds=embedded)


def test_of_two_stacks_the_one_with_the_site_is_steered():
    model, sae = tiny.build(tiny.SEQ2SEQ["T5"]), sae_of()
    starts = {"decoder_input_ids": IDS[:, :3]}

    def run():
        with torch.no_grad():
            return model(input_ids=IDS, **starts, output_hidden_states=True)

    plain = run()
    with aw.steer(model, sae, 4, 3.0, site="decoder.0.hook_resid_post", positions=[1], skip_special=[9]):
        steered = run()
    moved = (steered.decoder_hidden_states[1] - plain.decoder_hidden_states[1]).norm(dim=-1) > 0
    assert not moved.any()  # position 1 holds token 9 in both texts
    with aw.steer(model, sae, 4, 3.0, site="decoder.0.hook_resid_post", positions=[2], skip_special=[9]):
        steered = run()
    moved = (steered.decoder_hidden_states[1] - plain.decoder_hidden_states[1]).norm(dim=-1) > 0
    assert moved.nonzero().tolist() == [[0, 2], [1, 2]]
    assert torch.equal(steered.encoder_hidden_states[-1], plain.encoder_hidden_states[-1])
