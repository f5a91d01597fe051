"""Models and texts that several tests of the zoo use, and their outputs."""

from __future__ import annotations

import functools

import torch

import attnwidgets as aw

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# name -> settings and a text that has an answer
SMALL = {
    "induction": ({"letters": "abcdefgh", "length": 16}, "fadebcfadeb"),
    "histogram": ({"how": "same"}, "abacabadab"),
    "additive": ({}, "abchgfba"),
    "negation": ({}, "abna"),
    "two_hop": ({}, "bcefaba"),
    "dyck": ({}, "([]()"),
}
# the same of models without attention
RECURRENT = {
    "last_marked": ({}, "cf#bd#aheg"),
    "decayed_counts": ({}, "bacabada"),
}
EVERY = SMALL | RECURRENT


@functools.cache
def made(name, **settings):
    """A model and its tokenizer; tests must not change them."""
    return getattr(aw.zoo, name)(**settings)


@functools.cache
def traced(name, text=""):
    """The small model of a name, its tokenizer, and its trace of a text."""
    settings, default = EVERY[name]
    model, tokenizer = made(name, **settings)
    return model, tokenizer, aw.trace(model, tokenizer, text or default)


def logits_of(model, tokenizer, texts):
    """Logits of texts of equal length, in float32."""
    with torch.no_grad():
        return model(**tokenizer(texts, return_tensors="pt")).logits.float()
