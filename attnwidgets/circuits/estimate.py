"""First-order estimates of patching by a backward pass, and their check on some cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.circuits.patching import CheckedCell, share_unit
from attnwidgets.circuits.suffix_runs import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.circuits.pair import Pair
    from attnwidgets.circuits.suffix_runs import SuffixRuns
    from attnwidgets.intervene.activation_sites import Site


_TOGETHER = 8
"""Checked cells in a call, sorted by layer: each call starts at the first layer of its cells."""


def estimated(
    runs: SuffixRuns, pair: Pair, sites: Sequence[Site], base: int, checked: int, batch_size: int
) -> tuple[dict[Site, NDArray[np.float64]], list[CheckedCell]]:
    """Return estimates of m(patched) - m(base), and cells at which they were checked.

        (a_source - a_base) . dm/da at the base, summed over the width, for heads over tokens as well

    Args:
        runs: The runs, ready.
        pair: The pair.
        sites: The sites.
        base: The run that is changed: 0 for the clean, 1 for the corrupt run.
        checked: Number of cells of each site that are patched: half of them have the largest estimates,
            the others are drawn from those that differ in both runs.
        batch_size: Number of patches in a call of the model.

    Returns:
        By site [layer, token], of heads [layer, head]; and the checked cells, in shares of the difference.

    Source: Nanda 2023, Attribution Patching; Syed et al. 2023, equation 2.
    """
    slopes = runs.gradients(base)
    source, ours = runs.recorded[1 - base].activations, runs.recorded[base].activations
    n_layers = pair.clean.n_layers(pair.stack)
    raw: dict[Site, NDArray[np.float64]] = {}
    for site in sites:
        width = pair.clean.n_heads(pair.stack) if site == "head" else pair.n_tokens
        raw[site] = np.zeros((n_layers, width))
        for layer in range(n_layers):
            key = (site, layer)
            change = ((source[key] - ours[key]) * slopes[key])[0].double().sum(-1).cpu().numpy()
            if site == "head":
                raw[site][layer] = np.nan
                raw[site][layer, : len(change)] = change.sum(-1)
            else:
                raw[site][layer, runs.first :] = change
    cells = [cell for site in sites for cell in _chosen(runs, raw[site], site, checked)]
    return raw, _checked(runs, raw, cells, base, batch_size)


def _chosen(runs: SuffixRuns, raw: NDArray[np.float64], site: Site, count: int) -> list[tuple[Cell, str]]:
    """Return cells to check, and why each was chosen."""
    every = [
        Cell(site, layer, *((None, at) if site == "head" else (at, None)))
        for layer, at in np.argwhere(~np.isnan(raw)).tolist()
        if site == "head" or at >= runs.first
    ]
    differing = [cell for cell in every if not runs.equal(cell)]
    differing.sort(key=lambda cell: -abs(float(raw[cell.layer, _column(cell)])))
    largest, rest = differing[: count // 2], differing[count // 2 :]
    drawn = np.random.default_rng(0).permutation(len(rest))[: count - len(largest)]
    return [(cell, "largest") for cell in largest] + [(rest[i], "random") for i in sorted(drawn)]


def _column(cell: Cell) -> int:
    return int(cell.token if cell.head is None else cell.head)  # type: ignore[arg-type]  # a cell of an estimate has a token or a head


def _checked(
    runs: SuffixRuns,
    raw: dict[Site, NDArray[np.float64]],
    cells: Sequence[tuple[Cell, str]],
    base: int,
    batch_size: int,
) -> list[CheckedCell]:
    """Return the patching result of some cells with their estimates; later layers run together."""
    cells = sorted(cells, key=lambda chosen: -chosen[0].layer)
    before = runs.recorded[base].score
    unit = share_unit(before, runs.recorded[1 - base].score)
    exact = runs.scores(base, [(cell,) for cell, _ in cells], min(batch_size, _TOGETHER)) - before
    return [
        CheckedCell(
            cell.site,
            cell.layer,
            cell.token,
            cell.head,
            float(raw[cell.site][cell.layer, _column(cell)] / unit),
            float(change / unit),
            why,
        )
        for (cell, why), change in zip(cells, exact, strict=True)
    ]
