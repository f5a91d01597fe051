"""Whether an SAE fits the states of a model: a few sentences show a wrong site, scale or model at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.sae.corpus import Corpus, batches, by_token, counts_mask
from attnwidgets.sae.locate import beside, elsewhere
from attnwidgets.sae.measures import Measures, measure
from attnwidgets.tracing.hooks.hook import reading
from attnwidgets.tracing.hooks.hook_point import HookPoint, resolve_hook_point
from attnwidgets.tracing.recording.borrow import borrowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from attnwidgets.sae.sae import SAE

_LOW = 0.25  # an explained variance that no SAE in use has at its own site
_DENSE = 0.25  # a share of features on one token, likewise
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
"""Sentences that are read where none are given."""


class SAEMismatchWarning(UserWarning):
    """An SAE does not fit the states it was given: another layer, scale or model."""


@dataclass(frozen=True)
class SAECheck:
    """What an SAE does with a model's states.

    Args:
        site: Where they were read.
        model: Class of the model.
        tokens: How many counted; special tokens and a decoder's first do not.
        l0: Features that fire on a token, on average.
        explained_variance: At most 1; negative where the mean state would be a better reconstruction.
        dead: Features that fired on none of these tokens (on a few sentences most do not).
        d_sae: Number of features.
        warnings: What looks wrong, in words.
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
    """Run a few texts and measure an SAE on the model's states; warn where they cannot be its own.

    Warned is where it explains too little, fires too much, or explains more of the states one layer before or
    after. Then other places of the same width are tried, and the best is named.

    Args:
        sae: What is checked.
        model: Comes back as it was.
        tokenizer: Its tokenizer.
        texts: Sentences of the kind it was trained on; a dozen English ones without them.
        site: Where the states are, instead of `sae.site`.
        prepend_bos: Whether texts begin with the beginning-of-text token; None as the SAE's files say, or
            else as the tokenizer does.

    Raises:
        ValueError: If the site is not in the model, or its states are of another width; both are named.
    """
    inner = unwrap(model)
    place = site_of(sae, inner, site)
    corpus = corpus_for(sae, inner, tokenizer, TEXTS if texts is None else texts, prepend_bos=prepend_bos)
    with borrowed(inner) as twin:
        states = _states(twin, corpus, place)
        require_width(sae, states.shape[-1], place, inner)
        found = measure(sae, states)
        said = list(_complaints(sae, found, place))
        if not said and (doubt := beside(sae, twin, corpus, place)):
            said.append(doubt)
        if said and (better := elsewhere(sae, twin, corpus, place)) is not None:
            said.append(f"It explains {better.variance:.2f} {better.how}.")
    for complaint in said:
        warnings.warn(complaint, SAEMismatchWarning, stacklevel=3)
    return SAECheck(
        site=place.name,
        model=type(inner).__name__,
        tokens=found.tokens,
        l0=found.l0,
        explained_variance=found.explained_variance,
        dead=found.dead,
        d_sae=sae.d_sae,
        warnings=tuple(said),
    )


def site_of(sae: SAE, model: nn.Module, site: str | None = None) -> HookPoint:
    """Return where an SAE's states are in a model, and refuse one whose residual stream is of another width.

    Raises:
        ValueError: If there is no such place, or its width is not the SAE's.
    """
    if site is not None:
        place = resolve_hook_point(model, site)
    else:
        other = sae.metadata.get("hf_hook_name")
        place = resolve_hook_point(model, sae.site, *([str(other)] if other else []))
    config: Any = getattr(model, "config", None)
    width = getattr(getattr(config, "text_config", None) or config, "hidden_size", None)
    if place.residual and isinstance(width, int):
        require_width(sae, width, place, model)
    return place


def require_width(sae: SAE, width: int, site: HookPoint, model: nn.Module) -> None:
    """Raise ValueError unless states are as wide as the SAE reads them."""
    if width != sae.d_in:
        raise ValueError(
            f"the SAE reads states of width {sae.d_in}, and {site.name!r} of {type(model).__name__} is "
            f"{width} wide: it belongs to another model or site."
        )


def corpus_for(
    sae: SAE, model: nn.Module, tokenizer: Any, texts: Any, *, prepend_bos: bool | None = None, **options: Any
) -> Corpus:
    """Return texts as an SAE's files say that it reads them."""
    if prepend_bos is None:
        prepend_bos = _known_bos(sae, tokenizer)
    return Corpus(model, tokenizer, texts, prepend_bos=prepend_bos, **options)


def _known_bos(sae: SAE, tokenizer: Any) -> bool | None:
    said = sae.metadata.get("prepend_bos")
    if said and getattr(tokenizer, "bos_token_id", None) is None:
        return None  # an encoder's tokenizer, of which SAELens' default says nothing
    return bool(said) if said is not None else None


def _states(model: nn.Module, corpus: Corpus, site: HookPoint) -> Tensor:
    """Return the states of all tokens that count [token, width]."""
    found = [states for states, _ in counted(model, corpus, site)]
    if not found or not sum(len(states) for states in found):
        raise ValueError("texts hold no token that counts; give some sentences.")
    return torch.cat(found)


def counted(model: nn.Module, corpus: Corpus, site: HookPoint) -> Iterator[tuple[Tensor, Any]]:
    """Yield the states of the tokens that count [token, width] and their windows, of a borrowed model."""
    with reading(model, site) as read:
        for windows in batches(corpus.windows(), _BATCH_TOKENS):
            states = by_token(read(**corpus.inputs(windows)), windows)
            mask = counts_mask(windows, states.shape[1], states.device)
            yield states[mask], windows


def _complaints(sae: SAE, found: Measures, site: HookPoint) -> Iterator[str]:
    explained = found.explained_variance
    if not explained >= _LOW:
        yield (
            f"at {site.name} this SAE explains {explained:.2f} of the variance: these are not the states it "
            "was trained on."
        )
    if found.l0 > _DENSE * sae.d_sae or found.l0 < 1:
        yield (
            f"{found.l0:.3g} of {sae.d_sae} features fire on a token: the states are scaled or placed "
            "otherwise."
        )
