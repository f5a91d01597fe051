"""Check on a few sentences whether an SAE fits a model, and locate the hook point that it was trained on."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.sae.corpus import Corpus, batches, counted_states
from attnwidgets.tracing.hooks.hook import hooked, reading
from attnwidgets.tracing.hooks.hook_point import (
    HookPoint,
    hook_name,
    hook_points_of_blocks,
    resolve_hook_point,
)
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor, nn

    from attnwidgets.sae.sae import SAE

_LOW = 0.25  # explained variance: SAEs in use all exceed this at their own hook point
_DENSE = 0.25  # share of features active on a token: SAEs in use all stay below this
_BATCH_TOKENS = 1024
TEXTS = (
    "The old lighthouse keeper climbed the stairs every evening to light the lamp.",
    "In 1887 the company moved its offices to Vienna, where it employed about 300 people.",
    "Water boils at a lower temperature on high mountains because the air pressure is lower.",
    "She asked whether the train to Edinburgh had left, but nobody at the station knew.",
    "The committee published its report on rising rents and the shortage of housing.",
    "A good bread needs flour, water, salt and more patience than most recipes admit.",
    "def area(radius): return 3.14159 * radius ** 2",
    "Critics praised the second act of the opera and found the first one far too long.",
    "The treaty, signed by both kings, ended a war that had lasted for eleven years.",
    "Many birds fly south in autumn; swallows cross the Sahara in only a few days.",
    "If the patient has a fever, the doctor should be called before the next dose.",
    "They had never seen snow before, so the children ran outside without their coats.",
)
"""Default sentences."""

_TOKENS = 512  # most tokens read, with padding
_BETTER = 0.05  # gain in explained variance that shows the SAE belongs to another hook point

_CHUNK = 2**24  # activations in memory at once


class SAEMismatchWarning(UserWarning):
    """An SAE does not fit the states it reads: another layer, scale or model."""


@dataclass(frozen=True)
class SAECheck:
    """How well an SAE reconstructs a model's states.

    Args:
        site: Hook point that the states were read at.
        model: Class of the model.
        tokens: Number of tokens measured; special tokens and a decoder's first token do not count.
        l0: Mean number of active features per token.
        explained_variance: At most 1; negative if the mean state would be a better reconstruction.
        dead: Number of features that fired on none of these tokens (normal for most, on a few sentences).
        d_sae: Number of features.
        warnings: A sentence on each result that looks wrong.
    """

    site: str
    model: str
    tokens: int
    l0: float
    explained_variance: float
    dead: int
    d_sae: int
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        measured = (
            f"{self.site} of {self.model}, {self.tokens} tokens: explained variance "
            f"{self.explained_variance:.3f}, L0 {self.l0:.1f}, {self.dead} of {self.d_sae} never fired"
        )
        return "\n".join([measured, *self.warnings])

    def __repr__(self) -> str:
        return f"<SAECheck {self}>"


def check(
    sae: SAE,
    model: Any,
    tokenizer: Any,
    texts: Sequence[str] | None = None,
    *,
    site: str | None = None,
    prepend_bos: bool | None = None,
) -> SAECheck:
    """Measure an SAE on a model's states for a few texts; warn if it was not trained on them.

    The SAE is suspect if it explains too little variance, fires too often, or explains more of the states a
    layer before or after. Other hook points of the same width are then tried, and the best of them is named.

    Args:
        sae: The SAE to check.
        model: The model; left unchanged.
        tokenizer: Its tokenizer.
        texts: Sentences like those the SAE was trained on; by default a dozen English ones.
        site: Hook point to read, instead of `sae.site`.
        prepend_bos: Whether texts begin with the beginning-of-text token. None: as the SAE's files say, else
            as the tokenizer does.

    Raises:
        ValueError: If the model lacks the hook point, or its states have another width than the SAE.
    """
    inner = unwrap(model)
    hook_point = hook_point_of(sae, inner, site)
    corpus = corpus_for(sae, inner, tokenizer, TEXTS if texts is None else texts, prepend_bos=prepend_bos)
    with borrowed(inner) as twin:
        states = _states(twin, corpus, hook_point)
        require_width(sae, states.shape[-1], hook_point, inner)
        measures = measure(sae, states)
        complaints = list(_complaints(sae, measures, hook_point))
        if not complaints and (doubt := better_neighbour(sae, twin, corpus, hook_point)):
            complaints.append(doubt)
        if complaints and (better := best_hook_point(sae, twin, corpus, hook_point)) is not None:
            complaints.append(f"It explains {better.variance:.2f} {better.how}.")
    for complaint in complaints:
        warnings.warn(complaint, SAEMismatchWarning, stacklevel=2)
    return SAECheck(
        site=hook_point.name,
        model=type(inner).__name__,
        tokens=measures.tokens,
        l0=measures.l0,
        explained_variance=measures.explained_variance,
        dead=measures.dead,
        d_sae=sae.d_sae,
        warnings=tuple(complaints),
    )


def hook_point_of(sae: SAE, model: nn.Module, site: str | None = None) -> HookPoint:
    """Return the hook point of an SAE in a model.

    Raises:
        ValueError: If the model lacks the hook point, or its width differs from the SAE's.
    """
    alternatives = [str(name) for name in (sae.metadata.get("hf_hook_name"),) if name and site is None]
    hook_point = resolve_hook_point(model, sae.site if site is None else site, *alternatives)
    config: Any = getattr(model, "config", None)
    width = getattr(getattr(config, "text_config", None) or config, "hidden_size", None)
    if hook_point.residual and isinstance(width, int):
        require_width(sae, width, hook_point, model)
    return hook_point


def require_width(sae: SAE, width: int, hook_point: HookPoint, model: nn.Module) -> None:
    """Raise ValueError unless states are as wide as the SAE expects."""
    if width != sae.d_in:
        raise ValueError(
            f"the SAE reads states of width {sae.d_in}, but {hook_point.name!r} of {type(model).__name__} is "
            f"{width} wide: the SAE belongs to another model or hook point."
        )


def corpus_for(
    sae: SAE, model: nn.Module, tokenizer: Any, texts: Any, *, prepend_bos: bool | None = None, **options: Any
) -> Corpus:
    """Return texts as a corpus, tokenized as the SAE's files specify."""
    if prepend_bos is None:
        prepend_bos = _known_bos(sae, tokenizer)
    return Corpus(model, tokenizer, texts, prepend_bos=prepend_bos, **options)


