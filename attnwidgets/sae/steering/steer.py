"""aw.steer: change what features of an SAE say while a model runs, and nothing else.

With h the states at the SAE's site, a_j a feature's activation, d_j its direction (what one unit of it adds
to the reconstruction) and m_j its largest activation on a corpus:

    clamp          h + (k m_j - a_j) d_j              the feature is set to k times its maximum
    clamp_active   the same, where a_j > 0
    add            h + k m_j d_j
    scale          h + (k - 1) a_j d_j
    ablate         h - a_j d_j
    splice         decode(a), with a_j set to k m_j   what the SAE misses of h is lost

All but the last keep what the SAE does not explain: decode(a with a_j changed) + (h - decode(a)) is the same
(Templeton et al. 2024, Scaling Monosemanticity).
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, pick
from attnwidgets.sae.check import require_width, site_of
from attnwidgets.sae.dependencies import sae_fingerprint
from attnwidgets.sae.running_pass import PassWatch, require_positions
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.tracing.hooks.hook import Hook
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.call_scope import own_calls, own_uncompiled
from attnwidgets.tracing.recording.inputs import special_ids, text_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from torch import Tensor, nn
    from typing_extensions import Self

    from attnwidgets.sae.running_pass import Positions

Mode = Literal["clamp", "clamp_active", "add", "scale", "ablate", "splice"]
MODES: tuple[Mode, ...] = ("clamp", "clamp_active", "add", "scale", "ablate", "splice")
_COUNTED = ("clamp", "clamp_active", "add", "splice")  # in units of the feature's maximum
_FAR = 1.0  # a change as long as the state itself


def steer(
    model: Any,
    sae: SAE,
    feature: int | Iterable[int] | None,
    scale: float | Sequence[float] | None = None,
    *,
    mode: Mode = "clamp",
    maximum: Any = None,
    positions: Positions = None,
    skip_special: Any = None,
    site: str | None = None,
) -> Steering:
    """Steer a model while a `with` block runs, in plain calls and in `generate()`.

    Small models fall apart beyond a scale of 1 or 2. Ablation and a scale of 0 change nothing where the
    feature is silent.

    Args:
        model: Anything torch can run; it comes back as it was, also after an exception.
        sae: Anything `aw.SAE.from_object` takes.
        feature: Number of a feature, or several; None for none (mode "splice").
        scale: How far, for all features or one number each; see the module. 1 without it, except for mode
            "scale", which needs one, and "ablate" and a bare "splice", which have none.
        mode: "clamp", "clamp_active", "add", "scale", "ablate" or "splice"; see the module.
        maximum: The activation that a scale of 1 means: a number, one for each feature, or what
            `aw.feature_stats` returned. Without it, what is known with the SAE (`sae.maxima`).
        positions: Which tokens are steered, by their position in the text (padding not counted): numbers
            (also of tokens that are generated; negative ones count from the end of the prompt), a slice,
            "prompt", "generated", or "last" (of every pass: what predicts the next token). All without it.
        skip_special: A tokenizer or ids: special tokens are left alone. None steers them like others.
        site: Where the states are, instead of `sae.site`; see `attnwidgets.tracing.hooks.hook_point`.

    Returns:
        A context manager; `with aw.steer(...) as steering:` gives `steering.relative_change` and
        `steering.warning` of the last pass.

    Raises:
        ValueError: For an unknown mode, a scale or maximum that does not fit, a site that is not in the model
            or another width than the SAE's (both are named).
        IndexError: If there is no such feature.

    Source: Templeton et al. 2024, Scaling Monosemanticity.
    """
    sae = as_sae(sae)
    if mode not in MODES:
        raise ValueError(f"mode must be one of {listed(MODES)}, not {mode!r}.{suggest(str(mode), MODES)}")
    require_positions(positions)
    features = () if feature is None else pick(feature, range(sae.d_sae), "feature")
    if not features and mode != "splice":
        raise ValueError(f"feature: mode {mode!r} needs one; only a splice needs none.")
    scales = _scales(scale, mode, features)
    if mode in _COUNTED and scales is not None:
        scales = scales * _maxima(sae, features, maximum)
    inner = unwrap(model)
    place = site_of(sae, inner, site)
    kept = positions if positions is None or isinstance(positions, int | slice | str) else tuple(positions)
    return Steering(model, inner, sae, features, scales, mode, place, kept, _skipped(skip_special))


class Steering:
    """A model that is steered while a `with` block runs; see `steer`, which makes it."""

    def __init__(
        self,
        given: Any,
        model: nn.Module,
        sae: SAE,
        features: tuple[int, ...],
        values: Tensor | None,
        mode: Mode,
        site: Any,
        positions: Positions,
        skip: frozenset[int],
    ) -> None:
        self.sae, self.features, self.mode, self.site = sae, features, mode, site
        self._given, self._model = given, model
        self._values, self._positions, self._skip = values, positions, skip
        self._stack = ExitStack()
        self._change: Tensor | None = None
        self._watch: PassWatch | None = None
        self._tap: Hook | None = None

    def __enter__(self) -> Self:
        if self._tap is not None:
            raise RuntimeError("this steering is entered already; make another with aw.steer.")
        try:
            own = self._stack.enter_context(own_calls())
            self._stack.enter_context(own_uncompiled(self._model, own))
            if self._given is not self._model:
                # What wraps a compiled model does not know hooks that came after it.
                self._stack.enter_context(torch.compiler.set_stance("force_eager"))
            self._watch = PassWatch(self._model, self.site, own)
            self._stack.callback(self._watch.remove)
            # Before other hooks: what else looks at these states sees them steered.
            self._tap = Hook(self._model, self.site, self._steered, first=True, own=own)
            self._stack.callback(self._tap.remove)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tap, watch = self._tap, self._watch
        self._tap = self._watch = None
        self._stack.close()
        if kind is None and tap is not None and watch is not None and watch.calls and not tap.passes:
            warnings.warn(
                f"nothing was steered: passes of {type(self._model).__name__} did not reach "
                f"{self.site.name!r}.",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def said(self) -> str:
        """What is done to the states, by all that it depends on."""
        values = None if self._values is None else self._values.tolist()
        asked = (self.features, values, self.mode, self._positions, sorted(self._skip))
        return f"{sae_fingerprint(self.sae)} {asked!r}"

    def _steered(self, states: Tensor) -> Tensor:
        require_width(self.sae, states.shape[-1], self.site, self._model)
        if self._watch is None:  # only entered steerings have a tap
            raise AssertionError
        chosen = self._watch.chosen(states, self._positions, self._skip)
        h = states if chosen is None else states[chosen]
        if not h.numel():
            self._change = None
            return states
        change = self._changed(h).to(states)
        length = h.detach().float().norm(dim=-1)
        self._change = change.detach().float().norm(dim=-1) / length.clamp_min(
            torch.finfo(torch.float32).tiny
        )
        if chosen is None:
            return states + change
        steered = states.clone()
        steered[chosen] = h + change
        return steered

    def _changed(self, h: Tensor) -> Tensor:
        """Return by what states [..., width] change."""
        sae, features, values = self.sae, list(self.features), self._values
        to = None if values is None else values.to(sae.W_enc)
        if self.mode == "splice":
            a = sae.encode(h)
            if features and to is not None:
                a = a.clone()
                a[..., features] = to
            return sae.decode(a, h) - h.to(sae.W_enc)
        a = sae.encode(h, features=features)
        if self.mode == "ablate" or to is None:
            by = -a
        elif self.mode == "scale":
            by = (to - 1) * a
        elif self.mode == "add":
            by = to.expand_as(a)
        else:
            by = to - a
            if self.mode == "clamp_active":
                by = by * (a > 0)
        return sae.change(h, features, by)

    @property
    def relative_change(self) -> float:
        """|dh| / |h| in the last pass, on average over the tokens that were steered; 0 where none was."""
        return 0.0 if self._change is None else float(self._change.mean())

    @property
    def warning(self) -> str:
        """What a reader must know of the last pass, or ""."""
        if self.relative_change <= _FAR:
            return ""
        return (
            f"the change is {self.relative_change:.1f} times as long as the states: the model is far from "
            "anything it has seen"
        )

    def __repr__(self) -> str:
        several = "" if len(self.features) == 1 else "s"
        what = ", ".join(map(str, self.features)) or "none"
        return f"<Steering by {self.mode} of feature{several} {what} at {self.site.name}>"


def _scales(scale: Any, mode: Mode, features: tuple[int, ...]) -> Tensor | None:
    """Return one scale for each feature; None where the mode has none."""
    if mode == "ablate":
        if scale not in (None, 0):
            raise ValueError(f'scale={scale}: mode "ablate" sets features to zero and takes none.')
        return None
    if mode == "splice" and (scale is None or not features):
        if scale is not None:
            raise ValueError(f"scale={scale}: there is no feature to set.")
        return None
    if scale is None and mode == "scale":
        raise ValueError('mode "scale" needs a scale: 0 silences the feature, 1 changes nothing.')
    return _each("scale", 1.0 if scale is None else scale, features)


def _each(name: str, value: Any, features: tuple[int, ...]) -> Tensor:
    found = torch.as_tensor(value, dtype=torch.float64).flatten()
    if len(found) not in (1, len(features)):
        raise ValueError(f"{name} has {len(found)} numbers; taken is one, or one for each feature.")
    if not bool(torch.isfinite(found).all()):
        raise ValueError(f"{name} must be finite, not {value}.")
    return found.expand(len(features)).clone()


def _maxima(sae: SAE, features: tuple[int, ...], maximum: Any) -> Tensor:
    """Return the activation that a scale of 1 means, of each feature."""
    known = getattr(maximum, "maxima", sae.maxima if maximum is None else None)
    if known is not None:
        if len(known) != sae.d_sae:
            raise ValueError(f"maximum is of {len(known)} features, and the SAE has {sae.d_sae}.")
        values = known if isinstance(known, torch.Tensor) else torch.tensor(known)
        found = values[list(features)].cpu().double()
        if not bool(torch.isfinite(found).all()):
            raise ValueError("maximum: the statistics are not of all of these features; count them as well.")
        return found
    if maximum is not None:
        return _each("maximum", maximum, features)
    warnings.warn(
        "the features' maxima are not known: scale is taken as the activation itself. Pass maximum=, a "
        "number or what aw.feature_stats returned.",
        UserWarning,
        stacklevel=4,
    )
    return torch.ones(len(features), dtype=torch.float64)


def _skipped(skip: Any) -> frozenset[int]:
    if skip is None or skip is False:
        return frozenset()
    tokenizer = text_tokenizer(skip)
    if tokenizer is not None:
        return special_ids(tokenizer)
    try:
        return frozenset(int(number) for number in skip)
    except (TypeError, ValueError) as error:
        kind = type(skip).__name__
        raise TypeError(f"skip_special takes a tokenizer or token ids, not {kind}.") from error
