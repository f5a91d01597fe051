"""The callback of the Trainer of transformers: its files, also where it is killed or resumed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

import attnwidgets as aw

from . import made


class Letters(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, at: int) -> dict[str, Any]:
        ids = torch.randint(0, 30, (12,), generator=torch.Generator().manual_seed(at))
        return {"input_ids": ids, "labels": ids}


def train(out: Any, *callbacks: Any, steps: int = 6, resume: Any = None) -> Any:
    pytest.importorskip("accelerate")
    options = transformers.TrainingArguments(
        out, max_steps=steps, per_device_train_batch_size=4, save_steps=4, report_to=[], disable_tqdm=True,
        logging_strategy="no", use_cpu=True, dataloader_num_workers=0, seed=1,
    )  # fmt: skip
    trainer = transformers.Trainer(made.model(), options, train_dataset=Letters(), callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume)
    return trainer.model


@pytest.mark.slow
def test_a_trainer_writes_a_run_and_trains_as_without_it(tmp_path: Any) -> None:
    plain = train(tmp_path / "plain")
    callback = aw.zoo.train.CheckpointCallback(tmp_path / "run", every=4, steps=[1])
    trained = train(tmp_path / "out", callback)
    pairs = zip(plain.state_dict().values(), trained.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    run = aw.checkpoints(tmp_path / "run", made.tokenizer())
    assert run.steps == (0, 1, 4, 6)
    assert run.ended == ""
    first, last = (run.model(step).state_dict() for step in (0, 6)), trained.state_dict()
    assert torch.equal(next(first)["lm_head.weight"], made.model().lm_head.weight)
    assert all(torch.equal(run.model(6).state_dict()[name], last[name]) for name in last)
    assert not list((tmp_path / "run").glob(".*"))
    # Training goes on from the Trainer's checkpoint of step 4, to step 8.
    train(tmp_path / "out", callback, steps=8, resume=str(tmp_path / "out" / "checkpoint-4"))
    assert aw.checkpoints(tmp_path / "run", made.tokenizer()).steps == (0, 1, 4, 6, 8)
    with pytest.raises(ValueError, match="holds checkpoints up to step 8, and training begins at step 0"):
        train(tmp_path / "again", callback)
    with pytest.raises(ValueError, match="is the Trainer's output_dir"):
        train(tmp_path / "run", callback)


def state(step: int, of: int = 10) -> Any:
    return SimpleNamespace(global_step=step, max_steps=of, is_world_process_zero=True)


def test_a_training_that_is_killed_leaves_whole_checkpoints_and_says_where_it_ended(tmp_path: Any) -> None:
    callback = aw.zoo.train.CheckpointCallback(tmp_path / "run", every=2)
    options = SimpleNamespace(output_dir=str(tmp_path / "out"))
    model = made.model()
    callback.on_train_begin(options, state(0), None, model=model)
    for step in (1, 2, 3):
        callback.on_step_end(options, state(step), None, model=model)

    class KilledError(Exception):
        pass

    def save_half(path: Any, **_: Any) -> None:
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"half")
        raise KilledError

    with pytest.raises(KilledError):
        callback.on_step_end(options, state(4), None, model=SimpleNamespace(save_pretrained=save_half))
    run = aw.checkpoints(tmp_path / "run", made.tokenizer())
    assert run.steps == (0, 2)
    assert run.ended == "training ended at step 2 of 10"
    assert run.ended in repr(run)
    assert json.loads((tmp_path / "run" / "training.json").read_text()) == {"step": 2, "of": 10}
    # Other processes of a distributed training write nothing.
    other = SimpleNamespace(global_step=4, max_steps=10, is_world_process_zero=False)
    callback.on_step_end(options, other, None, model=model)
    assert aw.checkpoints(tmp_path / "run", made.tokenizer()).steps == (0, 2)
    callback.on_step_end(options, state(4), None, model=model)  # over the half of it
    assert aw.checkpoints(tmp_path / "run", made.tokenizer()).steps == (0, 2, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "every or steps is required"),
        ({"every": 0}, "every must be whole numbers from 1, not 0"),
        ({"steps": [2, -1]}, "steps must be whole numbers from 0, not -1"),
    ],
)
def test_what_to_write_is_checked(options: Any, message: str, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=message):
        aw.zoo.train.CheckpointCallback(tmp_path, **options)
