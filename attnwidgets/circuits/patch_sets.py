"""aw.circuits.patch_sets: many sets of places, the places of each patched together, in common batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.patch import cell_of
from attnwidgets.circuits.patching import DIRECTIONS, Direction, share_unit
from attnwidgets.circuits.suffix_runs import SuffixRuns
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


class PatchedSets(NamedTuple):
    """What sets of places carry, each patched alone.

    Attributes:
        shares: Share of the difference of the two runs [set]; NaN if there is none.
        raw: What each changes, m(patched) - m(base), in units of the target [set].
        before: The target, less its foil, in the run that was changed.
        source: The same in the run that the activations are from.
    """

    shares: NDArray[np.float64]
    raw: NDArray[np.float64]
    before: float
    source: float


def patch_sets(
    clean: Any,
    corrupt: Any,
    sets: Sequence[Iterable[tuple[Any, ...]]],
    target: Any = None,
    *,
    foil: Any = None,
    how: Direction = "denoise",
    model: Any = None,
    tokenizer: Any = None,
    stack: str | None = None,
    batch_size: int = 32,
) -> PatchedSets:
    """Return what each of many sets of places carries, the places of a set patched together.

    As `patch_cells` for every set, but both texts run once, and the sets run in batches: one set for every
    layer, with all of its tokens, gives the effect through each layer exactly.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, of as many tokens.
        sets: Sets of places, each a list of cells as `patch_cells` takes them.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: What it is contrasted with.
        how: "denoise" patches the clean run's activations into the corrupt run, "noise" the reverse.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").
        batch_size: Number of sets in one call of the model.

    Raises:
        ValueError: If there are no sets, a set is empty, or a cell has another form; see also `patch`.
        IndexError: If there is no such layer, token or head.

    Source: Vig et al. 2020, section 3 (indirect effects of single and of joint components).

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb")]
        >>> layers = [[("attention", layer, None)] for layer in (0, 1)]
        >>> aw.circuits.patch_sets(*texts, layers, "c", foil="a").shares.round(2).tolist()
        [0.0, 1.0]
    """
    require_choice("how", how, DIRECTIONS)
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}.")
    pair = pair_of(clean, corrupt, stack, "patch_sets", model, tokenizer)
    targets = resolve_target_set(pair.clean, target, foil, "patch_sets").single("patch_sets")
    wanted = [[cell_of(cell, pair) for cell in cells] for cells in sets]
    if not wanted or not all(wanted):
        empty = "sets is empty" if not wanted else f"sets[{wanted.index([])}] is empty"
        raise ValueError(f'{empty}: name a cell, as ("state", 3, 5) or ("head", 3, 1).')
    # Those that begin in late layers together: a batch runs from its first patched layer on.
    order = sorted(range(len(wanted)), key=lambda number: min(cell.layer for cell in wanted[number]))
    base = DIRECTIONS.index(how) ^ 1
    sites = dict.fromkeys(cell.site for cells in wanted for cell in cells)
    after = np.zeros(len(wanted))
    with SuffixRuns(pair, targets, sites, "circuits.patch_sets") as runs:
        after[order] = runs.scores(base, [wanted[number] for number in order], batch_size)
        before, source = runs.recorded[base].score, runs.recorded[1 - base].score
    raw = after - before
    return PatchedSets(raw / share_unit(before, source), raw, before, source)
