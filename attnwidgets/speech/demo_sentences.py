"""Six spoken sentences, each with a word that sounds like another word, and a cue that tells them apart.

Written for this package, and spoken by eSpeak NG 1.52 (voice en-us, 140 words a minute): a synthetic voice.
The sound is compressed as in MP3: a modified discrete cosine transform of windows of 40 ms (Princen, Johnson
and Bradley 1987), whose coefficients are rounded after a power of 3/4, which rounds small coefficients less;
packed by LZMA. The error lies 32 dB below the sound. 51 kB instead of 320.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HOP = 320  # samples from one window to the next; each is twice as long
_STEP, _POWER = 0.005, 4 / 3
# The word in brackets is the cue, the last word the target; then its homophone and the number of windows.
_SENTENCES = """
The [postman] brought the mail. male 89
The [female] sees the male. mail 81
The [planet] circles the sun. son 92
The [pilot] landed the plane. plain 93
The [map] shows the route. root 77
She [combed] her hair. hare 70
"""


@dataclass(frozen=True)
class SpokenSentence:
    """A spoken sentence with a homophone.

    Attributes:
        text: The sentence.
        target: Number of the word that has a homophone, from 0.
        cue: Number of the word that tells which of the two it is, from 0.
        homophone: The other word.
        wave: The sound, float32 [sample] at 16 kHz, -1 to 1.
    """

    text: str
    target: int
    cue: int
    homophone: str
    wave: NDArray[np.float32] = field(repr=False, compare=False)


def demo_sentences() -> tuple[SpokenSentence, ...]:
    """Return six spoken English sentences whose last word is a homophone, which an earlier word decides.

    The voice is synthetic (eSpeak NG), 16 kHz, one to two seconds each. They are those of 38 sentences that
    Whisper tiny.en transcribes without an error.

    Returns:
        The sentences, each with the numbers of its target and its cue, and the word that the target might be.

    Example:
        >>> first = aw.speech.demo_sentences()[0]
        >>> first.text, first.target, first.cue, first.homophone, len(first.wave) / 16_000 < 2
        ('The postman brought the mail.', 4, 1, 'male', True)
    """
    packed = files("attnwidgets.speech").joinpath("homophones.xz").read_bytes()
    windows = np.frombuffer(lzma.decompress(packed), dtype=np.int8).reshape(-1, _HOP)
    result, first = [], 0
    for line in _SENTENCES.strip().splitlines():
        marked, homophone, count = line.rsplit(" ", 2)
        words = marked.split()
        cue = next(index for index, word in enumerate(words) if word.startswith("["))
        wave = unpacked(windows[first : first + int(count)])
        text = marked.replace("[", "").replace("]", "")
        result.append(SpokenSentence(text, len(words) - 1, cue, homophone, wave))
        first += int(count)
    return tuple(result)


def unpacked(windows: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the samples of rounded coefficients [window, frequency]; half of a window overlaps the next."""
    coefficients = np.sign(windows) * np.abs(windows.astype(float)) ** _POWER * _STEP
    halves = (coefficients @ basis().T).reshape(len(windows), 2, _HOP)
    wave = halves[:-1, 1] + halves[1:, 0]
    return wave.reshape(-1).astype(np.float32)


def basis() -> NDArray[np.float64]:
    """Return the windowed cosines of the transform [sample, frequency], two samples for a frequency."""
    sample = np.arange(2 * _HOP) + 0.5
    window = np.sin(np.pi * sample / (2 * _HOP))
    angles = np.pi / _HOP * (sample[:, None] + _HOP / 2) * (np.arange(_HOP) + 0.5)
    return window[:, None] * np.cos(angles) * np.sqrt(2 / _HOP)
