"""The view that steers a feature of an SAE and compares the model's predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.features.feature_view import FeatureView
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer

LOW, HIGH = -2.0, 5.0
"""Ends of the slider, in units of the feature's largest activation."""
_HELD = (-2, -1, 0, 0.5, 1, 1.5, 2, 3, 4, 5)
_HELD_TEXTS = (0, 1, 2)


class SteerView(FeatureView):
    """A slider for a feature, and the model's predictions before and after it is moved.

    The feature is clamped to a multiple of its largest activation, and the SAE's reconstruction error stays
    (see `aw.steer`): 0 ablates the feature, 1 is its maximum on the corpus; small models fall apart beyond 2.
    Next to the slider is the change of the states relative to their length, with a warning if they leave the
    range that the model knows. The view compares the distribution over classes or next tokens, generated text
    (greedy, with different words marked), or, for an encoder that predicts nothing, the nearest of some
    sentences.

    The model runs when the slider rests, but never while a cell runs; only the latest request counts, and a
    running request can be cancelled. A change in behaviour is convincing, but it does not prove that the
    model uses the feature in this way.

    Args:
        shown: A trace; or a model, with `tokenizer` and `text`.
        sae: Anything `aw.SAE.from_object` takes.
        feature: Feature that is steered until the reader chooses another, here or in a linked view; None: the
            selected feature, or that which fires most in the text.
        tokenizer: Tokenizer of a model given instead of a trace.
        text: Text for a model given instead of a trace.
        stats: The result of `aw.feature_stats` for the SAE: its maxima and names.
        maximum: The activation that a scale of 1 means, instead of the maximum of the statistics or the SAE.
        positions: Which tokens are steered, as in `aw.steer`; None: all.
        skip_special: A tokenizer or ids whose special tokens are left alone, as in `aw.steer`; None: none.
        site: Hook point of the states, as in `aw.steer`; None: that of the SAE.
        sentences: Texts to compare with; by default those of `aw.demo_texts("test")`.
        max_new_tokens: Number of tokens generated.

    Raises:
        ValueError: The feature's maximum is unknown, or the SAE belongs to another model or site.
        IndexError: The feature is out of range.
    """

    _VIEW = "SteerView"
    NEEDS = Needs(("steer",), typed_texts=False)
    _HEIGHT = 420

    def __init__(
        self,
        shown: Any,
        sae: Any,
        feature: int | None = None,
        *,
        tokenizer: Any = None,
        text: Any = None,
        stats: Any = None,
        maximum: Any = None,
        positions: Any = None,
        skip_special: Any = None,
        site: str | None = None,
        sentences: Sequence[str] | None = None,
        max_new_tokens: int = 30,
        page: Iterable[int] | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        from attnwidgets.demo.texts import demo_texts
        from attnwidgets.sae.features import sae_features
        from attnwidgets.sae.sae import as_sae
        from attnwidgets.sae.steering.steering_effects import Steered

        trace = shown if is_trace(shown) else _traced(shown, tokenizer, text)
        sae = as_sae(sae)
        given_maximum = stats if maximum is None else maximum
        if given_maximum is None and sae.maxima is None:
            raise ValueError(
                "SteerView(): the features' largest activations are unknown; pass "
                "stats=aw.feature_stats(...), or maximum=, the activation that a scale of 1 means."
            )
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}.")
        self._steered = Steered(
            trace,
            sae,
            maximum=given_maximum,
            positions=positions,
            skip_special=skip_special,
            site=site,
            sentences=[demo_text.text for demo_text in demo_texts("test")]
            if sentences is None
            else sentences,
            max_new_tokens=max_new_tokens,
        )
        activations = sae_features(trace, sae, site=site)
        self._feature = feature
        if feature is not None:
            activations.feature(feature)  # raises for a number out of range
        super().__init__(activations, stats=stats, page=page, **options)

    def _feature_options(self) -> dict[str, Any]:
        return super()._feature_options() | {
            "kinds": list(self._steered.kinds),
            "steered": self._feature,
            "predicted": self._steered.trace.predictions_title,
            "ends": [LOW, HIGH],
            "held": {kind: list(_scales(kind)) for kind in self._steered.kinds},
        }

    def _handlers(self) -> Mapping[str, Handler]:
        names = {name: handler for name, handler in super()._handlers().items() if name == "name"}
        return {
            **names,
            "reach": Handler(
                self._reach, runs_model=True, for_page=self._reach_for_page, prefetched=self._reach_for_page
            ),
            "steered": Handler(
                self._comparison, runs_model=True, for_page=self._for_page, prefetched=self._opening
            ),
        }

    def _opening_feature(self) -> int:
        if self._feature is not None:
            return self._feature
        return self._features.first if self.selection.feature is None else self.selection.feature

    def _reach_for_page(self) -> Iterable[Mapping[str, Any]]:
        return [{"feature": self._opening_feature()}]

    def _opening(self) -> Iterable[Mapping[str, Any]]:
        """Return the request at the slider's start; none for text, which takes long to generate."""
        kind = next(iter(self._steered.kinds), "text")
        return [] if kind == "text" else [{"kind": kind, "feature": self._opening_feature(), "scale": 1}]

    def _for_page(self) -> Iterator[Mapping[str, Any]]:
        for kind in self._steered.kinds:
            for scale in _scales(kind):
                # As the browser writes numbers: 1, not 1.0.
                yield {"kind": kind, "feature": self._opening_feature(), "scale": scale}

    def _reach(self, feature: int) -> Answer:
        """Answer with the activation that a scale of 1 means, and with how far states can move.

        Both buffers are float32 [steered token]: the feature's activations, and the relative change of a
        state for an activation of 1.
        """
        reach = self._steered.reach(self._features.saes[0].check_feature(feature))
        buffers = (reach.activations, reach.lengths)
        return {"maximum": reach.maximum}, [values.astype("<f4").tobytes() for values in buffers]

    def _comparison(self, kind: str, feature: int, scale: float) -> Answer:
        """Answer with the relative change of states, and texts as runs or rows [label, before, after]."""
        from attnwidgets.sae.steering.steering_effects import differing, side_by_side

        if not LOW <= scale <= HIGH:
            raise ValueError(f"scale={scale} is out of range: the slider goes from {LOW:g} to {HIGH:g}.")
        number = self._features.saes[0].check_feature(feature)
        before, after, steering = self._steered.compare(str(kind), number, float(scale))
        meta: dict[str, Any] = {"change": steering.relative_change}
        if kind == "text":
            meta["texts"] = [[list(run) for run in side] for side in differing(before, after)]
        else:
            meta["rows"] = [
                [self._steered.label(kind, i), float(before[i]), float(after[i])]
                for i in side_by_side(before, after)
            ]
        return meta, []

    def describe(self) -> str:
        """Return in a sentence to which activation the feature is set; no model runs for it."""
        feature, activations = self._opening_feature(), self.activations[0]
        largest = float(np.max(activations.feature(feature).values, initial=0.0))
        words = (
            f"Feature {feature} is set to {self._steered.maximum(feature):.3g}, its maximum, on every token"
        )
        return f"{words}; in this text it is at most {largest:.3g}."

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.predictions import steer_sheet

        return steer_sheet(self, theme)

    def _preview(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.features import strip_sheet

        return strip_sheet(self, theme)  # the comparison runs the model


def _scales(kind: str) -> tuple[float, ...]:
    """Return the scales of the slider that a page holds."""
    return _HELD_TEXTS if kind == "text" else _HELD


def _traced(model: Any, tokenizer: Any, text: Any) -> Any:
    if text is None:
        raise TypeError(
            "SteerView() takes a trace from aw.trace, or a model with tokenizer= and text=: "
            'aw.SteerView(model, sae, feature, tokenizer=tokenizer, text="...").'
        )
    from attnwidgets.tracing.recording.run import trace

    return trace(model, tokenizer, text)
