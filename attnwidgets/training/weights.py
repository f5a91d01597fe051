"""The single model of a run, into which the weights of a step are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.content import weights_fingerprint_of
from attnwidgets.training.reading import require_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.training.reading import Checkpoint


class Weights:
    """A model, and the checkpoints that can be loaded into it.

    Attributes:
        steps: The steps, ascending.
        loaded: The step whose weights the model has; None: none yet.
        digests: Hashes of the weights that were loaded, by step.
        gaps: The first parameter that is not finite, by step, of the checkpoints that were loaded.
    """

    def __init__(self, checkpoints: Sequence[Checkpoint]) -> None:
        self._checkpoints = {checkpoint.step: checkpoint for checkpoint in checkpoints}
        self.steps = tuple(self._checkpoints)
        self.loaded: int | None = None
        self.digests: dict[int, str] = {}
        self.gaps: dict[int, str] = {}
        self._model: Any = None

    def at(self, step: int) -> Any:
        """Return the model with the weights of a step.

        Raises:
            ValueError: If the step is not of this run, its weights are not finite, or they are of a model of
                another shape.
        """
        if step not in self._checkpoints:
            raise ValueError(f"step {step!r} is not one of {', '.join(map(str, self.steps))}.")
        if not self.are_finite(step):
            raise ValueError(f"the weights of step {step} are not finite, first {self.gaps[step]!r}.")
        return self._model

    def are_finite(self, step: int) -> bool:
        """Load a step; return whether its weights are finite."""
        if step not in self.gaps and step != self.loaded:
            self._load(self._checkpoints[step])
        return step not in self.gaps

    def _load(self, checkpoint: Checkpoint) -> None:
        import torch

        if self._model is None:
            self._model = self._checkpoints[self.steps[0]].build()
        self.loaded = None
        state = checkpoint.state()
        expected = self._model.state_dict()
        # Parameters that share their numbers may be stored once.
        read = {expected[name].data_ptr() for name in state if name in expected}
        sizes = {name: tuple(value.shape) for name, value in expected.items()}
        shared = {name: sizes[name] for name, value in expected.items() if value.data_ptr() in read}
        shapes = shared | {name: tuple(value.shape) for name, value in state.items()}
        require_sizes(self.steps[0], sizes, checkpoint.step, shapes)
        not_finite = (name for name, value in state.items() if not bool(torch.isfinite(value).all()))
        if (broken := next(not_finite, None)) is not None:
            self.gaps[checkpoint.step] = broken
            return
        self._model.load_state_dict(state, strict=False)
        self.loaded = checkpoint.step
        self.digests[checkpoint.step] = weights_fingerprint_of(self._model)
