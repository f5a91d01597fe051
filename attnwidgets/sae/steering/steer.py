"""aw.steer: change the activations of SAE features while a model runs.

With h the states at the SAE's hook point, a_j the activation of a feature, d_j its direction (the vector that
a unit of it adds to the reconstruction) and m_j its largest activation on a corpus:

    clamp          h + (k m_j - a_j) d_j              the feature is set to k times its maximum
    clamp_active   the same, where a_j > 0
    add            h + k m_j d_j
    scale          h + (k - 1) a_j d_j
    ablate         h - a_j d_j
    splice         decode(a), with a_j set to k m_j   the reconstruction error of h is lost

All except the last preserve the part of h that the SAE does not explain: they return
decode(a with a_j changed) + (h - decode(a)) (Templeton et al. 2024, Scaling Monosemanticity).

`Steering` installs a hook for the time of a `with` block, on the calls of its thread only (`own_calls`), and
records how long the change is compared with the states.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._errors import require_choice
from attnwidgets._selecting import pick
from attnwidgets.sae.check import hook_point_of, require_width
from attnwidgets.sae.dependencies import sae_fingerprint
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.tracing.hooks.hook import Hook, PassWatch, require_positions
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.call_scope import own_calls, own_uncompiled
from attnwidgets.tracing.recording.inputs import special_ids, text_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor, nn
    from typing_extensions import Self

    from attnwidgets.tracing.hooks.hook import Positions
    from attnwidgets.tracing.hooks.hook_point import HookPoint

Mode = Literal["clamp", "clamp_active", "add", "scale", "ablate", "splice"]
MODES: tuple[Mode, ...] = ("clamp", "clamp_active", "add", "scale", "ablate", "splice")
_RELATIVE = ("clamp", "clamp_active", "add", "splice")  # scales are in units of the maximum
_FAR = 1.0  # the change is as long as the state itself


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

    Small models stop producing sensible text at scales beyond 1 or 2. Ablation and a scale of 0 change
    nothing where the feature is silent.

    Args:
        model: A model that torch can run; restored on exit, even after an exception.
        sae: An SAE, or any object `aw.SAE.from_object` accepts.
        feature: Number of a feature, or several; None for none (mode "splice").
        scale: Factor k of the module's formulas: a number for all features, or one for each. 1 by default;
            required for mode "scale"; "ablate" and a "splice" without features take none.
        mode: "clamp", "clamp_active", "add", "scale", "ablate" or "splice"; see the module.
        maximum: The activation that a scale of 1 stands for: a number, one for each feature, or the result of
            `aw.feature_stats`. By default `sae.maxima`.
        positions: Tokens to steer, by position in the text (not counting padding): numbers (generated tokens
            included; negative ones count from the end of the prompt), a slice, "prompt", "generated", or
            "last" (the last token of every pass, which predicts the next token). All tokens by default.
        skip_special: A tokenizer or token ids: special tokens are not steered. None steers them as well.
        site: Hook point to change, instead of `sae.site`; see `attnwidgets.tracing.hooks.hook_point`.

    Returns:
        A context manager; `with aw.steer(...) as steering:` gives `steering.relative_change` and
        `steering.warning` of the last pass.

    Raises:
        ValueError: If the mode is unknown, a scale or maximum does not fit, the model lacks the hook point,
            or its width differs from the SAE's.
        IndexError: If the feature is out of range.

    Source: Templeton et al. 2024, Scaling Monosemanticity.

    Example:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> W_enc = torch.randn(384, 16, generator=generator)
        >>> sae = aw.SAE(W_enc, W_enc.T, torch.zeros(384), torch.zeros(16), site="encoder.layer.2")
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> with aw.steer(trace.model, sae, 3, 1.0, maximum=5.0) as steering:
        ...     steered = trace.rerun()
        >>> steering
        <Steering by clamp of feature 3 at encoder.layer.2>
    """
    sae = as_sae(sae)
    require_choice("mode", mode, MODES)
    require_positions(positions)
    features = () if feature is None else pick(feature, range(sae.d_sae), "feature")
    if not features and mode != "splice":
        raise ValueError(f"feature is required for mode {mode!r}; only 'splice' works without one.")
    scales = _scales(scale, mode, features)
    if mode in _RELATIVE and scales is not None:
        scales = scales * _maxima(sae, features, maximum)
    inner = unwrap(model)
    if not (positions is None or isinstance(positions, int | slice | str)):
        positions = tuple(positions)
    hook_point = hook_point_of(sae, inner, site)
    skipped = _skipped_ids(skip_special)
    return Steering(model, inner, sae, features, scales, mode, hook_point, positions, skipped)


