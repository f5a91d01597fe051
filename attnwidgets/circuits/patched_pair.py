"""What a patching was made of, so that more of the same pair of runs can be patched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.circuits.patch import PatchedCells
    from attnwidgets.circuits.patching import Direction, Patching
    from attnwidgets.intervene.activation_sites import Site
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class PatchedPair:
    """Two runs, and the target that is read of them.

    Attributes:
        clean: The trace of the clean text.
        corrupt: The trace of the corrupt one.
        stack: The stack whose activations are patched.
        target: The target, as it was given.
        foil: What it is contrasted with, as it was given.
    """

    clean: Trace
    corrupt: Trace
    stack: str
    target: Any
    foil: Any

    def patch(self, sites: Sequence[Site], direction: Direction, *, estimate: bool) -> Patching:
        """Patch the same pair in another direction, or estimate it; see `aw.circuits.patch`."""
        from attnwidgets.circuits.patch import patch

        made: Any = patch(
            self.clean,
            self.corrupt,
            self.target,
            foil=self.foil,
            sites=sites,
            how=direction,
            estimate=estimate,
            stack=self.stack,
        )
        return made

    def patch_cells(self, cells: Sequence[tuple[Any, ...]], direction: Direction) -> PatchedCells:
        """Patch several places at once; see `aw.circuits.patch_cells`."""
        from attnwidgets.circuits.patch import patch_cells

        return patch_cells(
            self.clean,
            self.corrupt,
            cells,
            self.target,
            foil=self.foil,
            how=direction,
            stack=self.stack,
        )
