"""The figure of an AudioView."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.parts.matrix import Scale
from attnwidgets.figures.parts.media import SoundMap
from attnwidgets.figures.sheet import Sheet
from attnwidgets.views.media.heard import ALIGNMENT
from attnwidgets.views.still.colours import map_colours

if TYPE_CHECKING:
    from attnwidgets.figures.theme import Theme


def audio_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the wave, the spectrogram, the words and the map of a sound, with its scale."""
    maps, trace = view._maps, view.trace  # noqa: SLF001 - a part of the view
    name, (label, _) = next(iter(maps.names.items()))
    heard = view._heard_at(name, maps.rows_of(name)[0])  # noqa: SLF001
    sound = trace.sound
    seconds = float(sound.heard)
    wave = sound.wave[: ceil(seconds * sound.rate)]
    spectrogram = None
    if sound.hop is not None and "input_features" in trace.inputs:
        features = np.asarray(trace.inputs["input_features"][0], dtype=np.float32)
        bins = features if features.shape[1] >= features.shape[0] else features.T
        spectrogram = bins[:, : ceil(seconds * sound.rate / sound.hop)]
    values = np.maximum(heard.values, 0) if name == ALIGNMENT else heard.values
    colours, norm = map_colours({}, theme, values, signed=bool((values < 0).any()))
    times = view._times  # noqa: SLF001
    words = [] if times is None else [tuple(word)[:3] for word in times]
    pinned = view.word()
    drawn = SoundMap(
        seconds=seconds,
        wave=wave,
        spectrogram=spectrogram,
        words=words,
        values=values,
        rows=heard.labels,
        step=heard.step,
        colours=colours,
        norm=norm,
        loudness=map_colours({}, theme, values, signed=False)[0],
        marked=None if pinned is None else (times.start[pinned], times.end[pinned]),
    )
    title = str(view.options["title"]) or label + view._layer_and_head(name)  # noqa: SLF001
    window = maps.frames.times[-1][1]
    note = f"{seconds:.2f} s of the {window:g} s window hold sound; the rest is padding, not drawn"
    return Sheet(title, [drawn, Scale(colours, norm, heard.measure)], note if window > seconds + 1 else "")
