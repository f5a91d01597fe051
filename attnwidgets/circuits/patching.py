"""Patching: the share of the difference between two runs that every cell of a model carries."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnwidgets._errors import deprecated, require_choice
from attnwidgets._selecting import at_most, ranking
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.patch import PatchedPair

Direction = Literal["denoise", "noise"]
DIRECTIONS: tuple[Direction, ...] = ("denoise", "noise")
UNDEFINED = 1e-4
"""Gap between the runs, relative to the larger target (or to 1), below which shares are not defined."""

_LABELS = (
    "direction",
    "clean",
    "corrupt",
    "clean_tokens",
    "corrupt_tokens",
    "differs",
    "target",
    "foil",
    "estimate",
)
_TWO = 2


def share_unit(base: float, source: float) -> float:
    """Return m(source) - m(base), the unit of shares; NaN if it is too small for shares."""
    gap = source - base
    return gap if abs(gap) > UNDEFINED * max(1.0, abs(base), abs(source)) else float("nan")


class RankedCell(NamedTuple):
    """A patched cell with its share.

    Attributes:
        site: "state", "attention", "mlp" or "head".
        layer: Number of the layer.
        token: Position of the token; None for a head, which is patched at all of them.
        head: Number of the head; None at other sites.
        share: Share of the difference of the two runs.
    """

    site: str
    layer: int
    token: int | None
    head: int | None
    share: float


class CheckedCell(NamedTuple):
    """A cell whose estimate was checked by patching it.

    Attributes:
        site: "state", "attention", "mlp" or "head".
        layer: Number of the layer.
        token: Position of the token; None for a head.
        head: Number of the head; None at other sites.
        estimate: Share by the first-order estimate.
        exact: Share by patching.
        chosen: "largest", or "random" among the rest.
    """

    site: str
    layer: int
    token: int | None
    head: int | None
    estimate: float
    exact: float
    chosen: str


class Patching(Explanation):
    """Shares of the difference between a clean and a corrupt run that single cells carry.

        share = (m(patched) - m(base)) / (m(source) - m(base))

    With direction "denoise" the base is the corrupt run and the source the clean run; with "noise" the
    reverse. 1: the cell alone turns the base's answer into the source's. 0: it changes nothing. Shares need
    not sum to 1. NaN: the runs do not differ in the target, see `.raw`.

    Args:
        raw: By site, m(patched) - m(base), in units of the target: [layer, token], of "head" [layer, head].
        direction: "denoise" or "noise".
        clean: The target, less its foil, in the clean run.
        corrupt: The same in the corrupt run.
        clean_tokens: Tokens of the clean text.
        corrupt_tokens: Tokens of the corrupt text.
        differs: Positions of the tokens in which they differ.
        target: Name of the target.
        foil: Name of the foil, or None.
        estimate: Whether the numbers are first-order estimates.
        checked: Cells whose estimates were checked.
        pair: The runs, for views that patch more of them; not saved.
        **common: See `Explanation`.

    Raises:
        ValueError: If shapes and labels do not match, or an estimate has no checked cells.
    """

    kind = "Patching"
    viewed_by = "circuits.patch_view:PatchView"
    raw: Mapping[str, Array]
    direction: Direction
    clean: float
    corrupt: float
    clean_tokens: tuple[str, ...]
    corrupt_tokens: tuple[str, ...]
    differs: tuple[int, ...]
    target: str
    foil: str | None
    estimate: bool
    checked: tuple[CheckedCell, ...]
    pair: PatchedPair | None

    def __init__(
        self,
        raw: Mapping[str, Any],
        *,
        direction: Direction,
        clean: float,
        corrupt: float,
        clean_tokens: Sequence[str],
        corrupt_tokens: Sequence[str],
        differs: Sequence[int],
        target: str,
        foil: str | None = None,
        estimate: bool = False,
        checked: Sequence[CheckedCell] = (),
        pair: PatchedPair | None = None,
        method: str = "circuits.patch",
        unit: str = "token",
        **common: Any,
    ) -> None:
        require_choice("direction", direction, DIRECTIONS)
        arrays = {site: read_only(np.array(as_floats(values, "float64"))) for site, values in raw.items()}
        layers = {len(values) for values in arrays.values()}
        for site, values in arrays.items():
            fits = values.ndim == _TWO and (site == "head" or values.shape[1] == len(clean_tokens))
            if not fits or len(layers) != 1 or len(clean_tokens) != len(corrupt_tokens):
                raise ValueError(f"raw[{site!r}] has shape {values.shape}, which does not fit its labels.")
        if not arrays:
            raise ValueError("raw holds no site.")
        if estimate and not checked and any(np.nan_to_num(values).any() for values in arrays.values()):
            raise ValueError("checked is empty: an estimate is shown with places that were checked.")
        self._set_common(method=method, unit=unit, **({"dtype": "float64"} | common))
        self._set(
            raw=MappingProxyType(arrays),
            direction=direction,
            clean=float(clean),
            corrupt=float(corrupt),
            clean_tokens=tuple(clean_tokens),
            corrupt_tokens=tuple(corrupt_tokens),
            differs=tuple(int(differ) for differ in differs),
            target=target,
            foil=foil,
            estimate=bool(estimate),
            checked=tuple(CheckedCell(*cell) for cell in checked),
            pair=pair,
        )

    # Numbers

    @property
    def base(self) -> float:
        """The target in the run that is changed."""
        return self.corrupt if self.direction == "denoise" else self.clean

    @property
    def source(self) -> float:
        """The target in the run that the activations come from."""
        return self.clean if self.direction == "denoise" else self.corrupt

    @property
    def gap(self) -> float:
        """m(source) - m(base); NaN if it is too small for shares."""
        return share_unit(self.base, self.source)

    @property
    def values(self) -> Mapping[str, Array]:  # type: ignore[override]  # an array for each site
        """Shares by site [layer, token]; layer l of "state" is block l's input. Heads are in `.heads`."""
        return MappingProxyType({site: self._shares(site) for site in self.raw if site != "head"})

    @property
    def heads(self) -> Array | None:
        """Shares of the outputs of heads, at all tokens [layer, head]; None if they were not patched."""
        return self._shares("head") if "head" in self.raw else None

    def _shares(self, site: str) -> Array:
        return read_only(self.raw[site] / self.gap + 0.0)  # no negative zeros

    @property
    def sites(self) -> tuple[str, ...]:
        """The patched sites."""
        return tuple(self.raw)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("site", "layer", "token")."""
        return ("site", "layer", "token")

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of sites, layers and tokens."""
        return (len(self.raw), len(next(iter(self.raw.values()))), len(self.clean_tokens))

    @property
    def agreement(self) -> float:
        """Pearson correlation of estimates with exact shares over checked cells; NaN without any."""
        pairs = np.array([(cell.estimate, cell.exact) for cell in self.checked]).reshape(-1, _TWO)
        constant = len(pairs) < _TWO or bool((pairs == pairs[0]).all(axis=0).any())
        return float("nan") if constant else float(np.corrcoef(pairs.T)[0, 1])

    def top(self, site: str | int | None = None, k: int | None = 10) -> list[RankedCell]:
        """Return the cells with the largest shares by size, the largest first.

        Args:
            site: A site of `.sites`; by default the cells of all sites. May be left out: `.top(3)`.
            k: Largest number of cells; None: all.

        Raises:
            ValueError: If the site was not patched, or `k` is below 1.
        """
        given: tuple[Any, Any] = site, k
        if isinstance(given[1], str):
            deprecated('Patching.top("head", 5) takes the site first now')
            given = given[1], given[0]
        site, k = ranking(*given)
        if site is not None:
            require_choice("site", site, self.sites)
        cells = [
            RankedCell(
                name, layer, None if name == "head" else at, at if name == "head" else None, float(share)
            )
            for name in self.sites
            if site in (None, name)
            for (layer, at), share in np.ndenumerate(self._shares(name))
            if not np.isnan(share)
        ]
        return at_most(sorted(cells, key=lambda cell: -abs(cell.share)), k)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if len(self.raw) > 1:
            raise TypeError("Patching has an array for each site: .values[site], .heads.")
        return np.array(self._shares(self.sites[0]), dtype=dtype, copy=copy)

    # Display

    @property
    def title(self) -> str:
        """The target, the direction, and whether the numbers are estimates."""
        contrast = "" if self.foil is None else f" rather than {self.foil}"
        title = f"{self.direction}: share of {self.target}{contrast} ({self.corrupt:.3g} to {self.clean:.3g})"
        if self.estimate:
            title += f", estimated; r {self.agreement:.2f} on {len(self.checked)} checked places"
        return ", ".join([title, *self._short_steps()])

    def _remarks(self) -> list[str]:
        best = self.top(1)
        return ([f"most in {said(best[0])}"] if best else []) + super()._remarks()

    def _columns(self) -> Iterator[Columns]:
        """Yield site, layer, token, its strings in both texts, head, share, raw."""
        for site, raw in self.raw.items():
            layer, at = (index.reshape(-1) for index in np.indices(raw.shape))
            of_head = site == "head"
            nothing = [None] * raw.size
            yield {
                "site": [site] * raw.size,
                "layer": layer,
                "token": nothing if of_head else list(at),
                "clean": nothing if of_head else [self.clean_tokens[i] for i in at],
                "corrupt": nothing if of_head else [self.corrupt_tokens[i] for i in at],
                "head": list(at) if of_head else nothing,
                "share": self._shares(site).reshape(-1),
                "raw": raw.reshape(-1),
            }

    def figure(self, site: str | None = None, *, title: str | None = None) -> Figure:
        """Return a matplotlib figure: layers x tokens of every site, and layers x heads.

        Args:
            site: A site of `.sites`; all by default.
            title: Heading; by default target, direction and both runs.

        Raises:
            ValueError: If the site was not patched.
        """
        from attnwidgets.circuits.pictures import patching_figure

        if site is not None:
            require_choice("site", site, self.sites)
        return patching_figure(self, self.sites if site is None else (site,), title=title)

    def _png(self) -> dict[str, Any]:
        import base64

        from attnwidgets.figures.maps import small_png

        return {"image/png": base64.b64encode(small_png(self.figure())).decode("ascii")}

    # Files

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays."""
        labels = {name: getattr(self, name) for name in _LABELS}
        for name in ("clean_tokens", "corrupt_tokens", "differs"):
            labels[name] = list(labels[name])
        labels |= {"checked": [list(cell) for cell in self.checked], "sites": list(self.sites)}
        return self._describe_common() | labels, {f"raw_{site}": self.raw[site] for site in self.sites}

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the patching that `to_description` described."""
        labels = {name: described[name] for name in _LABELS}
        checked = [CheckedCell(*cell) for cell in described["checked"]]
        raw = {site: arrays[f"raw_{site}"] for site in described["sites"]}
        return cls(raw, **labels, checked=checked, **restore_common(described))


def said(cell: RankedCell) -> str:
    """Return a cell in words: "head 23.4 (0.93)"."""
    name = f"head {cell.layer}.{cell.head}" if cell.head is not None else f"{cell.site} {cell.layer}"
    where = "" if cell.token is None else f" at token {cell.token}"
    return f"{name}{where} ({cell.share:.2f})"
