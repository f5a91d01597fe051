"""SteerView: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.accepts import is_trace
from attnwidgets.views.features.feature_view import FeatureView
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer

LOW, HIGH = -2.0, 5.0
"""Ends of the slider, in units of the feature's largest activation."""
_HELD = (-2, -1, 0, 0.5, 1, 1.5, 2, 3, 4, 5)
_HELD_TEXTS = (0, 1, 2)


class SteerView(FeatureView):
    """A slider for one feature, and what the model says before and after it is moved.

    The feature is clamped to a multiple of its largest activation, with what the SAE does not explain kept
    (see `aw.steer`): 0 ablates it, 1 is the most it ever was on the corpus; small models fall apart beyond 2.
    Beside the slider stands by how much of their own length the states change, with a warning where that
    leaves what the model knows. Compared are the distribution over classes or next tokens, generated text
    (greedy) with the words that differ marked, or, of an encoder that predicts nothing, the nearest of some
    sentences.

    The model is run when the slider rests, not while a cell runs; the latest wish wins and a running one can
    be cancelled. That behaviour changes convinces, and does not prove that the model uses the feature so.

    Args:
        shown: A trace; or a model, with `tokenizer` and `text`.
        sae: Anything `aw.SAE.from_object` takes.
        feature: Feature that is steered; None: the one that fires most in the text. It follows linked views.
        tokenizer: Tokenizer of a model given instead of a trace.
        text: Text for a model given instead of a trace.
        stats: The result of `aw.feature_stats` for the SAE: its maxima and names.
        maximum: The activation that a scale of 1 means, instead of the one that statistics or SAE know.
        positions: Which tokens are steered, as in `aw.steer`; None: all.
        skip_special: A tokenizer or ids whose special tokens are left alone, as in `aw.steer`; None: none.
        site: Hook point of the states, as in `aw.steer`; None: the SAE's own.
        sentences: Texts to compare with; by default those of `aw.demo_texts("test")`.
        max_new_tokens: Number of tokens generated.

    Raises:
        ValueError: The feature's maximum is not known, or the SAE belongs to another model or site.
        IndexError: There is no such feature.
    """

    _VIEW = "SteerView"
    PARTS = ("steer",)

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
        from attnwidgets.demo.sentiment import demo_texts
        from attnwidgets.sae.features import sae_features
        from attnwidgets.sae.sae import as_sae
        from attnwidgets.sae.steering.steering_effects import Steered

        trace = shown if is_trace(shown) else _traced(shown, tokenizer, text)
        sae = as_sae(sae)
        known = stats if maximum is None else maximum
        if known is None and sae.maxima is None:
            raise ValueError(
                "SteerView(): the features' largest activations are not known; pass "
                "stats=aw.feature_stats(...), or maximum=, the activation that a scale of 1 means."
            )
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}.")
        self._steered = Steered(
            trace,
            sae,
            maximum=known,
            positions=positions,
            skip_special=skip_special,
            site=site,
            sentences=[one.text for one in demo_texts("test")] if sentences is None else sentences,
            max_new_tokens=max_new_tokens,
        )
        activations = sae_features(trace, sae, site=site)
        super().__init__(activations, stats=stats, feature=feature, page=page, **options)

    def _about_features(self) -> dict[str, Any]:
        held = {kind: list(self._scales(kind)) for kind in self._steered.kinds}
        return super()._about_features() | {
            "kinds": list(self._steered.kinds),
            "predicted": self._steered.trace.predictions_title,
            "ends": [LOW, HIGH],
            "held": held,
        }

    def _handlers(self) -> Mapping[str, Handler]:
        named = {name: topic for name, topic in super()._handlers().items() if name == "name"}
        return {
            **named,
            "reach": Handler(self._reach, runs_model=True, for_page=self._reached, prefetched=self._reached),
            "steered": Handler(
                self._compared, runs_model=True, for_page=self._for_page, prefetched=self._opening
            ),
        }

    def _opened(self) -> int:
        return self._features.first if self.selection.feature is None else self.selection.feature

    def _reached(self) -> Iterable[Mapping[str, Any]]:
        return [{"feature": self._opened()}]

    def _opening(self) -> Iterable[Mapping[str, Any]]:
        """Return the question at the slider's start; text takes long to generate and is asked for later."""
        kind = next(iter(self._steered.kinds), "text")
        return [] if kind == "text" else [{"kind": kind, "feature": self._opened(), "scale": 1}]

    @staticmethod
    def _scales(kind: str) -> tuple[float, ...]:
        return _HELD_TEXTS if kind == "text" else _HELD

    def _for_page(self) -> Iterator[Mapping[str, Any]]:
        for kind in self._steered.kinds:
            for scale in self._scales(kind):
                # As the browser writes numbers: 1, not 1.0.
                yield {"kind": kind, "feature": self._opened(), "scale": scale}

    def _reach(self, feature: int) -> Answer:
        reach = self._steered.reach(_checked(feature, self._features.saes[0].d_sae))
        return {"maximum": reach.maximum}, [
            reach.activations.astype("<f4").tobytes(),
            reach.lengths.astype("<f4").tobytes(),
        ]

    def _compared(self, kind: str, feature: int, scale: float) -> Answer:
        from attnwidgets.sae.steering.steering_effects import differing, side_by_side

        if not LOW <= scale <= HIGH:
            raise ValueError(f"scale={scale} is out of range: the slider goes from {LOW:g} to {HIGH:g}.")
        number = _checked(feature, self._features.saes[0].d_sae)
        before, after, steering = self._steered.compare(str(kind), number, float(scale))
        told: dict[str, Any] = {"change": steering.relative_change}
        if kind == "text":
            told["texts"] = [[list(run) for run in side] for side in differing(before, after)]
        else:
            told["rows"] = [
                [self._steered.label(kind, i), float(before[i]), float(after[i])]
                for i in side_by_side(before, after)
            ]
        return told, []


def _checked(feature: int, count: int) -> int:
    number = int(feature)
    if not 0 <= number < count:
        raise IndexError(f"there is no feature {number}; the features are 0 to {count - 1}.")
    return number


def _traced(model: Any, tokenizer: Any, text: Any) -> Any:
    if text is None:
        raise TypeError(
            "SteerView() takes what aw.trace returned, or a model with tokenizer= and text=: "
            'aw.SteerView(model, sae, feature, tokenizer=tokenizer, text="...").'
        )
    from attnwidgets.tracing.recording.run import trace

    return trace(model, tokenizer, text)
