"""aw.circuits.paired: two recorded runs for many questions about the same pair, and many sets of patches."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._tables import pandas
from attnwidgets.circuits.estimate import estimated
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.patch import cell_of, chosen_sites
from attnwidgets.circuits.patching import DIRECTIONS, Direction, share_unit
from attnwidgets.circuits.suffix_runs import SuffixRuns
from attnwidgets.explanations.targets.target_set import resolve_target_set
from attnwidgets.intervene.activation_sites import SITES, Site
from attnwidgets.tracing.rerun_trace import require_same_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from attnwidgets.circuits.pair import Pair
    from attnwidgets.circuits.suffix_runs import Cell
    from attnwidgets.explanations.targets.target_set import TargetSet

_BATCH = 32


class PairedRuns:
    """Two recorded runs that serve many patches; made by `aw.circuits.paired`."""

    def __init__(
        self,
        pair: Pair,
        targets: TargetSet,
        sites: Iterable[Site],
        purpose: str,
        estimate: Iterable[Direction] = (),
    ) -> None:
        self._pair, self._sites, self._purpose = pair, tuple(sites), purpose
        self._estimate = tuple(estimate)
        bases = [base_of(how) for how in self._estimate]
        self._runs = SuffixRuns(pair, targets, self._sites, purpose, bases)

    @cached_property
    def _scores(self) -> tuple[float, ...]:
        with self._ready() as runs:
            return tuple(run.score for run in runs.recorded)

    @property
    def clean(self) -> float:
        """The target, less its foil, in the clean run."""
        return self._scores[0]

    @property
    def corrupt(self) -> float:
        """The target, less its foil, in the corrupt run."""
        return self._scores[1]

    def _ready(self) -> SuffixRuns:
        """Return the runs, to be entered: the first time they are recorded.

        Raises:
            ValueError: If other interventions are active than when the texts were traced.
        """
        for trace in self._pair.sides:
            require_same_model(trace, self._purpose)
        return self._runs

    def patch_sets(
        self,
        sets: Sequence[Iterable[tuple[Any, ...]]],
        how: Direction = "denoise",
        *,
        batch_size: int = _BATCH,
    ) -> PatchedSets:
        """Patch many sets of cells, each set alone; see `aw.circuits.patch_sets`.

        Args:
            sets: Sets, each a list of cells.
            how: "denoise" patches the clean run's activations into the corrupt run, "noise" the reverse.
            batch_size: Number of sets in a call of the model.

        Raises:
            ValueError: If sets are empty, a set is empty, a cell has another form, or its site was not
                requested.
            IndexError: If the layer, token or head is out of range.
        """
        checked_sets = cells_of(sets, self._pair)
        missing = {cell.site for cells in checked_sets for cell in cells} - set(self._sites)
        if missing:
            raise ValueError(f"{self._purpose}: {min(missing)!r} was not recorded; name it in sites=.")
        return self.patch_cells_of(checked_sets, how, batch_size)

    def patch_cells_of(
        self, checked_sets: Sequence[Sequence[Cell]], how: Direction, batch_size: int
    ) -> PatchedSets:
        """Patch sets of cells that were checked."""
        require_choice("how", how, DIRECTIONS)
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}.")
        # Those that begin in late layers together: a batch runs from its first patched layer on.
        order = sorted(
            range(len(checked_sets)), key=lambda number: min(cell.layer for cell in checked_sets[number])
        )
        base = base_of(how)
        after = np.zeros(len(checked_sets))
        with self._ready() as runs:
            after[order] = runs.scores(base, [checked_sets[number] for number in order], batch_size)
            before, source = runs.recorded[base].score, runs.recorded[1 - base].score
        raw = after - before
        return PatchedSets(raw / share_unit(before, source), raw, before, source)

    def estimates(self, site: Site = "head", how: Direction = "denoise") -> NDArray[np.float64]:
        """Return the change of the target by patching each cell of a site, to first order; see `patch`.

        Args:
            site: The site.
            how: A direction of `estimate=`.

        Returns:
            m(patched) - m(base) in units of the target [layer, head], or [layer, token] of other sites. They
            are estimates: check large values by `patch_sets`.

        Raises:
            ValueError: If the direction or the site was not requested.

        Source: Nanda 2023, Attribution Patching.
        """
        if how not in self._estimate:
            raise ValueError(
                f"{self._purpose}: estimates in direction {how!r} were not requested: estimate=({how!r},)."
            )
        if site not in self._sites:
            raise ValueError(f"{self._purpose}: {site!r} was not recorded; name it in sites=.")
        with self._ready() as runs:
            return estimated(runs, self._pair, (site,), base_of(how), 0, _BATCH)[0][site]

    def __repr__(self) -> str:
        tokens = f"{self._pair.n_tokens} tokens"
        return f"<PairedRuns of {tokens}: clean {self.clean:.3f}, corrupt {self.corrupt:.3f}>"


def paired(
    clean: Any,
    corrupt: Any,
    target: Any = None,
    *,
    foil: Any = None,
    sites: Site | Sequence[Site] = SITES,
    estimate: Sequence[Direction] = (),
    model: Any = None,
    tokenizer: Any = None,
    stack: str | None = None,
) -> PairedRuns:
    """Run two texts once, for many questions about the same pair.

    `patch`, `patch_sets` and `patch_cells` run both texts anew at each call. For several calls on the same
    pair, these runs are most of the work, and here they are done once, at the first call. Their
    activations stay in memory; they hold for the weights that the model has then.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, with the same number of tokens.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: Contrasting target.
        sites: Sites that are recorded: "state", "attention", "mlp", "head".
        estimate: Directions in which `.estimates` will be requested, "denoise" or "noise": each takes a
            backward pass.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").

    Returns:
        `PairedRuns`, with `.patch_sets` and `.estimates`.

    Raises:
        ValueError: If a site or a direction is unknown; see also `patch`.

    Source: Vig et al. 2020; Nanda 2023.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb")]
        >>> runs = aw.circuits.paired(*texts, "c", foil="a", estimate=["noise"])
        >>> runs.patch_sets([[("head", 1, 0)]], "noise").shares.round(2).tolist()
        [1.0]
        >>> runs.estimates("head", "noise").shape
        (2, 2)
    """
    directions: tuple[Any, ...] = (estimate,) if isinstance(estimate, str) else tuple(estimate)
    for how in directions:
        require_choice("estimate", how, DIRECTIONS)
    pair = pair_of(clean, corrupt, stack, "paired", model, tokenizer)
    targets = resolve_target_set(pair.clean, target, foil, "paired").single("paired")
    return PairedRuns(pair, targets, chosen_sites(sites), "circuits.paired", directions)


def base_of(how: Direction) -> int:
    """Return which run a direction changes: 0 for the clean, 1 for the corrupt run."""
    return DIRECTIONS.index(how) ^ 1


def cells_of(sets: Sequence[Iterable[tuple[Any, ...]]], pair: Pair) -> list[list[Cell]]:
    """Return sets of cells that a user names, checked against a pair.

    Raises:
        ValueError: If `sets` or a set is empty, or a cell has another form.
        IndexError: If the layer, token or head is out of range.
    """
    checked_sets = [[cell_of(cell, pair) for cell in cells] for cells in sets]
    if not checked_sets or not all(checked_sets):
        empty = "sets is empty" if not checked_sets else f"sets[{checked_sets.index([])}] is empty"
        raise ValueError(f'{empty}: name a cell, as ("state", 3, 5) or ("head", 3, 1).')
    return checked_sets


class PatchedSets(NamedTuple):
    """The effects of sets of cells, each set patched alone.

    Attributes:
        shares: Share of the difference of the two runs [set]; NaN if they do not differ.
        raw: Change of the target by each, m(patched) - m(base), in units of the target [set].
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
    """Return the effect of each of many sets of cells, the cells of a set patched together.

    As `patch_cells` for every set, but both texts run once, and the sets run in batches: a set for every
    layer, with all of its tokens, gives the effect through each layer exactly.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, with the same number of tokens.
        sets: Sets, each a list of cells as `patch_cells` takes them.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: Contrasting target.
        how: "denoise" patches the clean run's activations into the corrupt run, "noise" the reverse.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").
        batch_size: Number of sets in a call of the model.

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
    checked_sets = cells_of(sets, pair)
    sites = dict.fromkeys(cell.site for cells in checked_sets for cell in cells)
    return PairedRuns(pair, targets, sites, "circuits.patch_sets").patch_cells_of(
        checked_sets, how, batch_size
    )
