"""aw.circuits.patch_sets: many sets of places, the places of each patched together, in common batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import require_choice
from attnwidgets._tables import pandas
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.paired import PairedRuns, cells_of
from attnwidgets.circuits.patching import DIRECTIONS, Direction
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import pandas as pd
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

    def to_dataframe(self) -> pd.DataFrame:
        """Return a pandas DataFrame with the share and the raw change of every set.

        Raises:
            ImportError: If pandas is not installed.
        """
        frame: pd.DataFrame = pandas().DataFrame({"share": self.shares, "raw": self.raw})
        return frame


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
        corrupt: The same, with the same number of tokens.
        sets: Sets of places, each a list of cells as `patch_cells` takes them.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: What it is contrasted with.
        how: "denoise" patches the clean run's activations into the corrupt run, "noise" the reverse.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").
        batch_size: Number of sets in one call of the model.

    Raises:
        ValueError: If sets are empty, a set is empty, or a cell has another form; see also `patch`.
        IndexError: If the layer, token or head is out of range.

    Source: Vig et al. 2020, section 3 (indirect effects of single and of joint components).

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb")]
        >>> layers = [[("attention", layer, None)] for layer in (0, 1)]
        >>> aw.circuits.patch_sets(*texts, layers, "c", foil="a").shares.round(2).tolist()
        [0.0, 1.0]
    """
    require_choice("how", how, DIRECTIONS)
    pair = pair_of(clean, corrupt, stack, "patch_sets", model, tokenizer)
    targets = resolve_target_set(pair.clean, target, foil, "patch_sets").single("patch_sets")
    wanted = cells_of(sets, pair)
    sites = dict.fromkeys(cell.site for cells in wanted for cell in cells)
    return PairedRuns(pair, targets, sites, "circuits.patch_sets").patch_cells_of(wanted, how, batch_size)
