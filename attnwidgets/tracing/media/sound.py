"""Sound as it was given, and how much of it the model heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Sound:
    """A recording, as it was given.

    Args:
        wave: Samples [time], float32; sound is between -1 and 1.
        rate: Samples in a second.
        heard: Seconds from the beginning that the model read; what follows was cut off.
        hop: Samples from one frame of the model's spectrogram to the next; None if it reads the samples.
    """

    wave: NDArray[np.float32]
    rate: int
    heard: float
    hop: int | None = None

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return len(self.wave) / self.rate

    def __repr__(self) -> str:
        cut = f", of which the model read {self.heard:.2f} s" if self.heard < self.seconds else ""
        return f"<Sound of {self.seconds:.2f} s at {self.rate:,} Hz{cut}>"