def _known_bos(sae: SAE, tokenizer: Any) -> bool | None:
    prepend_bos = sae.metadata.get("prepend_bos")
    if prepend_bos and getattr(tokenizer, "bos_token_id", None) is None:
        return None  # an encoder's tokenizer: SAELens' default does not apply
    return bool(prepend_bos) if prepend_bos is not None else None


def _states(model: nn.Module, corpus: Corpus, hook_point: HookPoint) -> Tensor:
    """Return the states of all tokens that count [token, width]."""
    batches_of_states = [states for states, _ in read_states(model, corpus, hook_point)]
    if not sum(map(len, batches_of_states)):
        raise ValueError("texts contain no token that counts; pass some sentences.")
    return torch.cat(batches_of_states)


def read_states(model: nn.Module, corpus: Corpus, hook_point: HookPoint) -> Iterator[tuple[Tensor, Any]]:
    """Yield the states of the tokens that count [token, width] and their windows, from a borrowed model."""
    with reading(model, hook_point) as read:
        for windows in batches(corpus.windows(), _BATCH_TOKENS):
            yield counted_states(read(**corpus.inputs(windows)), windows), windows


def _complaints(sae: SAE, measures: Measures, hook_point: HookPoint) -> Iterator[str]:
    explained = measures.explained_variance
    if not explained >= _LOW:
        yield (
            f"at {hook_point.name} this SAE explains {explained:.2f} of the variance: these are not the "
            "states it was trained on."
        )
    if measures.l0 > _DENSE * sae.d_sae or measures.l0 < 1:
        yield (
            f"{measures.l0:.3g} of {sae.d_sae} features fire on a token: the states have another scale or "
            "come from another hook point."
        )


class VarianceAt(NamedTuple):
    """The share of variance an SAE explains at a hook point, and how the states there were read."""

    variance: float
    how: str


def better_neighbour(sae: SAE, model: nn.Module, corpus: Corpus, hook_point: HookPoint) -> str:
    """Return a warning if an SAE explains more of the states a layer before or after, else "".

    Args:
        sae: The SAE.
        model: The model, borrowed.
        corpus: Texts to measure on.
        hook_point: Where the SAE's files say it belongs.
    """
    stack, dot, rest = hook_name(model, hook_point).partition(".")
    number, _, hook = rest.partition(".")
    if not dot or not number.isdecimal():
        return ""
    candidates = [hook_point]
    for step in (-1, 1):
        with suppress(ValueError):  # no such layer
            candidates.append(resolve_hook_point(model, f"{stack}.{int(number) + step}.{hook}"))
    states = _fitting(sae, _states_by_name(model, corpus, candidates))
    explained = {name: measure(sae, h).explained_variance for name, h in states.items()}
    best = max(explained, key=lambda name: explained[name], default="")
    if hook_point.name not in explained or explained[best] <= explained[hook_point.name] + _BETTER:
        return ""
    return (
        f"at {hook_point.name} this SAE explains {explained[hook_point.name]:.2f} of the variance, and at "
        f"{best} {explained[best]:.2f}: it may belong to another layer."
    )


