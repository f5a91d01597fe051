"""A model's numeric input as elements: the pixels of a picture, or the cells of a spectrogram.

Both are planes [row, column]. Their elements are a unit of the plane ("pixel"; "bin" for bands and columns
of a spectrogram), and the patches or frames of the trace are sums over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._selecting import listed
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.attribution.embedding_gradients import Reduce
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

At = Literal["embedding", "input"]
AT: tuple[At, ...] = ("embedding", "input")
_PICTURES, _SPECTRA = "pixel_values", "input_features"
_FINE = ("pixel", "bin")
"""Units of the planes' elements."""


@dataclass(frozen=True)
class InputPlane:
    """The plane of numbers that a model reads, and the stack of a trace whose tokens are parts of it.

    Args:
        name: Name of the model's input.
        stack: The stack.
        unit: "pixel" or "bin".
        shape: Rows and columns. Of a spectrogram, rows are its bands, the lowest first.
        part: The token that every cell of the plane belongs to [row, column]; -1 where none reads it.
    """

    name: str
    stack: str
    unit: str
    shape: tuple[int, int]
    part: NDArray[np.intp]

    def over_tokens(self, values: Float, count: int) -> Float:
        """Return sums over the cells of every token [target, token] of values [target, row, column]."""
        sums = np.zeros((len(values), count))
        is_read = self.part >= 0
        for row, plane in zip(sums, values, strict=True):
            np.add.at(row, self.part[is_read], plane[is_read])
        return sums

    def axis(self, trace: Trace) -> TokenAxis:
        """Return the axis of the plane's cells, with the unit of the trace's tokens that they belong to."""
        rows, columns = self.shape
        count = rows * columns
        cells = tuple(range(count))
        labels = tuple("{},{}".format(*divmod(cell, columns)) for cell in cells)
        fine = Unit(
            self.unit,
            labels,
            tuple((cell,) for cell in cells),
            (False,) * count,
            grid=self.shape,
            cells=cells,
        )
        units = {self.unit: fine}
        order = np.argsort(self.part, axis=None, kind="stable")
        owners = self.part.reshape(-1)[order]
        if len(owners) and owners[0] >= 0:  # every cell belongs to a token
            starts = np.flatnonzero(np.diff(owners, prepend=-1))
            spans = tuple(tuple(map(int, part)) for part in np.split(order, starts[1:]))
            whole = trace.axes(self.stack)[0].units["patch" if self.unit == "pixel" else "frame"]
            tokens = [int(owner) for owner in owners[starts]]
            units[whole.name] = Unit(
                whole.name,
                tuple(whole.labels[i] for i in tokens),
                spans,
                tuple(whole.special[i] for i in tokens),
                grid=whole.grid,
                times=None if whole.times is None else tuple(whole.times[i] for i in tokens),
                cells=None if whole.cells is None else tuple(whole.cells[i] for i in tokens),
            )
        return TokenAxis(labels, units)


def input_plane(trace: Trace) -> InputPlane | None:
    """Return the plane that a trace's model reads; None for any other input.

    The input is a plane if it is a single picture whose patches are units of the trace, or a spectrogram
    whose frames have times in the trace.
    """
    for stack in trace.stacks:
        if stack == "cross":
            continue
        units = trace.axes(stack)[0].units
        pixels, features = trace.inputs.get(_PICTURES), trace.inputs.get(_SPECTRA)
        patches, frames = units.get("patch"), units.get("frame")
        if pixels is not None and pixels.dim() == 4 and patches is not None and patches.grid is not None:  # noqa: PLR2004 - batch, channel, row, column
            return InputPlane(
                _PICTURES, stack, "pixel", tuple(pixels.shape[-2:]), _patch_of(patches, *pixels.shape[-2:])
            )
        if features is not None and features.dim() == 3 and frames is not None and frames.times is not None:  # noqa: PLR2004 - batch, band, frame
            bands, columns = _bands_first(trace, features).shape[-2:]
            part = np.broadcast_to(np.arange(columns) * len(frames) // columns, (bands, columns))
            return InputPlane(_SPECTRA, stack, "bin", (bands, columns), part)
    return None


def _patch_of(unit: Unit, high: int, wide: int) -> NDArray[np.intp]:
    """Return the patch that every pixel [row, column] belongs to."""
    rows, columns = unit.grid or (1, 1)
    patches = np.full(rows * columns, -1)
    for number, cell in enumerate(unit.cells or ()):
        if cell is not None:
            patches[cell] = number
    return patches[(np.arange(high) * rows // high)[:, None] * columns + np.arange(wide) * columns // wide]


def _bands_first(trace: Trace, features: Tensor) -> Tensor:
    """Return a spectrogram [..., band, column], which some families read the other way round."""
    from attnwidgets.tracing.recording.borrow import unwrap

    bands = getattr(getattr(unwrap(trace.model), "config", None), "num_mel_bins", None)
    swapped = bands is not None and features.shape[-1] == bands != features.shape[-2]
    return features.transpose(-1, -2) if swapped else features


def plane_values(trace: Trace, plane: InputPlane, values: Tensor, reduce: Reduce) -> Float:
    """Return values of a model's input [batch, ...] as a number for every cell [batch, row, column]."""
    from attnwidgets.explanations.attribution.embedding_gradients import reduce_dimensions

    colours = plane.unit == "pixel"
    channels_last = values.movedim(1, -1) if colours else _bands_first(trace, values)[..., None]
    reduced: Float = reduce_dimensions(channels_last, reduce).double().cpu().numpy()
    return reduced


def require_plane(trace: Trace, purpose: str, inputs: Iterable[str] = ()) -> InputPlane:
    """Return the plane that a trace's model reads, or raise a ValueError that names its input."""
    plane = input_plane(trace)
    if plane is None:
        read = listed(inputs or trace.inputs)
        raise ValueError(
            f'{purpose}: at="input" reads pictures, by patches, and spectrograms, by frames, and this model '
            f'reads {read}; use at="embedding" (of lrp, at="block"), the input of the first block.'
        )
    return plane


def reads_only_input(trace: Trace) -> bool:
    """Return whether a trace has no embeddings of tokens, as of a convolutional model."""
    return not any(table.layers for table in trace.stack_table.values()) and _PICTURES in trace.inputs


def plane_attributions(
    trace: Trace,
    plane: InputPlane,
    values: Float,
    targets: Any,
    common: dict[str, Any],
    unit: Any,
    **more: Any,
) -> Attributions:
    """Return values of the cells of a plane [target, row, column] as Attributions.

    Over the trace's tokens, by sums, or with unit "pixel" or "bin" over the cells themselves.
    """
    from attnwidgets.explanations.attribution.embedding_gradients import target_attributions
    from attnwidgets.explanations.results.attributions import Attributions

    common = common | {"stack": plane.stack}
    if unit in _FINE:
        if unit != plane.unit:
            raise ValueError(f"unit {unit!r} is of another input: here the elements are {plane.unit}s.")
        return Attributions(
            targets.of(values.reshape(len(values), -1)),
            axis=plane.axis(trace),
            unit=plane.unit,
            residual=more.get("residual"),
            **targets.names(),
            **common,
        )
    sums = plane.over_tokens(values, len(trace.axes(plane.stack)[0]))
    whole = "patch" if plane.unit == "pixel" else "frame"
    return target_attributions(trace, plane.stack, sums, targets, common, unit=unit or whole, **more)
