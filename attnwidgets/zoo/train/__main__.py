"""Train a model of `aw.zoo.trained` again, and say how near it comes to the one in the package."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets.zoo.train.recipe import fit, round_to_half
from attnwidgets.zoo.train.recipes import RECIPES
from attnwidgets.zoo.train.runs import steps_to_keep, train
from attnwidgets.zoo.trained_models import make_tokenizer, save, shipped, trained

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure, compare and perhaps write; return the exit status of the process."""
    options = _options(arguments)
    recipe = RECIPES[options.name]
    tokenizer = make_tokenizer(recipe.tokenizer)
    steps = options.steps or recipe.schedule.steps
    began = time.perf_counter()
    if options.keep is None:
        model = fit(recipe, tokenizer, options.seed, steps)
    else:
        kept = steps_to_keep(options.keep, steps)
        model = train(recipe, options.seed, steps, kept, options.out)
    # Measure the weights as a file would store them, in half precision.
    round_to_half(model)
    measured = recipe.measure(model, tokenizer)
    heads = {f"{layer}.{head}": role for (layer, head), role in recipe.heads(model, tokenizer).items()}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    _say(
        f"{recipe.name}, seed {options.seed}: {recipe.task}\n"
        f"{type(model).__name__}, {parameters:,} parameters, "
        f"{steps:,} steps in {time.perf_counter() - began:.0f} s\n"
    )
    _say(_compared(measured, _in_the_package(options.name, options.seed)))
    for head, role in heads.items():
        _say(f"head {head}: {role}")
    if options.keep is not None:
        _say(f"\n{options.out}, {len(kept)} checkpoints: aw.checkpoints({str(options.out)!r})")
    elif options.out is not None:
        says = {"name": recipe.name, "seed": options.seed, "does": recipe.task, "base": recipe.base}
        save(options.out, model, recipe.tokenizer, {**says, "heads": heads, "measured": measured})
        _say(
            f"\n{options.out}, {options.out.stat().st_size:,} bytes: "
            f"aw.zoo.trained({recipe.name!r}, file={str(options.out)!r})"
        )
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m attnwidgets.zoo.train",
        description=__doc__,
        epilog="The same seed gives the same weights on the same machine and versions; elsewhere sums are "
        "rounded otherwise, and training amplifies it: accuracies come near, heads may attend otherwise.",
    )
    tasks = "; ".join(f"{recipe.name} {recipe.task}" for recipe in RECIPES.values())
    parser.add_argument("name", choices=RECIPES, metavar="NAME", help=tasks)
    parser.add_argument(
        "--seed", type=_not_negative, default=0, help="of first weights and data (default: 0)"
    )
    parser.add_argument("--steps", type=_positive, help="train shorter or longer than the recipe says")
    parser.add_argument(
        "--keep",
        type=_positive,
        metavar="N",
        help="write the untrained weights and N checkpoints at equal distances; OUT is their folder then",
    )
    parser.add_argument("--out", type=Path, help="write the weights to this file, in half precision")
    options = parser.parse_args(arguments)
    if options.keep is not None:
        if options.out is None:
            parser.error("--keep needs --out, the folder of the checkpoints")
        if options.out.exists() and not (options.out.is_dir() and not any(options.out.iterdir())):
            parser.error(f"--out {options.out} exists: --keep writes to a new folder, or to an empty one")
    return options


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _not_negative(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 2**32 - 1, not {text!r}")
    return int(text)


def _in_the_package(name: str, seed: int) -> dict[int, dict[str, float]]:
    """Return the measurements of the package's model of this seed; without such a model, of all its seeds."""
    seeds = shipped().get(name, ())
    chosen = (seed,) if seed in seeds else seeds
    return {number: dict(trained(name, number)[0].truth.measured) for number in chosen}


def _compared(measured: dict[str, float], packaged: dict[int, dict[str, float]]) -> str:
    """Return a table of the measurements: of this run, and of the package's models."""
    width = max(map(len, measured))
    heading = ["now", *(f"package, seed {seed}" for seed in packaged)]
    lines = [" " * width + "".join(f"  {title:>15}" for title in heading)]
    for name, value in measured.items():
        columns: list[Any] = [value, *(measurements.get(name) for measurements in packaged.values())]
        lines.append(
            f"{name:<{width}}" + "".join(f"  {'' if c is None else format(c, '.3f'):>15}" for c in columns)
        )
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