def best_hook_point(sae: SAE, model: nn.Module, corpus: Corpus, hook_point: HookPoint) -> VarianceAt | None:
    """Return the hook point, with or without centred states, with the highest explained variance.

    None if none is clearly better than `hook_point`. For the arguments see `better_neighbour`.
    """
    others = [other for other in hook_points_of_blocks(model) if other.name != hook_point.name]
    states = _fitting(sae, _states_by_name(model, corpus, [hook_point, *others]))
    expected = measure(sae, states[hook_point.name]).explained_variance if hook_point.name in states else 0.0
    best, best_score = None, max(expected, 0.0) + _BETTER
    for name, h in progress(states.items(), "locating the SAE's hook point", len(states)):
        for centre in (False, True) if not sae.centre else (True,):
            newly_centred = centre and not sae.centre
            explained = measure(sae.replaced(centre=centre), h).explained_variance
            score = explained - _BETTER * newly_centred  # centring has to help clearly
            if score > best_score:
                best_score = score
                best = VarianceAt(explained, f"at {name}" + " with centre=True" * newly_centred)
    return best


def _fitting(sae: SAE, states: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: h for name, h in states.items() if h.shape[-1] == sae.d_in}


def _states_by_name(model: nn.Module, corpus: Corpus, hook_points: Iterable[HookPoint]) -> dict[str, Tensor]:
    """Return the states [token, width] of tokens that count, by hook point.

    Empty if a hook point does not see a tensor with a state per token.
    """
    windows = next(batches(corpus.windows(), _TOKENS))
    states_by_name: dict[str, Tensor] = {}

    def keep(name: str, states: Tensor) -> None:
        states_by_name[name] = counted_states(states.detach(), windows)

    with ExitStack() as stack:
        for hook_point in hook_points:
            stack.enter_context(hooked(model, hook_point, partial(keep, hook_point.name)))
        try:
            with no_grad():
                model(**corpus.inputs(windows))
        except UnsupportedModelError:
            return {}
    return states_by_name


class Measures:
    """Running sums over batches of states.

    The explained variance is 1 - sum ||h - h_hat||^2 / sum ||h - mean(h)||^2.
    """

    def __init__(self, d_in: int, d_sae: int) -> None:
        self.tokens = 0
        self._active = 0
        self._missed = 0.0
        self._sum = torch.zeros(d_in, dtype=torch.float64)
        self._squares = 0.0
        self.fired = torch.zeros(d_sae, dtype=torch.bool)

    def add(self, h: Tensor, a: Tensor, reconstruction: Tensor) -> None:
        """Add states [token, d_in], their activations [token, d_sae] and reconstructions [token, d_in]."""
        h = h.cpu().double()  # not every accelerator has doubles
        fires = a != 0
        self.tokens += len(h)
        self._active += int(fires.sum())
        self._missed += float((h - reconstruction.cpu().double()).square().sum())
        self._sum += h.sum(dim=0)
        self._squares += float(h.square().sum())
        self.fired |= fires.any(dim=0).cpu()

    @property
    def l0(self) -> float:
        """Mean number of active features per token."""
        return self._active / max(self.tokens, 1)

    @property
    def explained_variance(self) -> float:
        """Explained share of the states' variance: at most 1; predicting the mean state gives 0."""
        variance = self._squares - float(self._sum.square().sum()) / max(self.tokens, 1)
        return 1 - self._missed / variance if variance > 0 else float("nan")

    @property
    def dead(self) -> int:
        """Number of features that fired on no token."""
        return int((~self.fired).sum())


@no_grad()
def measure(sae: SAE, states: Tensor) -> Measures:
    """Return the measures of an SAE on states [token, d_in], computed in chunks."""
    measures = Measures(sae.d_in, sae.d_sae)
    for h in states.split(max(1, _CHUNK // sae.d_sae)):
        h = h.to(sae.W_enc)  # noqa: PLW2901 - the same states
        a = sae.encode(h)
        measures.add(h, a, sae.decode(a, h))
    return measures
