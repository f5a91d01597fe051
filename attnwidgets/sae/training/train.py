"""Training of SAEs: a recipe that takes minutes for a real model, on two cores or an accelerator.

States are scaled to a mean length of sqrt(d_in). b_dec starts as their mean, W_dec as random directions and
W_enc as its transpose. The optimizer is Adam: the learning rate is warmed up over the first tenth of the
steps and decayed over the last fifth, the penalty is warmed up over the first tenth, and gradients are
clipped to norm 1. The scale is folded into the weights at the end, so that the SAE reads unscaled states.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._errors import suggests_keywords
from attnwidgets.sae.corpus import CONTEXT, Corpus
from attnwidgets.sae.dependencies import states_about
from attnwidgets.sae.training.harvest import by_windows, harvest
from attnwidgets.sae.training.training_run import STATE, Plan, Run, TrainingDivergedError
from attnwidgets.tracing.content import fingerprint_of, tokenizer_fingerprint
from attnwidgets.tracing.hooks.hook_point import hook_name, resolve_hook_point
from attnwidgets.tracing.recording.borrow import borrowed, unwrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn

    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

L1 = 1.8
"""Default weight of the lecture penalty, used if neither l1 nor k is given."""


@suggests_keywords
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
) -> SAE:
    """Train an SAE on a model's states at a hook point; `aw.SAE.train`.

    States are read once and stored in a temporary file. Special tokens and padding are left out, as is a
    decoder's first token if it is not a beginning-of-text token. Every tenth text (with fewer than twenty
    texts, every tenth window) is held out for measurements.

    Args:
        model: A model that torch can run; left unchanged.
        tokenizer: Its tokenizer; None if texts are token ids.
        texts: Any number of texts; a few hundred thousand tokens make a good SAE of a small model.
        site: Hook point to read; see `attnwidgets.tracing.hooks.hook_point`.
        d_sae: Number of features.
        l1: Weight of the lecture penalty, mean sum_j a_j ||W_dec_j||, added to the mean squared error of
            states of mean length sqrt(d_in); 1.8 by default. Larger values give sparser features.
        k: Number of active features per token (topk), instead of a penalty.
        steps: Number of training steps.
        batch_size: Tokens per step.
        lr: Peak learning rate of Adam.
        seed: Seed of the initial directions and the order of tokens: the same call gives the same SAE.
        context: Tokens the model reads at once, special tokens included.
        max_tokens: Largest number of tokens to train on.
        prepend_bos: Whether texts begin with the beginning-of-text token; None as the tokenizer does.
        device: Device of the training; by default that of the model.
        folder: Folder for the states (4 d_in bytes per token); by default a temporary folder.
        checkpoint: Folder that stores states and training until they are done; the same call resumes from it.

    Returns:
        An SAE of unscaled states, with `sae.history` (loss, L0, explained variance, dead features) and
        `sae.maxima`. After an interrupt, the SAE trained so far; its history says so.

    Raises:
        ValueError: If texts have fewer tokens than a batch, the model lacks the hook point, an option is
            out of range, or the checkpoint belongs to another model, tokenizer, hook point, texts or options
            (the message says which).
        OSError: If the disk is full; partial files are removed.
        TrainingDivergedError: If the loss becomes NaN (the message names the step); its `.sae` is the last
            good SAE.

    Source: Bricken et al. 2023, Towards Monosemanticity; Anthropic, April 2024 update (the penalty); Gao et
    al. 2024 (topk).
    """
    inner = unwrap(model)
    hook_point = resolve_hook_point(inner, site)
    plan = Plan(d_sae, L1 if l1 is None and k is None else l1, k, steps, batch_size, lr, seed)
    plan.check()
    corpus = Corpus(inner, tokenizer, texts, context=context, prepend_bos=prepend_bos)
    about: dict[str, Any] = {}
    if checkpoint is not None:
        prints = fingerprint_of(inner), tokenizer_fingerprint(corpus.tokenizer)
        held_out = "windows" if by_windows(texts) else "texts"
        about = states_about(prints, corpus, hook_point, max_tokens=max_tokens, held_out=held_out)
    checkpoint_folder = None if checkpoint is None else Path(checkpoint)
    with ExitStack() as stack:
        if checkpoint_folder is None:
            temporary = tempfile.TemporaryDirectory(dir=folder, prefix="attnwidgets-")
            states_folder = Path(stack.enter_context(temporary))
        else:
            states_folder = checkpoint_folder
            checkpoint_folder.mkdir(exist_ok=True)
        with borrowed(inner) as twin:
            states = harvest(twin, corpus, hook_point, states_folder, max_tokens=max_tokens, about=about)
        if checkpoint_folder is None:
            stack.callback(states.remove)
        if states.tokens < batch_size:
            states.remove()
            raise ValueError(
                f"texts contain {states.tokens} tokens to train on, fewer than batch_size={batch_size}: pass "
                "more texts, or a smaller batch_size."
            )
        if not len(states.held_out):
            states.remove()
            raise ValueError(
                "no text is held out for measurements: one in ten is (one window in ten of fewer than twenty "
                "texts), and there are fewer. Pass more texts."
            )
        run = Run(plan, states, torch.device(device) if device else _device(inner), about)
        run.resume(checkpoint_folder)
        try:
            finished = run.train(checkpoint_folder)
        except TrainingDivergedError as error:
            _describe(error.sae, inner, hook_point, corpus)
            raise
        sae = _describe(run.sae(), inner, hook_point, corpus)
        if checkpoint_folder is not None and finished:
            states.remove()
            (checkpoint_folder / STATE).unlink(missing_ok=True)
    return sae


def _describe(sae: SAE, model: nn.Module, hook_point: HookPoint, corpus: Corpus) -> SAE:
    """Return an SAE with its hook point, model and metadata filled in."""
    name = getattr(getattr(model, "config", None), "name_or_path", "")
    sae.site = hook_name(model, hook_point)
    sae.model_name = str(name or type(model).__name__)
    sae.metadata = {
        "hf_hook_name": f"{hook_point.module}.{hook_point.side}",
        "context_size": corpus.context,
        "prepend_bos": bool(corpus.before),
        "exclude_special_tokens": True,
    }
    sae.origin = "trained here"
    return sae


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters() if p.device.type != "meta"), torch.device("cpu"))
