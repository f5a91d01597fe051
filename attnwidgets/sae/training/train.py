"""Training of SAEs: the recipe that makes one of a real model in minutes, on two cores or an accelerator.

States are scaled to a mean length of sqrt(d_in), b_dec begins as their mean, W_dec as random directions and
W_enc as its transpose; Adam, with the learning rate warmed up over the first tenth of the steps and brought
down over the last fifth, the penalty warmed up over the first tenth, gradients clipped to length one. The
scale is folded into the weights at the end, so that the SAE reads states as they are.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._errors import refuse_unknown
from attnwidgets.sae.corpus import CONTEXT, Corpus
from attnwidgets.sae.dependencies import states_about
from attnwidgets.sae.training.harvest import by_windows, harvest
from attnwidgets.sae.training.training_run import STATE, Plan, Run, TrainingDivergedError
from attnwidgets.tracing.content import tokenizer_fingerprint
from attnwidgets.tracing.fingerprint import fingerprint_of
from attnwidgets.tracing.hooks.hook_point import hook_name, resolve_hook_point
from attnwidgets.tracing.recording.borrow import borrowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn

    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

L1 = 1.8
"""Weight of the lecture's penalty where neither it nor k is given."""


def train(
    model: Any,
    tokenizer: Any,
    texts: Iterable[str | Sequence[int]],
    *,
    site: str,
    d_sae: int,
    l1: float | None = None,
    k: int | None = None,
    steps: int = 3000,
    batch_size: int = 512,
    lr: float = 2e-3,
    seed: int = 0,
    context: int = CONTEXT,
    max_tokens: int | None = None,
    prepend_bos: bool | None = None,
    device: str | torch.device | None = None,
    folder: str | Path | None = None,
    checkpoint: str | Path | None = None,
    **unknown: object,
) -> SAE:
    """Train an SAE of a model's states at one site; `aw.SAE.train`.

    States are read once, to a file that is removed afterwards. Special tokens and padding are left out, and
    the first token of a decoder's text where it has no beginning-of-text token. One text in ten (of fewer
    than twenty, one window in ten) is measured on and not trained on.

    Args:
        model: Anything torch can run; comes back as it was.
        tokenizer: Its tokenizer; None where texts are token ids.
        texts: Any number of texts; a few hundred thousand tokens make a good SAE of a small model.
        site: Where; see `attnwidgets.tracing.hooks.hook_point`.
        d_sae: Number of features.
        l1: Weight of the lecture's penalty, mean sum_j a_j ||W_dec_j|| beside the mean squared error of
            states of mean length sqrt(d_in); 1.8 without it. More gives sparser features.
        k: Instead of a penalty: how many features a token may have (topk).
        steps: Of Adam.
        batch_size: Tokens of a step.
        lr: Its learning rate at the highest.
        seed: Of the first directions and the order of tokens: the same call gives the same SAE.
        context: Tokens the model reads at once, special ones included.
        max_tokens: How many to train on at most.
        prepend_bos: Whether texts begin with the beginning-of-text token; None as the tokenizer does.
        device: Where training runs; that of the model without it.
        folder: Where the states go (4 d_in bytes a token); a temporary folder without it.
        checkpoint: A folder in which states and training are kept until they are done; the same call goes on
            from there.
        unknown: Refused, with the nearest keyword.

    Returns:
        An SAE of the states as they are, with `sae.history` (loss, L0, explained variance, dead features) and
        `sae.maxima`. After an interrupt, what was reached by then; its history says so.

    Raises:
        ValueError: Where texts hold fewer tokens than a batch, the site is not in the model, an option is out
            of range, or a checkpoint is of another model, tokenizer, site, texts or options, which are named.
        OSError: Where the disk is full; what was written is removed.
        TrainingDivergedError: Where the loss becomes NaN (the message names the step); its `.sae` is the
            last good one.

    Source: Bricken et al. 2023, Towards Monosemanticity; Anthropic, April 2024 update (the penalty); Gao et
    al. 2024 (topk).
    """
    refuse_unknown("SAE.train", unknown, _NAMES)
    inner = unwrap(model)
    place = resolve_hook_point(inner, site)
    plan = Plan(d_sae, L1 if l1 is None and k is None else l1, k, steps, batch_size, lr, seed)
    plan.check()
    corpus = Corpus(inner, tokenizer, texts, context=context, prepend_bos=prepend_bos)
    about: dict[str, Any] = {}
    if checkpoint is not None:
        prints = fingerprint_of(inner), tokenizer_fingerprint(corpus.tokenizer)
        held_out = "windows" if by_windows(texts) else "texts"
        about = states_about(prints, corpus, place, max_tokens=max_tokens, held_out=held_out)
    with ExitStack() as stack:
        if checkpoint is None:
            where = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix="attnwidgets-")))
        else:
            where = Path(checkpoint)
            where.mkdir(exist_ok=True)
        with borrowed(inner) as twin:
            states = harvest(twin, corpus, place, where, max_tokens=max_tokens, about=about)
        if checkpoint is None:
            stack.callback(states.remove)
        if states.tokens < batch_size:
            states.remove()
            raise ValueError(
                f"texts hold {states.tokens} tokens to train on, and a batch has {batch_size}: give more "
                "texts, or a smaller batch_size."
            )
        if not len(states.held_out):
            states.remove()
            raise ValueError(
                "no text is held out to measure on: one in ten is (of a list of fewer than twenty, one "
                "window in ten), and there are fewer. Give more texts."
            )
        run = Run(plan, states, torch.device(device) if device else _device(inner), about)
        run.resume(where if checkpoint is not None else None)
        try:
            finished = run.go(where if checkpoint is not None else None)
        except TrainingDivergedError as error:
            _described(error.sae, inner, place, corpus)
            raise
        sae = _described(run.sae(), inner, place, corpus)
        if checkpoint is not None and finished:
            states.remove()
            (where / STATE).unlink(missing_ok=True)
    return sae


_NAMES = (
    *("model", "tokenizer", "texts", "site", "d_sae", "l1", "k", "steps", "batch_size", "lr", "seed"),
    *("context", "max_tokens", "prepend_bos", "device", "folder", "checkpoint"),
)


def _described(sae: SAE, model: nn.Module, site: HookPoint, corpus: Corpus) -> SAE:
    """Return an SAE that says what it is of."""
    name = getattr(getattr(model, "config", None), "name_or_path", "")
    sae.site = hook_name(model, site)
    sae.model_name = str(name or type(model).__name__)
    sae.metadata = {
        "hf_hook_name": f"{site.module}.{site.side}",
        "context_size": corpus.context,
        "prepend_bos": bool(corpus.before),
        "exclude_special_tokens": True,
    }
    sae.origin = "trained here"
    return sae


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters() if p.device.type != "meta"), torch.device("cpu"))
