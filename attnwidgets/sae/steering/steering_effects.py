"""Effects of steering a feature on a text: predictions, generated text, similarity to sentences."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._tensors import widened
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.sae.check import hook_point_of
from attnwidgets.sae.steering.steer import Steering, steer
from attnwidgets.tracing.anatomy.forward import can_generate, forward_parameters
from attnwidgets.tracing.hooks.hook import reading
from attnwidgets.tracing.predictions import label_of
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.continuation import greedy
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.recording.loading import own_tokenizer
from attnwidgets.tracing.rerun_trace import own_logits
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.trace import Trace

_BATCH = 16  # sentences in a batch
_SHOWN = 8  # outcomes shown of either side


class Reach(NamedTuple):
    """How far a feature can be moved on a text.

    Attributes:
        maximum: The activation that a scale of 1 stands for.
        activations: The feature's activations on the steered tokens [token].
        lengths: Change of a state per unit of activation, relative to the state's length [token].
    """

    maximum: float
    activations: NDArray[Any]
    lengths: NDArray[Any]

    def relative_change(self, scale: float) -> float:
        """Return |dh| / |h|, mean over tokens, for the feature set to `scale` times its maximum."""
        by = abs(scale * self.maximum - self.activations) * self.lengths
        return float(by.mean()) if len(by) else 0.0


class Steered:
    """A traced text, read again with a feature of an SAE set to a multiple of its maximum.

    Args:
        trace: A trace with its model.
        sae: An SAE of that model.
        sentences: Texts to compare the trace's text with, for models without predictions.
        max_new_tokens: Number of tokens to generate.
        options: maximum, positions, skip_special and site, as for `aw.steer`.
    """

    def __init__(
        self, trace: Trace, sae: SAE, *, sentences: Sequence[str], max_new_tokens: int, **options: Any
    ) -> None:
        self.trace, self.sae, self.sentences = trace, sae, tuple(sentences)
        self.max_new_tokens = max_new_tokens
        self._options = options
        self._model = unwrap(trace.model)
        self._hook_point = hook_point_of(sae, self._model, options["site"])
        self._tokenizer = own_tokenizer(text_tokenizer(trace.tokenizer))
        self._kept: dict[str, Any] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of comparisons: "outcomes" (of the trace's prediction), "text", "sentences"."""
        kinds = ["outcomes"] if self.trace.answer.is_distribution else []
        if can_generate(self._model) and self.trace.input_ids is not None and self._tokenizer is not None:
            kinds.append("text")
        if not kinds and self.sentences and self._tokenizer is not None:
            kinds.append("sentences")
        return tuple(kinds)

    def maximum(self, feature: int) -> float:
        """Return the activation that a scale of 1 stands for."""
        maximum = self._options["maximum"]
        values = getattr(maximum, "maxima", self.sae.maxima if maximum is None else None)
        return float(maximum if values is None else values[feature])

    def reach(self, feature: int) -> Reach:
        """Return how far a feature moves the states of this text; the model runs once for all features."""
        if "states" not in self._kept:
            with borrowed(self._model) as twin, reading(twin, self._hook_point) as read:
                states = read(**self._inputs())
            self._kept["states"] = states.reshape(-1, states.shape[-1]).to(self.sae.W_enc)
        h = self._kept["states"]
        chosen = self._chosen(feature)
        h = h if chosen is None else h[chosen]
        with no_grad():
            a = self.sae.encode(h, features=[feature])
            unit = self.sae.change(h, [feature], torch.ones_like(a)).norm(dim=-1)
        lengths = unit / h.norm(dim=-1).clamp_min(torch.finfo(h.dtype).tiny)
        return Reach(self.maximum(feature), a[:, 0].float().cpu().numpy(), lengths.float().cpu().numpy())

    def _chosen(self, feature: int) -> Tensor | None:
        """Return a mask of the tokens that are steered: a large change alters their states; None: all."""
        if self._options["positions"] is None and self._options["skip_special"] is None:
            return None
        if "chosen" not in self._kept:
            plain = self._kept["states"]
            with (
                borrowed(self._model) as twin,
                self._steering(twin, feature, -1.0),
                reading(twin, self._hook_point) as read,
            ):
                moved = read(**self._inputs())
            self._kept["chosen"] = (moved.reshape(plain.shape).to(plain) != plain).any(-1)
        return self._kept["chosen"]

    @property
    def _device(self) -> torch.device:
        """Device of the model's inputs; the SAE may be on another device."""
        return next(value.device for value in self.trace.inputs.values() if isinstance(value, torch.Tensor))

    def _inputs(self) -> dict[str, Any]:
        options = {"use_cache": False} if "use_cache" in forward_parameters(self._model) else {}
        return {**self.trace.inputs, **options}

    def _steering(self, model: Any, feature: int, scale: float) -> Steering:
        return steer(model, self.sae, [feature], scale, **self._options)

    # Comparisons before and after steering.

    def compare(self, kind: str, feature: int, scale: float) -> tuple[Any, Any, Steering]:
        """Return the result before and after steering, and the steering.

        Args:
            kind: One of `kinds`.
            feature: The feature.
            scale: Its activation in units of its maximum.

        Raises:
            LookupError: If this kind of comparison is not possible.
        """
        comparisons: dict[str, Callable[[Any], Any]] = {
            "outcomes": self._outcomes,
            "text": self._text,
            "sentences": self._likeness,
        }
        if kind not in self.kinds:
            raise LookupError(
                f"{kind!r} cannot be compared here; possible: {', '.join(self.kinds) or 'nothing'}."
            )
        with borrowed(self._model) as twin:
            if kind not in self._kept:
                self._kept[kind] = comparisons[kind](twin)
            steering = self._steering(twin, feature, scale)
            with steering:
                after = comparisons[kind](twin)
        return self._kept[kind], after, steering

    def _outcomes(self, model: Any) -> NDArray[Any]:
        """Return the probability of every class, or of every token at the position of the prediction."""
        logits = own_logits(self.trace, model(**self._inputs()))
        if logits is None:  # excluded by `kinds`
            raise AssertionError
        if logits.dim() > 1:
            logits = logits[resolve_target(self.trace, None, method="SteerView", logit=True).position]
        return self.trace.answer.probabilities(widened(logits)).numpy()

    def label(self, kind: str, number: int) -> str:
        """Return the name of a class or token, or a sentence."""
        if kind == "sentences":
            return self.sentences[number]
        return label_of(self.trace, number)

    @property
    def _config(self) -> Any:
        return getattr(self._model, "config", None)

    def _likeness(self, model: Any) -> NDArray[Any]:
        """Return the cosine of the text with every sentence; sentences are not steered."""
        if "embedded" not in self._kept:
            self._kept["embedded"] = self._embed_sentences(model)
        text = _mean_state(model(**self._inputs()), self.trace.inputs.get("attention_mask"))
        return (self._kept["embedded"] @ text[0]).float().cpu().numpy()

    def _embed_sentences(self, model: Any) -> Tensor:
        embeddings = []
        for start in progress(range(0, len(self.sentences), _BATCH), "reading sentences"):
            batch = self._tokenizer(
                list(self.sentences[start : start + _BATCH]),
                padding=True,
                truncation=True,
                return_tensors="pt",
            ).to(self._device)
            embeddings.append(_mean_state(model(**batch), batch["attention_mask"]))
        return torch.cat(embeddings)

    def _text(self, model: Any) -> str:
        options = greedy(model, self.max_new_tokens)
        inputs = {name: value for name, value in self.trace.inputs.items() if name != "decoder_input_ids"}
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
        produced = model.generate(**inputs, generation_config=options, streamer=_Steps(self.max_new_tokens))
        ids = getattr(produced, "sequences", produced)[0]
        start = 0 if "decoder_input_ids" in self.trace.inputs else inputs["input_ids"].shape[-1]
        return str(self._tokenizer.decode(ids[start:], skip_special_tokens=True))


