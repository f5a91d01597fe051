"""What becomes of a text when a feature is steered: predictions, generated text, nearest sentences."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attnwidgets._progress import progress
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.sae.check import site_of
from attnwidgets.sae.steering.steer import Steering, steer
from attnwidgets.tracing.hooks.hook import reading
from attnwidgets.tracing.precision import widened
from attnwidgets.tracing.predictions import spelled
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.borrow import borrowed, own_tokenizer, unwrap
from attnwidgets.tracing.recording.generation import greedy
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.recording.recorder import can_generate, forward_parameters
from attnwidgets.tracing.rerun_trace import own_logits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.trace import Trace

_BATCH = 16  # sentences read at once
_SHOWN = 8  # outcomes of either side


class Reach(NamedTuple):
    """How far a feature can be moved on a text.

    Attributes:
        maximum: The activation that a scale of 1 means.
        activations: Its activations on the tokens that are steered [token].
        lengths: By how much of their own length states change for one unit of activation [token].
    """

    maximum: float
    activations: NDArray[Any]
    lengths: NDArray[Any]

    def relative_change(self, scale: float) -> float:
        """Return |dh| / |h| where the feature is set to `scale` times its maximum, on average over tokens."""
        by = abs(scale * self.maximum - self.activations) * self.lengths
        return float(by.mean()) if len(by) else 0.0


class Steered:
    """A traced text, read again with a feature of an SAE set to a multiple of its maximum.

    Args:
        trace: What `aw.trace` returned, with its model.
        sae: Of that model.
        maximum: See `aw.steer`; None: what is known with the SAE.
        positions, skip_special, site: See `aw.steer`.
        sentences: Texts whose likeness to this one is compared where the model predicts nothing.
        max_new_tokens: How much is generated.
    """

    def __init__(
        self,
        trace: Trace,
        sae: SAE,
        *,
        maximum: Any,
        positions: Any,
        skip_special: Any,
        site: str | None,
        sentences: Sequence[str],
        max_new_tokens: int,
    ) -> None:
        self.trace, self.sae, self.sentences = trace, sae, tuple(sentences)
        self.new = max_new_tokens
        self._options = {
            "maximum": maximum,
            "positions": positions,
            "skip_special": skip_special,
            "site": site,
        }
        self._model = unwrap(trace.model)
        self._site = site_of(sae, self._model, site)
        self._reader = own_tokenizer(text_tokenizer(trace.tokenizer))
        self._kept: dict[str, Any] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """What can be compared: "outcomes" (of the trace's prediction), "text", "sentences"."""
        found = ["outcomes"] if self.trace.predictions_title else []
        if can_generate(self._model) and self.trace.input_ids is not None and self._reader is not None:
            found.append("text")
        if not found and self.sentences and self._reader is not None:
            found.append("sentences")
        return tuple(found)

    def maximum(self, feature: int) -> float:
        """Return the activation that a scale of 1 means."""
        known = self._options["maximum"]
        values = getattr(known, "maxima", self.sae.maxima if known is None else None)
        return float(known if values is None else values[feature])

    def reach(self, feature: int) -> Reach:
        """Return how far a feature moves the states of this text; the model is run once for all features."""
        if "states" not in self._kept:
            with borrowed(self._model) as twin, reading(twin, self._site) as read:
                states = read(**self._inputs())
            self._kept["states"] = states.reshape(-1, states.shape[-1]).to(self.sae.W_enc)
        h = self._kept["states"]
        chosen = self._chosen(feature)
        h = h if chosen is None else h[chosen]
        with torch.no_grad():
            a = self.sae.encode(h, features=[feature])
            unit = self.sae.change(h, [feature], torch.ones_like(a)).norm(dim=-1)
        lengths = unit / h.norm(dim=-1).clamp_min(torch.finfo(h.dtype).tiny)
        return Reach(self.maximum(feature), a[:, 0].float().cpu().numpy(), lengths.float().cpu().numpy())

    def _chosen(self, feature: int) -> Tensor | None:
        """Return which tokens are steered: those whose states differ when the feature is set far off."""
        if self._options["positions"] is None and self._options["skip_special"] is None:
            return None
        if "chosen" not in self._kept:
            plain = self._kept["states"]
            with (
                borrowed(self._model) as twin,
                self._steering(twin, feature, -1.0),
                reading(twin, self._site) as read,
            ):
                moved = read(**self._inputs())
            self._kept["chosen"] = (moved.reshape(plain.shape).to(plain) != plain).any(-1)
        return self._kept["chosen"]

    @property
    def _device(self) -> torch.device:
        """Where the model reads: an SAE may lie elsewhere."""
        return next(value.device for value in self.trace.inputs.values() if isinstance(value, torch.Tensor))

    def _inputs(self) -> dict[str, Any]:
        options = {"use_cache": False} if "use_cache" in forward_parameters(self._model) else {}
        return {**self.trace.inputs, **options}

    def _steering(self, model: Any, feature: int, scale: float) -> Steering:
        return steer(model, self.sae, [feature], scale, **self._options)

    # Before and after.

    def compare(self, kind: str, feature: int, scale: float) -> tuple[Any, Any, Steering]:
        """Return what there is before and after steering, and the steering.

        Args:
            kind: One of `kinds`.
            feature: Which.
            scale: How far, in units of the feature's maximum.

        Raises:
            LookupError: There is nothing of this kind.
        """
        ways: dict[str, Callable[[Any], Any]] = {
            "outcomes": self._outcomes,
            "text": self._text,
            "sentences": self._likeness,
        }
        if kind not in self.kinds:
            raise LookupError(
                f"there is no {kind!r} to compare here; there is {', '.join(self.kinds) or 'nothing'}."
            )
        with borrowed(self._model) as twin:
            if kind not in self._kept:
                self._kept[kind] = ways[kind](twin)
            steering = self._steering(twin, feature, scale)
            with steering:
                after = ways[kind](twin)
        return self._kept[kind], after, steering

    def _outcomes(self, model: Any) -> NDArray[Any]:
        """Return the probability of every class, or of every token where the trace's prediction stands."""
        logits = own_logits(self.trace, model(**self._inputs()))
        if logits is None:  # there is a prediction
            raise AssertionError
        if logits.dim() > 1:
            logits = logits[resolve_target(self.trace, None, method="SteerView", logit=True).position]
        several = getattr(self._config, "problem_type", None) == "multi_label_classification"
        logits = widened(logits)
        return (logits.sigmoid() if several else logits.softmax(-1)).numpy()

    def label(self, kind: str, number: int) -> str:
        """Return the name of a class or token, or a sentence."""
        if kind == "sentences":
            return self.sentences[number]
        if self.trace.predictions_title == "class":
            return str((getattr(self._config, "id2label", None) or {}).get(number, number))
        return spelled(self._reader, number)

    @property
    def _config(self) -> Any:
        return getattr(self._model, "config", None)

    def _likeness(self, model: Any) -> NDArray[Any]:
        """Return the cosines of the text with sentences, which are never steered."""
        if "embedded" not in self._kept:
            self._kept["embedded"] = self._embedded_sentences(model)
        own = _pooled(model(**self._inputs()), self.trace.inputs.get("attention_mask"))
        return (self._kept["embedded"] @ own[0]).float().cpu().numpy()

    def _embedded_sentences(self, model: Any) -> Tensor:
        found = []
        for start in progress(range(0, len(self.sentences), _BATCH), "reading sentences"):
            batch = self._reader(
                list(self.sentences[start : start + _BATCH]),
                padding=True,
                truncation=True,
                return_tensors="pt",
            ).to(self._device)
            found.append(_pooled(model(**batch), batch["attention_mask"]))
        return torch.cat(found)

    def _text(self, model: Any) -> str:
        options = greedy(model, self.new)
        inputs = {name: value for name, value in self.trace.inputs.items() if name != "decoder_input_ids"}
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
        produced = model.generate(**inputs, generation_config=options, streamer=_Steps(self.new))
        ids = getattr(produced, "sequences", produced)[0]
        start = 0 if "decoder_input_ids" in self.trace.inputs else inputs["input_ids"].shape[-1]
        return str(self._reader.decode(ids[start:], skip_special_tokens=True))


class _Steps:
    """Tells how far a generation is; whoever watches may stop it between two tokens."""

    def __init__(self, total: int) -> None:
        self._steps = iter(progress(range(total + 1), "generating"))  # the prompt is put as well

    def put(self, _: Tensor) -> None:
        """Count a token."""
        next(self._steps, None)

    def end(self) -> None:
        """Nothing is left to be done."""


def _pooled(outputs: Any, mask: Tensor | None) -> Tensor:
    """Return the mean state of a text's tokens, of length one [text, width]."""
    states = getattr(outputs, "last_hidden_state", None)
    if states is None:
        raise UnsupportedModelError("this model returns no states of tokens to compare texts by.")
    weights = torch.ones_like(states[..., 0]) if mask is None else mask.to(states)
    mean = (states * weights[..., None]).sum(1) / weights.sum(1, keepdim=True).clamp_min(1)
    return torch.nn.functional.normalize(mean, dim=-1)


def side_by_side(before: NDArray[Any], after: NDArray[Any], k: int = _SHOWN) -> list[int]:
    """Return the numbers of the `k` largest outcomes of either side, those that are largest after first."""
    largest = {int(i) for found in (before, after) for i in np.argsort(-found, kind="stable")[:k]}
    return sorted(largest, key=lambda i: (-after[i], i))


def differing(before: str, after: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return both texts in runs of words, with whether the other text has other words there."""
    words = [_words(text) for text in (before, after)]
    sides: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    for tag, *ends in SequenceMatcher(a=words[0], b=words[1], autojunk=False).get_opcodes():
        for side, own, begin, end in zip(sides, words, ends[::2], ends[1::2], strict=True):
            if begin < end:
                side.append(("".join(own[begin:end]), tag != "equal"))
    return sides


def _words(text: str) -> list[str]:
    """Return words with the spaces before them."""
    return re.findall(r"\s*\S+|\s+$", text)
