from __future__ import annotations

import copy
import errno
import resource
import types
import warnings

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets._progress import Cancelled, observing
from attnwidgets.sae.training import training_run
from attnwidgets.sae.training.history import History
from attnwidgets.sae.training.training_run import TrainingDivergedError
from tests.tracing import tiny

SITE = "blocks.0.hook_resid_post"
WORDS = ["the", "un", "cat", "sat", ".", "!", ",", "a", "b", "c", "new", "york", "don", "t"]


def corpus(texts: int = 60, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(5, 40))) for _ in range(texts)]


def train(bert, **options) -> aw.SAE:
    options = {"site": SITE, "d_sae": 64, "steps": 60, "batch_size": 64, "lr": 1e-2} | options
    return aw.SAE.train(*bert, options.pop("texts", corpus()), **options)


def hidden(bert, texts, layer: int = 1) -> torch.Tensor:
    model, tokenizer = bert
    result = []
    for text in texts:
        with torch.no_grad():
            out = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        result.append(out.hidden_states[layer][0, 1:-1])
    return torch.cat(result)


def explained(h: torch.Tensor, reconstruction: torch.Tensor) -> float:
    return 1 - float((h - reconstruction).square().sum() / (h - h.mean(0)).square().sum())


def by_pca(h: torch.Tensor, others: torch.Tensor, rank: int) -> torch.Tensor:
    """Reconstructions by the plane of this rank that is best for other states."""
    mean = others.mean(0)
    components = torch.linalg.svd(others - mean, full_matrices=False).Vh[:rank]
    return (h - mean) @ components.T @ components + mean