class _Steps:
    """Reports progress of generation; the observer may stop it between two tokens."""

    def __init__(self, total: int) -> None:
        self._steps = iter(progress(range(total + 1), "generating"))  # `put` is also called for the prompt

    def put(self, _: Tensor) -> None:
        """Count a token."""
        next(self._steps, None)

    def end(self) -> None:
        """Do nothing; required of a streamer."""


def _mean_state(outputs: Any, mask: Tensor | None) -> Tensor:
    """Return the mean state of a text's tokens, normalised to length 1 [text, width]."""
    states = getattr(outputs, "last_hidden_state", None)
    if states is None:
        raise UnsupportedModelError("this model returns no token states to compare texts by.")
    weights = torch.ones_like(states[..., 0]) if mask is None else mask.to(states)
    mean = (states * weights[..., None]).sum(1) / weights.sum(1, keepdim=True).clamp_min(1)
    return torch.nn.functional.normalize(mean, dim=-1)


def side_by_side(before: NDArray[Any], after: NDArray[Any], k: int = _SHOWN) -> list[int]:
    """Return the indices of the `k` largest outcomes of either side, in descending order of `after`."""
    largest = {int(i) for values in (before, after) for i in np.argsort(-values, kind="stable")[:k]}
    return sorted(largest, key=lambda i: (-after[i], i))


def differing(before: str, after: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return both texts as runs of words, each with whether it differs from the other text."""
    words = [_words(text) for text in (before, after)]
    sides: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    for tag, *ends in SequenceMatcher(a=words[0], b=words[1], autojunk=False).get_opcodes():
        for side, words_of_side, begin, end in zip(sides, words, ends[::2], ends[1::2], strict=True):
            if begin < end:
                side.append(("".join(words_of_side[begin:end]), tag != "equal"))
    return sides


def _words(text: str) -> list[str]:
    """Return words, each with the spaces before it."""
    return re.findall(r"\s*\S+|\s+$", text)
