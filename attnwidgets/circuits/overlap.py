"""aw.circuits.overlap: which components two tasks share, and how many chance would share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnwidgets.circuits.patching import Patching


class Overlap(NamedTuple):
    """Heads that are among the largest of both tasks.

    Attributes:
        shared: (layer, head) of those in both, the largest together first.
        size: Number of heads selected for each task.
        heads: Number of heads of the model.
        expected: How many of two sets drawn by chance would be in both.
        p: Probability that chance shares this number or more.
    """

    shared: tuple[tuple[int, int], ...]
    size: int
    heads: int
    expected: float
    p: float


def overlap(first: Any, second: Any, *, top: float = 0.02) -> Overlap:
    """Return which heads are among the largest of two tasks, and how many by chance.

    The p value is hypergeometric: two sets of `size` heads drawn independently. Heads that serve
    any task, such as late ones that sharpen every answer, are shared by all: compare with a third, unrelated
    task before you speak of reuse.

    Args:
        first: Result of `aw.circuits.patch(...)` with site "head"; or shares [layer, head].
        second: The same of another task, by the same model.
        top: Share of the heads that is selected for each, by size; or their number, from 1 on.

    Returns:
        Overlap: `.shared`, `.size`, `.heads`, `.expected`, `.p`.

    Raises:
        ValueError: If shapes differ, or `top` is neither a share nor a number of heads.

    Source: Merullo et al. 2024, Circuit Component Reuse Across Tasks, section 4 (the top 2 % of heads).

    Example:
        >>> first, second = np.zeros((2, 10, 10))
        >>> first[0, :3] = second[0, 1:4] = 1
        >>> overlap = aw.circuits.overlap(first, second, top=3)
        >>> overlap.shared, round(overlap.expected, 2), round(overlap.p, 4)
        (((0, 1), (0, 2)), 0.09, 0.0018)
    """
    from scipy.stats import hypergeom

    sizes = [np.abs(_heads(shares, name)) for shares, name in ((first, "first"), (second, "second"))]
    if sizes[0].shape != sizes[1].shape:
        raise ValueError(f"first has heads {sizes[0].shape} and second {sizes[1].shape}: not of one model.")
    defined = ~np.isnan(sizes[0]) & ~np.isnan(sizes[1])
    n = int(defined.sum())
    whole = isinstance(top, (int, np.integer)) and not isinstance(top, bool)
    count = int(top) if whole else max(1, round(float(top) * n)) if 0 < top < 1 else 0
    if not 1 <= count <= n:
        raise ValueError(
            f"top must be a share between 0 and 1, or a number of heads from 1 to {n}, not {top!r}."
        )
    chosen = [
        set(np.argsort(-np.where(defined, size, -1.0).reshape(-1), kind="stable")[:count]) for size in sizes
    ]
    both = sizes[0].reshape(-1) + sizes[1].reshape(-1)
    shared = sorted(chosen[0] & chosen[1], key=lambda index: -both[index])
    width = sizes[0].shape[1]
    return Overlap(
        tuple((int(index) // width, int(index) % width) for index in shared),
        count,
        n,
        count * count / n,
        float(hypergeom.sf(len(shared) - 1, n, count, count)),
    )


def _heads(shares: Any, name: str) -> np.ndarray:
    heads = shares.heads if isinstance(shares, Patching) else np.asarray(shares, dtype=np.float64)
    if heads is None:
        raise ValueError(f'{name} has no heads: aw.circuits.patch(..., sites="head").')
    if heads.ndim != 2:  # noqa: PLR2004 - [layer, head]
        raise ValueError(f"{name} has shape {heads.shape}; it is [layer, head].")
    return np.asarray(heads, dtype=np.float64)