@dataclass(eq=False, repr=False)
class Steering:
    """Steers a model while a `with` block runs; returned by `aw.steer`.

    Attributes:
        sae: The SAE.
        features: The features it changes.
        mode: How it changes them; see `aw.steer`.
        site: The hook point it changes.
    """

    _wrapped: Any
    _model: nn.Module
    sae: SAE
    features: tuple[int, ...]
    _values: Tensor | None
    mode: Mode
    site: HookPoint
    _positions: Positions
    _skip: frozenset[int]

    def __post_init__(self) -> None:
        self._stack = ExitStack()
        self._change: Tensor | None = None
        self._watch: PassWatch | None = None
        self._hook: Hook | None = None

    def __enter__(self) -> Self:
        if self._hook is not None:
            raise RuntimeError("this steering is already active; make another with aw.steer.")
        try:
            is_own = self._stack.enter_context(own_calls())
            self._stack.enter_context(own_uncompiled(self._model, is_own))
            if self._wrapped is not self._model:
                # The wrapper of a compiled model ignores hooks added after compilation.
                self._stack.enter_context(torch.compiler.set_stance("force_eager"))
            self._watch = PassWatch(self._model, self.site, is_own)
            self._stack.callback(self._watch.remove)
            # Before other hooks at this point, so that they see steered states.
            self._hook = Hook(self._model, self.site, self._steer, first=True, is_own=is_own)
            self._stack.callback(self._hook.remove)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        hook, watch = self._hook, self._watch
        self._hook = self._watch = None
        self._stack.close()
        if kind is None and hook is not None and watch is not None and watch.calls and not hook.passes:
            warnings.warn(
                f"nothing was steered: no pass of {type(self._model).__name__} reached {self.site.name!r}.",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def said(self) -> str:
        """All settings of the change, as text: part of the fingerprint of a steered model."""
        values = None if self._values is None else self._values.tolist()
        settings = (self.features, values, self.mode, self._positions, sorted(self._skip))
        return f"{sae_fingerprint(self.sae)} {settings!r}"

    def _steer(self, states: Tensor) -> Tensor:
        require_width(self.sae, states.shape[-1], self.site, self._model)
        if self._watch is None:  # the hook exists only while the block runs
            raise AssertionError
        chosen = self._watch.chosen(states, self._positions, self._skip)
        h = states if chosen is None else states[chosen]
        if not h.numel():
            self._change = None
            return states
        change = self._state_change(h).to(states)
        length = h.detach().float().norm(dim=-1)
        self._change = change.detach().float().norm(dim=-1) / length.clamp_min(
            torch.finfo(torch.float32).tiny
        )
        if chosen is None:
            return states + change
        steered = states.clone()
        steered[chosen] = h + change
        return steered

    def _state_change(self, h: Tensor) -> Tensor:
        """Return the change of states [..., width]."""
        sae, features = self.sae, list(self.features)
        target = None if self._values is None else self._values.to(sae.W_enc)
        if self.mode == "splice":
            a = sae.encode(h)
            if features and target is not None:
                a = a.clone()
                a[..., features] = target
            return sae.decode(a, h) - h.to(sae.W_enc)
        a = sae.encode(h, features=features)
        if self.mode == "ablate" or target is None:
            by = -a
        elif self.mode == "scale":
            by = (target - 1) * a
        elif self.mode == "add":
            by = target.expand_as(a)
        else:
            by = target - a
            if self.mode == "clamp_active":
                by = by * (a > 0)
        return sae.change(h, features, by)

    @property
    def relative_change(self) -> float:
        """|dh| / |h| in the last pass, mean over the steered tokens; 0 if there were none."""
        return 0.0 if self._change is None else float(self._change.mean())

    @property
    def warning(self) -> str:
        """A warning about the last pass, or ""."""
        if self.relative_change <= _FAR:
            return ""
        return (
            f"the change is {self.relative_change:.1f} times as long as the states: the model is far from "
            "anything it has seen"
        )

    def __repr__(self) -> str:
        plural = "" if len(self.features) == 1 else "s"
        numbers = ", ".join(map(str, self.features)) or "none"
        return f"<Steering by {self.mode} of feature{plural} {numbers} at {self.site.name}>"


def _scales(scale: Any, mode: Mode, features: tuple[int, ...]) -> Tensor | None:
    """Return a scale for each feature; None if the mode takes no scale."""
    if mode == "ablate":
        if scale not in (None, 0):
            raise ValueError(f'scale={scale}: mode "ablate" sets features to zero and takes no scale.')
        return None
    if mode == "splice" and (scale is None or not features):
        if scale is not None:
            raise ValueError(f"scale={scale}: without a feature there is nothing to set.")
        return None
    if scale is None and mode == "scale":
        raise ValueError('mode "scale" needs a scale: 0 silences the feature, 1 changes nothing.')
    return _per_feature("scale", 1.0 if scale is None else scale, features)


def _per_feature(name: str, value: Any, features: tuple[int, ...]) -> Tensor:
    numbers = torch.as_tensor(value, dtype=torch.float64).flatten()
    if len(numbers) not in (1, len(features)):
        raise ValueError(f"{name} has {len(numbers)} numbers; pass one, or one for each feature.")
    if not bool(torch.isfinite(numbers).all()):
        raise ValueError(f"{name} must be finite, not {value}.")
    return numbers.expand(len(features)).clone()


def _maxima(sae: SAE, features: tuple[int, ...], maximum: Any) -> Tensor:
    """Return the activation that a scale of 1 stands for, for each feature."""
    measured = getattr(maximum, "maxima", sae.maxima if maximum is None else None)
    if measured is not None:
        if len(measured) != sae.d_sae:
            raise ValueError(f"maximum has {len(measured)} features, but the SAE has {sae.d_sae}.")
        values = measured if isinstance(measured, torch.Tensor) else torch.tensor(measured)
        maxima = values[list(features)].cpu().double()
        if not bool(torch.isfinite(maxima).all()):
            raise ValueError("maximum: the statistics lack some of these features; count them as well.")
        return maxima
    if maximum is not None:
        return _per_feature("maximum", maximum, features)
    warnings.warn(
        "the features' maxima are not known, so scale is the activation itself. Pass maximum=: a number, or "
        "the result of aw.feature_stats.",
        UserWarning,
        stacklevel=4,
    )
    return torch.ones(len(features), dtype=torch.float64)


def _skipped_ids(skip: Any) -> frozenset[int]:
    if skip is None or skip is False:
        return frozenset()
    tokenizer = text_tokenizer(skip)
    if tokenizer is not None:
        return special_ids(tokenizer)
    try:
        return frozenset(int(number) for number in skip)
    except (TypeError, ValueError) as error:
        kind = type(skip).__name__
        raise TypeError(f"skip_special must be a tokenizer or token ids, not {kind}.") from error