def by_random_directions(h: torch.Tensor, k: int, d_sae: int) -> torch.Tensor:
    """Reconstructions by the k of many random directions that are most like a state, best weighted."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(d_sae, h.shape[-1], generator=generator), dim=-1)
    mean, rows = h.mean(0), []
    for state in h - mean:
        basis = directions[(directions @ state).abs().topk(k).indices].T
        rows.append(basis @ torch.linalg.lstsq(basis, state).solution + mean)
    return torch.stack(rows)


def require_better(sae: aw.SAE, h: torch.Tensor, others: torch.Tensor) -> None:
    a = sae.encode(h)
    l0 = round(float((a > 0).sum(-1).float().mean()))
    result = explained(h, sae.decode(a))
    assert 1 < l0 < h.shape[-1] / 4
    assert result > explained(h, by_pca(h, others, l0)) + 0.1
    assert result > explained(h, by_random_directions(h, l0, sae.d_sae)) + 0.1


@pytest.mark.slow
def test_a_topk_sae_beats_pca_and_random_directions_of_its_l0():
    model = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3))
    generator = np.random.default_rng(0)
    texts = [generator.integers(5, 115, generator.integers(10, 40)).tolist() for _ in range(220)]
    sae = train((model, None), texts=texts[:200], d_sae=128, k=3, steps=300, batch_size=128)
    with torch.no_grad():
        result = [model(torch.tensor([ids]), output_hidden_states=True) for ids in texts[160:]]
    states = [out.hidden_states[1][0] for out in result]
    require_better(sae, torch.cat(states[40:])[:200], torch.cat(states[:40]))


@pytest.mark.slow
def test_the_lectures_sae_of_a_real_model_beats_pca_and_random_directions_of_its_l0(minilm, shared):
    lines = (shared / "data" / "wikitext2" / "valid.txt").read_text(encoding="utf-8").split("\n")
    texts = [line for line in lines if len(line) > 100]
    options = {"site": "encoder.layer.2", "d_sae": 768, "l1": 2.0, "lr": 4e-3}
    sae = aw.SAE.train(*minilm, texts[:900], steps=150, batch_size=256, max_tokens=8000, **options)
    cut = [text[:400] for text in texts]
    require_better(sae, hidden(minilm, cut[-12:], layer=3), hidden(minilm, cut[:80], layer=3))


@pytest.mark.parametrize("options", [{"l1": 2.0}, {"k": 5}])
def test_what_was_measured_is_in_its_history(bert, options):
    sae = train(bert, **options)
    rows = sae.history.rows
    assert [row["step"] for row in rows] == [*range(3, 61, 3), 60]
    assert rows[-2]["loss"] < rows[0]["loss"]
    assert rows[-1]["explained_variance"] > rows[0]["explained_variance"]
    # Of the same SAE and the same states, before and after its scale was folded in.
    assert rows[-1]["l0"] == pytest.approx(rows[-2]["l0"], rel=1e-3)
    assert rows[-1]["explained_variance"] == pytest.approx(rows[-2]["explained_variance"], abs=1e-3)
    assert set(rows[-1]) == {"step", "l0", "explained_variance", "dead"}
    assert sae.architecture == ("topk" if "k" in options else "standard")
    if "k" in options:
        assert rows[-1]["l0"] <= 5
        torch.testing.assert_close(
            sae.W_dec.norm(dim=-1), torch.full((64,), 1 / sae.history.options["scale"]), rtol=1e-4, atol=0
        )
    assert len(sae.history.to_dataframe()) == len(rows)
    assert "explained variance" in repr(sae.history)


def test_more_penalty_gives_sparser_features(bert):
    l0 = [train(bert, l1=l1, steps=150).history.last["l0"] for l1 in (0.3, 3.0)]
    assert l0[1] < 0.7 * l0[0]


def test_the_scale_is_folded_in_and_only_tokens_that_count_are_trained_on(bert):
    sae = train(bert, steps=1)
    train_texts = [text for number, text in enumerate(corpus()) if number % 10 != 9]
    h = hidden(bert, train_texts)
    assert sae.history.options["tokens"] == len(h)
    assert sae.history.options["scale"] == pytest.approx(32**0.5 / float(h.norm(dim=-1).mean()), rel=1e-4)
    torch.testing.assert_close(sae.b_dec, h.mean(0), atol=0.05, rtol=0)  # a step away from it
    held_out = hidden(bert, corpus()[9::10])
    assert sae.history.options["held_out"] == len(held_out)
    torch.testing.assert_close(sae.maxima, sae.encode(held_out).amax(0), atol=1e-4, rtol=1e-4)


def test_it_says_what_it_is_of_and_is_saved(bert, tmp_path):
    sae = train(bert, site="bert.encoder.layer.0", steps=200)
    assert (sae.site, sae.metadata["hf_hook_name"]) == (SITE, "bert.encoder.layer.0.output")
    again = aw.SAE.from_pretrained(sae.save_pretrained(tmp_path / "sae"))
    assert torch.equal(again.W_dec, sae.W_dec)
    assert torch.equal(again.maxima, sae.maxima)
    assert again.history.rows == sae.history.rows
    assert again.check(*bert, corpus(10, seed=2)).site == SITE


def test_the_same_call_gives_the_same_bits_and_another_seed_others(bert):
    first, again, other = train(bert), train(bert), train(bert, seed=1)
    assert torch.equal(first.W_enc, again.W_enc)
    assert first.history.rows == again.history.rows
    assert not torch.equal(first.W_enc, other.W_enc)


class StopError(Exception):
    pass


@pytest.mark.parametrize("options", [{"l1": 2.0}, {"k": 5}])
@pytest.mark.parametrize("after", [1, 31, 58])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(bert, tmp_path, monkeypatch, after, options):
    whole = train(bert, **options)
    advance = training_run.Run._advance

    def killed(run):
        if run.step == after:
            raise StopError
        return advance(run)

    monkeypatch.setattr(training_run.Run, "_advance", killed)
    with pytest.raises(StopError):
        train(bert, checkpoint=tmp_path / "run", **options)
    steps = []

    def counted(run):
        steps.append(run.step)
        return advance(run)

    monkeypatch.setattr(training_run.Run, "_advance", counted)
    monkeypatch.setattr("attnwidgets.sae.training.harvest._write_states", None)  # states are there already
    resumed = train(bert, checkpoint=tmp_path / "run", **options)
    assert steps[0] == after - after % 3
    assert torch.equal(resumed.W_enc, whole.W_enc)
    assert torch.equal(resumed.W_dec, whole.W_dec)
    assert resumed.history.rows == whole.history.rows
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 30])
def test_a_checkpoint_of_something_else_is_refused_by_name(bert, tmp_path, monkeypatch, step):
    """Also where the states are harvested, and no step of training is stored."""
    advance = training_run.Run._advance

    def killed(run):
        if run.step == step:
            raise StopError
        return advance(run)

    folder = tmp_path / "run"
    texts = corpus()
    with monkeypatch.context() as patched:
        patched.setattr(training_run.Run, "_advance", killed)
        with pytest.raises(StopError):
            train(bert, checkpoint=folder, max_tokens=900)

    def refused(match, model=bert, **options):
        with pytest.raises(ValueError, match=match):
            train(model, checkpoint=folder, **{"max_tokens": 900} | options)

    other = copy.deepcopy(bert[0])
    with torch.no_grad():
        other.bert.encoder.layer[0].output.dense.weight[0, 0] += 1
    words = tiny.wordpiece()
    words.add_tokens(["newer"])
    refused("is of another model's weights .* remove it, or name another folder", (other, bert[1]))
    refused("is of another tokenizer;", (bert[0], words))
    refused("is of another site;", site="blocks.1.hook_resid_post")
    refused(r"is of other options \(max_tokens\);", max_tokens=901)
    refused("is of other texts;", texts=["the cat", *texts[1:]])
    refused("is of other texts;", texts=(text for text in ["the cat", *texts[1:]]))
    refused("is of other texts;", texts=texts[:30])
    if step:
        refused(r"is of other options \(lr, seed\);", lr=1e-3, seed=3)
    again = train(bert, checkpoint=folder, max_tokens=900, texts=iter([*texts, "behind what was read"]))
    assert torch.equal(again.W_enc, train(bert, max_tokens=900).W_enc)


def test_texts_behind_those_that_were_harvested_are_other_texts(bert, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(training_run.Run, "_advance", lambda _: (_ for _ in ()).throw(StopError))
        with pytest.raises(StopError):
            train(bert, checkpoint=tmp_path / "run", texts=iter(corpus()))
    with pytest.raises(ValueError, match="is of other texts;"):
        train(bert, checkpoint=tmp_path / "run", texts=iter([*corpus(), "and one more"]))
    train(bert, checkpoint=tmp_path / "run", texts=iter(corpus()))


@pytest.mark.parametrize("error", [KeyboardInterrupt, Cancelled])
def test_an_interrupt_gives_the_sae_that_was_reached(bert, tmp_path, monkeypatch, error):
    advance = training_run.Run._advance

    def interrupted(run):
        if run.step == 40:
            raise error
        return advance(run)

    monkeypatch.setattr(training_run.Run, "_advance", interrupted)
    with pytest.warns(UserWarning, match="stopped at step 40 of 60; the SAE is the one trained so far"):
        sae = train(bert, checkpoint=tmp_path / "run")
    assert sae.history.note == "stopped at step 40 of 60"
    assert sae.history.last["explained_variance"] > 0.3
    assert sae(hidden(bert, ["the cat"])).shape == (2, 32)
    monkeypatch.setattr(training_run.Run, "_advance", advance)
    finished = train(bert, checkpoint=tmp_path / "run")
    assert finished.history.note == ""
    assert finished.history.last["step"] == 60


def test_a_reader_who_cancels_gets_what_was_reached(bert):
    def observer(done, total, phase):
        if phase == "training the SAE" and done == 20:
            raise Cancelled

    with observing(observer), pytest.warns(UserWarning, match="stopped at step 20"):
        sae = train(bert)
    assert sae.history.last["step"] == 20


def test_a_loss_that_is_not_a_number_stops_and_keeps_what_was_good(bert, tmp_path, monkeypatch):
    advance = training_run.Run._advance

    def broken(run):
        if run.step == 47:
            run.weights.decoder[3, 3] = float("nan")
        return advance(run)

    monkeypatch.setattr(training_run.Run, "_advance", broken)
    with pytest.raises(
        TrainingDivergedError, match=r"became NaN at step 48 of 60; error\.sae is the SAE of step 45"
    ) as e:
        train(bert, checkpoint=tmp_path / "run")
    sae = e.value.sae
    assert (e.value.step, sae.site) == (48, SITE)
    h = hidden(bert, corpus(5, seed=3))
    assert explained(h, sae(h)) > 0.3
    monkeypatch.setattr(training_run.Run, "_advance", advance)
    assert train(bert, checkpoint=tmp_path / "run").history.last["step"] == 60  # from step 45 on


def test_weights_that_overflow_are_not_written_over_the_last_good_checkpoint(bert, tmp_path, monkeypatch):
    advance = training_run.Run._advance

    def overflowing(run):
        loss = advance(run)
        if run.step == 45:  # after a loss that was finite still
            run.weights.encoder[0, 0] = float("inf")
        return loss

    monkeypatch.setattr(training_run.Run, "_advance", overflowing)
    with pytest.raises(
        TrainingDivergedError, match=r"a weight became NaN at step 45 of 60; error\.sae is the SAE of step 42"
    ):
        train(bert, checkpoint=tmp_path / "run")
    monkeypatch.setattr(training_run.Run, "_advance", advance)
    steps = []

    def counted(run):
        steps.append(run.step)
        return advance(run)

    monkeypatch.setattr(training_run.Run, "_advance", counted)
    assert train(bert, checkpoint=tmp_path / "run").history.last["step"] == 60
    assert steps[0] == 42


def test_an_interrupt_after_an_overflow_gives_the_last_good_sae(bert, monkeypatch):
    advance = training_run.Run._advance

    def overflowing(run):
        if run.step == 44:
            run.weights.encoder[0, 0] = float("inf")
            raise KeyboardInterrupt
        return advance(run)

    monkeypatch.setattr(training_run.Run, "_advance", overflowing)
    with pytest.warns(UserWarning, match="stopped at step 44 of 60"):
        sae = train(bert)
    assert bool(torch.isfinite(sae.W_enc).all())
    assert sae.history.last["explained_variance"] > 0.3


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(bert, tmp_path, monkeypatch):
    write, written = training_run.write_bytes, []

    def full(path, data):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write(path, data)

    monkeypatch.setattr(training_run, "write_bytes", full)
    with pytest.warns(UserWarning, match="checkpoint of step .* could not be written") as caught:
        sae = train(bert, checkpoint=tmp_path / "run")
    assert len(caught) == 18
    assert torch.equal(sae.W_enc, train(bert).W_enc)


def test_states_that_are_not_numbers_are_refused_before_training(tmp_path):
    model = tiny.build(tiny.TEXT["BERT"])
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight[0] = float("nan")
    with pytest.raises(ValueError, match="are NaN or infinite"):
        train((model, tiny.wordpiece()), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resumable", [True, False])
def test_a_full_disk_is_said_and_nothing_is_left_behind(bert, tmp_path, resumable):
    (tmp_path / "run").mkdir()
    where = {"checkpoint": tmp_path / "run"} if resumable else {"folder": tmp_path / "run"}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(
            OSError, match=r"is full: .* MB of states were written and have been removed"
        ) as caught:
            train(bert, **where)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert list((tmp_path / "run").iterdir()) == []


def test_nothing_is_left_behind_when_all_goes_well_or_reading_is_interrupted(bert, tmp_path, monkeypatch):
    train(bert, folder=tmp_path, steps=2)
    assert list(tmp_path.iterdir()) == []

    def texts():
        yield from corpus(30)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(bert, folder=tmp_path, texts=texts())
    assert list(tmp_path.iterdir()) == []


def test_the_model_comes_back_as_it_was(bert):
    model, _ = bert
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    model.train()
    train(bert, steps=3)
    assert model.training
    model.eval()
    assert hooks == [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_has_saes_in_single(bert, dtype):
    model, tokenizer = copy.deepcopy(bert[0]).to(dtype), bert[1]
    sae = train((model, tokenizer), steps=100)
    assert sae.dtype == torch.float32
    whole, half = (sae.check(item, tokenizer, corpus(10, seed=2)) for item in (bert[0], model))
    assert half.explained_variance == pytest.approx(whole.explained_variance, abs=0.02)
    trace = aw.trace(model, tokenizer, "the new cat sat.")
    result = aw.sae_features(trace, sae)
    stats = aw.feature_stats(model, tokenizer, sae, corpus(10, seed=2))
    plain = aw.feature_stats(*bert, sae, corpus(10, seed=2))
    np.testing.assert_allclose(stats.density, plain.density, atol=0.05)
    with torch.no_grad(), aw.steer(model, sae, result.ranked(1)[0].feature, 1.0, maximum=stats) as steering:
        assert model(**trace.inputs).logits.dtype == dtype
    assert 0 < steering.relative_change < 5
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_max_tokens_and_stacks_are_taken(bert):
    assert train(bert, max_tokens=300, steps=3).history.options["tokens"] == 300
    streamed = train(bert, texts=(text for text in corpus()), steps=3)
    assert streamed.history.options["tokens"] == train(bert, steps=3).history.options["tokens"]
    long = train(bert, texts=[" ".join(corpus())], steps=3, context=20)
    held_out, tokens = long.history.options["held_out"], long.history.options["tokens"]
    assert 0.05 < held_out / (tokens + held_out) < 0.15


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"texts": corpus(2)}, ValueError, "tokens to train on, fewer than batch_size=64: pass more texts"),
        ({"texts": []}, ValueError, "no token that counts"),
        ({"texts": (text * 9 for text in corpus(3))}, ValueError, "no text is held out.*Pass more texts"),
        ({"texts": "the cat"}, ValueError, "a collection of texts"),
        ({"l1": 1.0, "k": 3}, ValueError, "not both"),
        ({"k": 65}, ValueError, "k must be from 1 to d_sae=64"),
        ({"l1": -1.0}, ValueError, "l1 must not be negative"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"lr": 0.0}, ValueError, "lr must be positive"),
        ({"site": "blocks.3.hook_resid_post"}, ValueError, "block 3 does not exist"),
        ({"dsae": 3}, TypeError, "takes no keyword 'dsae'.*Did you mean 'd_sae'"),
    ],
)
def test_what_cannot_be_trained_is_refused(bert, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        train(bert, folder=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_train_of_an_sae_itself_sets_its_mode():
    from . import made

    sae = made.sae()
    outer = torch.nn.Sequential(sae)
    assert outer.train().training
    assert sae.training
    assert sae.eval() is sae
    assert not sae.training
    assert sae.train() is sae
    assert sae.training


def test_a_notebook_shows_one_line_that_changes(bert, monkeypatch):
    shown: list[str] = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    def display(data, raw, display_id):
        assert not shown
        shown.append(data["text/plain"])
        return Handle()

    monkeypatch.setattr(
        "attnwidgets.sae.training.history.running_shell", lambda: types.SimpleNamespace(kernel=object())
    )
    monkeypatch.setattr("IPython.display.display", display)
    train(bert)
    assert len(shown) == 20
    assert shown[0].startswith("step 3 of 60: loss ")
    assert all(part in shown[-1] for part in ("step 60 of 60", "L0", "explained variance", "dead features"))


def test_histories_travel_as_json():
    history = History(
        {"steps": 3}, [{"step": 1, "loss": 2.0, "l0": 1.0, "explained_variance": 0.5, "dead": 0.0}]
    )
    again = History.from_dict(history.to_dict())
    assert again == history
    assert str(again) == "loss 2, L0 1.0, explained variance 0.500, dead features 0.00%"
    assert str(History(note="stopped")) == "no measurements; stopped"


def test_nothing_is_warned_of(bert):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train(bert, steps=5).history.note == ""
