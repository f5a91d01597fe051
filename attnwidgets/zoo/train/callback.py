"""A callback for the Trainer of transformers that writes checkpoints for `aw.checkpoints`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from collections.abc import Collection

_ENDED = "training.json"
"""The file that says how far training went; `attnwidgets.training.reading` reads it."""


class CheckpointCallback(TrainerCallback):
    """Write the weights at some steps of a transformers Trainer, for `aw.checkpoints(folder)`.

    It changes nothing in the training, and holds no model. A checkpoint is a folder `checkpoint-500` with the
    weights in the safetensors format, the config and the tokenizer. It is written under another name and
    renamed, so that a training that is killed leaves whole checkpoints only. A training that the Trainer
    resumes goes on in the same folder. The weights of step 0 and of the last step are written as well.

    Args:
        folder: The folder of the checkpoints; not the Trainer's `output_dir`, which has checkpoints of the
            same names.
        every: Write at every multiple of this number of steps.
        steps: Write at these steps.

    Raises:
        ValueError: If neither `every` nor `steps` is given, or a number is out of range; as training begins,
            if the folder is the Trainer's, or holds checkpoints of a training that is not resumed.

    Example:
        >>> import tempfile
        >>> callback = aw.zoo.train.CheckpointCallback(tempfile.mkdtemp(), every=100, steps=[1, 2, 5, 10])
        >>> callback.writes_at(200), callback.writes_at(5), callback.writes_at(7)
        (True, True, False)
    """

    def __init__(self, folder: str | Path, *, every: int | None = None, steps: Collection[int] = ()) -> None:
        if every is None and not steps:
            raise ValueError("every or steps is required: at which steps should weights be written?")
        for name, least, numbers in (("every", 1, [] if every is None else [every]), ("steps", 0, steps)):
            for number in numbers:
                if isinstance(number, bool) or not isinstance(number, int) or number < least:
                    raise ValueError(f"{name} must be whole numbers from {least}, not {number!r}.")
        self._folder = Path(folder)
        self._every = every
        self._steps = frozenset(steps)

    def writes_at(self, step: int) -> bool:
        """Return whether the weights of a step are written; those of the first and the last always are.

        Args:
            step: The number of steps so far.
        """
        return step in self._steps or (self._every is not None and step % self._every == 0)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the weights with which training begins."""
        del control
        if self._folder.resolve() == Path(args.output_dir).resolve():
            raise ValueError(f"folder {self._folder} is the Trainer's output_dir; give another folder.")
        there = sorted(int(path.name.partition("-")[2]) for path in self._folder.glob("checkpoint-*"))
        if there and state.global_step == 0:
            raise ValueError(
                f"folder {self._folder} holds checkpoints up to step {there[-1]:,}, and training begins at "
                "step 0: give another folder, or resume that training (resume_from_checkpoint=)."
            )
        if not there:
            self._write(state, kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the weights of a step that was chosen."""
        del args, control
        if self.writes_at(state.global_step):
            self._write(state, kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the last weights."""
        del args, control
        if not (self._folder / f"checkpoint-{state.global_step}").exists():
            self._write(state, kwargs)

    def _write(self, state: Any, given: dict[str, Any]) -> None:
        if not state.is_world_process_zero:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._folder / f"checkpoint-{state.global_step}"
        part = self._folder / f".{target.name}.partial"
        shutil.rmtree(part, ignore_errors=True)
        given["model"].save_pretrained(part, safe_serialization=True)
        if (tokenizer := given.get("processing_class")) is not None:
            tokenizer.save_pretrained(part)
        shutil.rmtree(target, ignore_errors=True)  # of the same step, before training was resumed
        part.rename(target)
        said = self._folder / f".{_ENDED}.partial"
        said.write_text(json.dumps({"step": state.global_step, "of": state.max_steps}), encoding="utf-8")
        said.replace(self._folder / _ENDED)
