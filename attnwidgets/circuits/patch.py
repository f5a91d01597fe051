"""aw.circuits.patch: activations of a run replaced by those of another run, and the change of the target.

Both runs are recorded once (`SuffixRuns`, over the tokens that can differ); then every cell, a site of a
layer at a token or a head, is patched in a copy of the base run, many copies in a batch (`_sweep`), or
estimated by a backward pass (`estimate.py`). Texts of different length are patched column by column of their
alignment (`_aligned`), which takes a forward pass for every cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._former import former_keywords
from attnwidgets._progress import progress
from attnwidgets._selecting import position
from attnwidgets.circuits.estimate import estimated
from attnwidgets.circuits.pair import AlignedTexts, Pair, pair_of, require_full_precision, said_difference
from attnwidgets.circuits.patching import DIRECTIONS, Direction, Patching, share_unit
from attnwidgets.circuits.suffix_runs import Cell, SuffixRuns
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import TargetSet, resolve_target_set
from attnwidgets.intervene.activation_sites import SITES, Site
from attnwidgets.intervene.heads import spoken
from attnwidgets.tracing.anatomy.attention_modules import sites as attention_sites

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.prediction import Prediction
    from attnwidgets.tracing.trace import Trace

How = Literal["denoise", "noise", "both"]
HOWS: tuple[How, ...] = ("denoise", "noise", "both")
PAPER = (
    "Vig et al. 2020; Meng et al. 2022; Zhang and Nanda 2024, Towards Best Practices of Activation Patching"
)
PAPER_OF_ESTIMATES = "Nanda 2023, Attribution Patching; Syed et al. 2023"


class BothWays(NamedTuple):
    """Patching in both directions.

    Attributes:
        denoise: The clean run's activations in the corrupt run: the cells that suffice to restore the answer.
        noise: The corrupt run's activations in the clean run: the cells that are needed for it.
    """

    denoise: Patching
    noise: Patching

    def view(self, **options: Any) -> Any:
        """Return the widget that shows both.

        Args:
            **options: Options of `aw.views.PatchView`.
        """
        return self.denoise.view(others=self, **options)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """How `patch` goes through the cells.

    Args:
        align: Also take texts of different length. Tokens that correspond, by edit distance, share a
            column, and a column is patched from token to token; columns that a text lacks are NaN. Each
            cell costs a forward pass.
        checked: Number of cells of a site that are patched to check estimates: half of them the largest.
        batch_size: Number of patches in a call of the model.

    Raises:
        ValueError: If a number is below 1.

    Example:
        >>> model = aw.demo_model("induction")
        >>> clean, corrupt = (aw.trace(*model, text) for text in ("fadebcfadeb", "fadebafadeb"))
        >>> sweep = aw.circuits.Sweep(checked=2)
        >>> patching = aw.circuits.patch(clean, corrupt, "c", sites="state", estimate=True, sweep=sweep)
        >>> len(patching.checked)
        2
    """

    align: bool = False
    checked: int = 6
    batch_size: int = 32

    def __post_init__(self) -> None:
        for name in ("checked", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}.")


_DEFAULT = Sweep()


@former_keywords([option.name for option in fields(Sweep)], "sweep", "aw.circuits.Sweep(...)", Sweep)
def patch(
    clean: Any,
    corrupt: Any,
    target: Any = None,
    *,
    foil: Any = None,
    sites: Site | Sequence[Site] = SITES,
    how: How = "denoise",
    estimate: bool = False,
    sweep: Sweep = _DEFAULT,
    model: Any = None,
    tokenizer: Any = None,
    stack: str | None = None,
) -> Patching | BothWays:
    """Return the share of the difference between a clean and a corrupt run that each cell carries.

        share = (m(patched) - m(base)) / (m(source) - m(base))

    m is the target less its foil. "denoise" patches the clean run's activations into the corrupt run, "noise"
    the corrupt run's into the clean run. A cell of "state", "attention" and "mlp" is a token of a layer;
    a head is patched at all tokens. In causal models only tokens from the first different token on run, over
    the keys and values of those before it, and only layers from the patched layer on; cells before it are 0
    exactly. With L layers, n tokens and m of them from the first different token on, the states cost
    (L + 1) / 2 * m^2 / n forward passes. Models in half precision compute in float32.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, with the same number of tokens.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: Contrasting target, such as the answer to the corrupt text.
        sites: "state" (the input of a block), "attention" and "mlp" (their outputs to the residual stream),
            "head" (outputs of heads, at all tokens): a site or several.
        how: "denoise", "noise", or "both" for two results.
        estimate: Estimate every cell to first order, (a_source - a_base) . dm/da, with a backward pass, and
            check some cells by patching them: `.checked`, `.agreement`. Estimates of states can be far off.
        sweep: Whether texts of different length are aligned, how many estimates are checked, and the number
            of patches in a call of the model: an `aw.circuits.Sweep`.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").

    Returns:
        Patching: `.values[site]` [layer, token] and `.heads` [layer, head] hold shares (1: the cell alone
        turns the answer; 0: it changes nothing; they need not sum to 1), `.raw` m(patched) - m(base) in
        units of the target. For how="both" a pair of them, `.denoise` and `.noise`.

    Raises:
        ValueError: If a site or `how` is unknown, the texts have different numbers of tokens or are the same,
            the traces are of two models or were recorded under other interventions, the target is several
            tokens, or texts of different length meet a model in half precision.
        TypeError: If `clean` or `corrupt` is neither a trace nor a text with a model, or `sweep` is not a
            Sweep.
        UnsupportedModelError: If a site cannot be located in this family of models, or the model has no head.

    Source: Vig et al. 2020; Meng et al. 2022, section 2; Zhang and Nanda 2024 (directions, logit difference);
    Nanda 2023, Attribution Patching (estimate).

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))
        >>> patching = aw.circuits.patch(clean, corrupt, "c", foil="a")
        >>> patching.values["state"].shape, patching.heads.round(2).tolist()
        ((2, 12), [[0.0, 0.0], [1.0, 0.0]])
    """
    require_choice("how", how, HOWS)
    chosen = chosen_sites(sites)
    if not isinstance(sweep, Sweep):
        raise TypeError(f"sweep takes an aw.circuits.Sweep, not {sweep!r:.60}.")
    pair = pair_of(clean, corrupt, stack, "patch", model, tokenizer, unequal=sweep.align)
    targets = resolve_target_set(pair.clean, target, foil, "patch").single("patch")
    directions: tuple[Direction, ...] = DIRECTIONS if how == "both" else (how,)
    if pair.is_unequal:
        if estimate:
            raise ValueError("estimate needs texts with the same number of tokens; leave it out, or align.")
        require_full_precision(pair, "patch with Sweep(align=True)")
        columns = [_aligned(pair, targets, target, foil, direction, chosen) for direction in directions]
        return BothWays(*columns) if how == "both" else columns[0]
    bases = [DIRECTIONS.index(direction) ^ 1 for direction in directions]
    with SuffixRuns(pair, targets, chosen, "circuits.patch", bases if estimate else ()) as runs:
        results = []
        for direction, base in zip(directions, bases, strict=True):
            more: dict[str, Any] = {}
            if estimate:
                raw, more["checked"] = estimated(runs, pair, chosen, base, sweep.checked, sweep.batch_size)
            else:
                raw = {site: _sweep(runs, pair, site, base, sweep.batch_size) for site in chosen}
            options = {"how": direction, "sites": list(chosen), "estimate": estimate}
            more["made_of"] = PatchedPair(pair.clean, pair.corrupt, pair.stack, target, foil)
            results.append(_result(runs, pair, targets, raw, direction, options, estimate=estimate, **more))
    return BothWays(*results) if how == "both" else results[0]


class PatchedCells(NamedTuple):
    """Cells that were patched together.

    Attributes:
        share: Share of the difference of the two runs; NaN if there is none.
        before: The target, less its foil, in the run that was changed.
        after: The same with the cells patched.
        source: The same in the run that the activations are from.
        predictions: The most probable outputs with the cells patched, the most probable first; () if the
            model predicts nothing.
    """

    share: float
    before: float
    after: float
    source: float
    predictions: tuple[Prediction, ...] = ()


def patch_cells(
    clean: Any,
    corrupt: Any,
    cells: Iterable[tuple[Any, ...]],
    target: Any = None,
    *,
    foil: Any = None,
    how: Direction = "denoise",
    model: Any = None,
    tokenizer: Any = None,
    stack: str | None = None,
) -> PatchedCells:
    """Return the effect of several cells that are patched together.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, with the same number of tokens.
        cells: Tuples (site, layer, token) for "state", "attention" and "mlp"; ("head", layer, head), or
            ("head", layer, head, token) for a position of a head. A token of None means all tokens.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: Contrasting target.
        how: "denoise" patches the clean run's activations into the corrupt run, "noise" the reverse.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").

    Raises:
        ValueError: If a cell has another form, or there are none; see also `patch`.
        IndexError: If the layer, token or head is out of range.

    Source: Meng et al. 2022, section 2; Wang et al. 2023, section 3.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb")]
        >>> cells = [("head", 1, 0, -1), ("state", 0, 6)]
        >>> round(aw.circuits.patch_cells(*texts, cells, "c", foil="a").share, 3)
        1.0
    """
    require_choice("how", how, DIRECTIONS)
    pair = pair_of(clean, corrupt, stack, "patch_cells", model, tokenizer)
    targets = resolve_target_set(pair.clean, target, foil, "patch_cells").single("patch_cells")
    checked_cells = [cell_of(cell, pair) for cell in cells]
    if not checked_cells:
        raise ValueError('cells is empty: name one, as ("state", 3, 5) or ("head", 3, 1).')
    base = DIRECTIONS.index(how) ^ 1
    with SuffixRuns(
        pair, targets, dict.fromkeys(cell.site for cell in checked_cells), "circuits.patch_cells"
    ) as runs:
        after, predictions = runs.outcome(base, checked_cells)
        before, source = runs.recorded[base].score, runs.recorded[1 - base].score
    return PatchedCells((after - before) / share_unit(before, source), before, after, source, predictions)


def chosen_sites(sites: Any) -> tuple[Site, ...]:
    """Return sites that a user names, each once."""
    named = (sites,) if isinstance(sites, str) else tuple(sites)
    for site in named:
        require_choice("site", site, SITES)
    if not named:
        raise ValueError(f"sites is empty; choose from {', '.join(map(repr, SITES))}.")
    return tuple(dict.fromkeys(named))


def cell_of(given: Any, pair: Pair) -> Cell:
    """Return a cell that a user names, checked against a pair."""
    form = 'cells are (site, layer, token), ("head", layer, head) or ("head", layer, head, token)'
    if not isinstance(given, (tuple, list)) or not given:
        raise ValueError(f"cells takes a list of places, not {given!r}: {form}.")
    parts, site = tuple(given), given[0]
    require_choice("site", site, SITES)
    lengths = (3, 4) if site == "head" else (3,)
    if len(parts) not in lengths:
        raise ValueError(f"{form}, not {given!r}.")
    layers = pair.clean.layers(pair.stack)
    layer = layers[position(parts[1], layers, "layer")]
    *heads, token = parts[2:] if len(parts) > 3 or site != "head" else (parts[2], None)  # noqa: PLR2004
    at = None if token is None else position(token, range(pair.n_tokens), "token")
    numbers = range(pair.clean.n_heads(pair.stack, layer))
    return Cell(site, layer, at, *(position(head, numbers, "head") for head in heads))


def _sweep(runs: SuffixRuns, pair: Pair, site: Site, base: int, batch_size: int) -> NDArray[np.float64]:
    """Return m(patched) - m(base) of every cell of a site: [layer, token], of heads [layer, head]."""
    n_layers = pair.clean.n_layers(pair.stack)
    width = pair.clean.n_heads(pair.stack) if site == "head" else pair.n_tokens
    raw = np.zeros((n_layers, width))
    before = runs.recorded[base].score
    for layer in progress(range(n_layers), f"patching {site}"):
        if site == "head":
            count = attention_sites(pair.clean)[pair.stack][layer].n_heads or 0
            raw[layer, count:] = np.nan  # heads that the layer does not have
            cells = [Cell(site, layer, None, head) for head in range(count)]
        else:
            cells = [Cell(site, layer, token) for token in range(pair.first, width)]
        # Cells that are equal in both runs change nothing.
        cells = [cell for cell in cells if not runs.equal(cell)]
        columns = np.array([cell.token if cell.head is None else cell.head for cell in cells], dtype=np.intp)
        raw[layer, columns] = runs.scores(base, [(cell,) for cell in cells], batch_size) - before
    return raw


def _aligned(
    pair: Pair, targets: TargetSet, target: Any, foil: Any, direction: Direction, sites: tuple[Site, ...]
) -> Patching:
    """Return patching of texts of different length, column by column."""
    if any(getattr(named, "position", None) is not None for named in (target, foil)):
        raise ValueError("target names a position, which texts of different length do not share.")
    answer, other = (of[0].index if of else None for of in (targets.targets, targets.foils))
    targets_of_sides = [
        resolve_target_set(trace, answer, other, "patch").single("patch") for trace in pair.sides
    ]
    texts = AlignedTexts(pair.clean, pair.corrupt, pair.stack)
    swept, scores = texts.sweep(sites, DIRECTIONS.index(direction) ^ 1, targets_of_sides)
    raw: dict[str, NDArray[np.float64]] = {str(site): values for site, values in swept.items()}
    options = {"how": direction, "sites": list(sites), "align": True}
    facts = {"corrupt": pair.corrupt.text, "differs": f"columns {spoken(texts.columns.differing)}"}
    common = provenance_of(
        pair.clean,
        pair.stack,
        "circuits.patch",
        paper=PAPER,
        options=options,
        notes=targets.notes,
        facts=facts,
    )
    names = targets.names()
    return Patching(
        raw,
        direction=direction,
        clean=scores[0],
        corrupt=scores[1],
        clean_tokens=texts.tokens(0),
        corrupt_tokens=texts.tokens(1),
        differs=texts.columns.differing,
        target=names["target"],
        foil=names["foil"],
        **(common | {"dtype": "float64"}),
    )


def _result(
    runs: SuffixRuns,
    pair: Pair,
    targets: TargetSet,
    raw: Mapping[Any, NDArray[np.float64]],
    direction: Direction,
    options: dict[str, Any],
    made_of: PatchedPair,
    **more: Any,
) -> Patching:
    clean, corrupt = (recorded.score for recorded in runs.recorded)
    notes = [*targets.notes]
    if math.isnan(share_unit(corrupt, clean)):
        notes.append(
            "the runs do not differ in the target, so shares are undefined; see .raw, or name a foil"
        )
    common = provenance_of(
        pair.clean,
        pair.stack,
        "circuits.patch",
        paper=PAPER_OF_ESTIMATES if more.get("estimate") else PAPER,
        options=options,
        notes=notes,
        facts={"corrupt": pair.corrupt.text, "differs": said_difference(pair)},
    )
    names = targets.names()
    return Patching(
        raw,
        direction=direction,
        clean=clean,
        corrupt=corrupt,
        clean_tokens=pair.clean.axes(pair.stack)[0].tokens,
        corrupt_tokens=pair.corrupt.axes(pair.stack)[0].tokens,
        differs=pair.differs,
        target=names["target"],
        foil=names["foil"],
        pair=made_of,
        **(common | {"dtype": "float64"}),
        **more,
    )


@dataclass(frozen=True)
class PatchedPair:
    """Two runs, and the target that is read of them.

    Attributes:
        clean: The trace of the clean text.
        corrupt: The trace of the corrupt text.
        stack: The stack whose activations are patched.
        target: The target, as it was given.
        foil: Contrasting target, as it was given.
    """

    clean: Trace
    corrupt: Trace
    stack: str
    target: Any
    foil: Any

    def patch(self, sites: Sequence[Site], direction: Direction, *, estimate: bool) -> Patching:
        """Patch the same pair in another direction, or estimate it; see `aw.circuits.patch`."""
        result: Any = patch(
            self.clean,
            self.corrupt,
            self.target,
            foil=self.foil,
            sites=sites,
            how=direction,
            estimate=estimate,
            stack=self.stack,
        )
        return result

    def patch_cells(self, cells: Sequence[tuple[Any, ...]], direction: Direction) -> PatchedCells:
        """Patch several cells at once; see `aw.circuits.patch_cells`."""
        return patch_cells(
            self.clean,
            self.corrupt,
            cells,
            self.target,
            foil=self.foil,
            how=direction,
            stack=self.stack,
        )
