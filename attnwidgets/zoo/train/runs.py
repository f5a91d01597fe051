"""aw.zoo.train.run: train a model of the zoo, and write its weights at some steps."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.zoo.train.recipe import Recipe, fit
from attnwidgets.zoo.train.recipes import RECIPES
from attnwidgets.zoo.trained_models import WEIGHTS, make_tokenizer, read_file, save

if TYPE_CHECKING:
    from attnwidgets.results import TrainingRun

PACKAGED = (0, 120, 240, 300, 420, 600, 840, 1200)
"""The steps of "induction", seeds 0 and 1, whose weights are in the package."""


def run(
    name: str,
    seed: int = 0,
    *,
    keep: int | Collection[int] = 20,
    steps: int | None = None,
    folder: str | Path | None = None,
) -> TrainingRun:
    """Train a model of `aw.zoo.trained` again, and return it at many steps of its training.

    The checkpoints change no bit of the training: the last weights are those of a run without them. They are
    written in half precision, as the weights in the package are, so that last digits differ from those of the
    model in training. The same seed gives the same weights on the same machine and versions.

    Checkpoints of "induction", seeds 0 and 1, at steps 0, 120, 240, 300, 420, 600, 840 and 1,200 are in the
    package: a run that keeps some of these (`keep=aw.zoo.train.PACKAGED`) is read, and trains nothing.

    Args:
        name: "induction", "dyck", "histogram", "recall", "dates" or "alice".
        seed: Seed of the first weights and the data.
        keep: The steps of which checkpoints are written, or their number after step 0, the untrained model,
            at equal distances up to the last.
        steps: Train in fewer (or more) steps than the recipe says.
        folder: The folder of the files. If it holds all of them already, they are read, and nothing is
            trained. None: a temporary folder, which is removed with the run.

    Returns:
        A run; see `aw.checkpoints`.

    Raises:
        ValueError: If the name is unknown, a number is out of range, or the folder holds checkpoints of
            another training.

    Example:
        >>> run = aw.zoo.train.run("induction", keep=aw.zoo.train.PACKAGED)
        >>> run.curve("behaviour").appeared
        Appeared(step=300, before=240, after=420)
    """
    if name not in RECIPES:
        raise ValueError(
            f"name must be one of {', '.join(map(repr, RECIPES))}, not {name!r}.{suggest(str(name), RECIPES)}"
        )
    recipe = RECIPES[name]
    last = recipe.schedule.steps if steps is None else steps
    if isinstance(last, bool) or not isinstance(last, int) or last < 1:
        raise ValueError(f"steps must be a whole number of at least 1, not {steps!r}.")
    chosen = steps_to_keep(keep, last)
    says = _metadata(recipe, seed, last)
    packaged = WEIGHTS / "steps" / f"{name}-{seed}"
    is_packaged = folder is None and steps is None and _is_there(packaged, chosen, says)
    temporary = tempfile.TemporaryDirectory() if folder is None and not is_packaged else None
    target = Path(temporary.name) if temporary else packaged if folder is None else Path(folder)
    if not is_packaged and not _is_there(target, chosen, says):
        train(recipe, seed, last, chosen, target)
    # The layer above reads checkpoints: it runs the explanations that these models test.
    read = import_module("attnwidgets.training.run").checkpoints
    made: TrainingRun = read({step: _file(target, step) for step in chosen})
    made._holds = temporary  # noqa: SLF001 - the folder lasts as long as the run
    return made


def steps_to_keep(keep: int | Collection[int], last: int) -> list[int]:
    """Return the steps to write, ascending.

    Args:
        keep: The steps, or their number after step 0.
        last: The last step.

    Raises:
        ValueError: If a number is out of range.
    """
    if isinstance(keep, Collection):
        chosen = sorted(set(keep))
        if not chosen or any(not isinstance(step, int) or not 0 <= step <= last for step in chosen):
            raise ValueError(f"keep must be steps from 0 to {last}, not {keep!r}.")
        return chosen
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise ValueError(f"keep must be a number of at least 1, or steps, not {keep!r}.")
    return sorted({round(last * part / keep) for part in range(keep + 1)})


def _metadata(recipe: Recipe, seed: int, steps: int) -> dict[str, Any]:
    """Return what identifies a training in the files of its checkpoints."""
    return {"name": recipe.name, "seed": seed, "does": recipe.task, "steps": steps}


def _file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}.safetensors"


def _is_there(folder: Path, chosen: list[int], says: dict[str, Any]) -> bool:
    """Return whether a folder holds all checkpoints of a training; refuse a folder of another training."""
    files = sorted(folder.glob("step-*.safetensors"))
    for path in files:
        metadata = read_file(path)[0]
        other = next((key for key in says if metadata.get(key) != says[key]), None)
        if other is not None:
            raise ValueError(
                f"folder {folder} holds a checkpoint of another training, {path.name}: its {other} is "
                f"{metadata.get(other)!r}, not {says[other]!r}. Give another folder."
            )
    return {_file(folder, step) for step in chosen} <= set(files)


def train(recipe: Recipe, seed: int, steps: int, keep: Collection[int], folder: Path) -> Any:
    """Train a model, and write its weights at some steps; return it.

    Args:
        recipe: The recipe.
        seed: Seed of the first weights and the data.
        steps: The number of steps.
        keep: The steps of which checkpoints are written.
        folder: The folder of their files.
    """
    says = _metadata(recipe, seed, steps)

    def write(step: int, model: Any) -> None:
        # Under another name first: a process that is killed leaves no half of a file.
        part = folder / f".step-{step}.partial"
        save(part, model, recipe.tokenizer, {**says, "step": step, "heads": {}, "measured": {}})
        part.replace(_file(folder, step))

    return fit(recipe, make_tokenizer(recipe.tokenizer), seed, steps, keep=keep, on_step=write)
