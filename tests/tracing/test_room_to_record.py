"""A trace estimates its memory before it starts, and refuses a text that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnwidgets.tracing import free_memory as room
from attnwidgets.tracing.free_memory import free_bytes, spoken_bytes
from attnwidgets.tracing.pass_memory import recording_bytes
from attnwidgets.tracing.recording import attention_function, proof, returned
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.test_rows import long_ids, long_model


def test_a_text_without_room_is_refused_before_the_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = long_model(), long_ids()
    need = recording_bytes(model, {"input_ids": torch.tensor([ids])})
    ran = []
    model.register_forward_pre_hook(lambda *_: ran.append(1))
    monkeypatch.setattr(room, "free_bytes", lambda _: need - 1)
    words = (
        r"a trace of 300 tokens by LlamaForCausalLM takes about [\d.]+ [kM]B, and [\d.]+ [kM]B are free\. "
        r"Take a shorter text .* or pass force=True to run it anyway\."
    )
    with pytest.raises(ValueError, match=words):
        trace(model, None, ids)
    assert not ran
    assert trace(model, None, ids, force=True).tokens
    monkeypatch.setattr(room, "free_bytes", lambda _: need)
    result = trace(model, None, ids)
    monkeypatch.setattr(room, "free_bytes", lambda _: need - 1)
    with pytest.raises(ValueError, match="a trace of 300 tokens"):
        result.rerun()


def test_sound_and_pictures_without_room_are_refused_in_their_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny.wav2vec2()
    # 2,000 samples, a state of 16 numbers for every fifth, before and after its norm.
    assert recording_bytes(model, {"input_values": torch.zeros(1, 2000)}) == 2 * 400 * 16 * 4
    monkeypatch.setattr(room, "free_bytes", lambda _: 1000)
    with pytest.raises(ValueError, match=r"a trace by Wav2Vec2Model takes about .* Take a shorter sound, or"):
        trace(model, None, audio=torch.zeros(2000))
    monkeypatch.undo()
    vit = tiny.build(tiny.IMAGE["ViT"])

    def fail(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes")

    vit.register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match=r"takes more memory than is free\. Take a smaller picture, or"):
        trace(vit, None, image=torch.zeros(3, 24, 24))


def test_what_the_allocator_refuses_is_said_in_words() -> None:
    model = long_model()

    def fail(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes")

    handle = model.register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match=r"takes more memory than is free\. Take a shorter text"):
        trace(model, None, long_ids())
    handle.remove()
    assert trace(model, None, long_ids()).tokens


@pytest.mark.parametrize("family", ["DeBERTa"])
def test_attention_that_is_returned_by_the_model_is_refused_for_its_own_size(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = tiny.build(tiny.OUTSIDE[family]), long_ids()
    need = recording_bytes(model, {"input_ids": torch.tensor([ids])})
    monkeypatch.setattr(room, "free_bytes", lambda _: need)
    with pytest.raises(ValueError, match="for all layers at once: that takes about"):
        trace(model, None, ids)
    assert trace(model, None, ids, force=True).tokens


def test_an_eager_model_is_proven_without_all_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build(long_model, implementation="eager")
    monkeypatch.setattr(proof, "_proved", set())
    monkeypatch.setattr(proof, "LONG_BYTES", 0)
    monkeypatch.setattr(attention_function, "LONG_BYTES", 0)
    judges: list[str | None] = []
    plain = proof.implementation
    monkeypatch.setattr(proof, "implementation", lambda m, name: (judges.append(name), plain(m, name))[1])
    result = trace(model, None, long_ids())
    assert judges == ["sdpa"]
    assert model.config._attn_implementation == "eager"
    assert not result.warning


def test_a_gap_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returned, "_COMPARED", 4)
    numbers, nan = torch.arange(10.0), float("nan")
    assert returned.apart(numbers, numbers) == 0
    other = numbers.clone()
    other[1] = 1.5
    assert returned.apart(other, numbers) == pytest.approx(0.5 / 9)
    other[1] = nan
    assert not returned.apart(other, numbers) <= 1
    assert returned.apart(other, other) == 0


def test_a_limit_of_the_process_counts_as_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource", reason="this system knows no limits")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 2**28
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    assert 2**27 < (free_bytes(torch.device("cpu")) or 0) <= 2**28


def test_sizes_are_spoken_in_the_unit_that_fits() -> None:
    result = [spoken_bytes(count) for count in (12, 2_600, 130_000, 99_960_000, 1.25e8, 3.3e12)]
    assert result == ["0.0 kB", "2.6 kB", "0.1 MB", "100.0 MB", "0.1 GB", "3,300.0 GB"]
