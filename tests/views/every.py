"""Every public view, found by walking the subclasses of `View`, with the least that each of them shows."""

from __future__ import annotations

import functools

import torch

import attnwidgets as aw
from attnwidgets.views.base.view import View
from tests.explanations.made import random_classifier
from tests.sae import made
from tests.tracing import tiny


def every_view() -> list[str]:
    for name in aw.__all__:
        getattr(aw, name)  # a view is loaded on first use
    aw.ask.Question  # noqa: B018
    classes, names = [View], set()
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        if kind.__module__.startswith("attnwidgets.") and "_VIEW" in vars(kind):
            names.add(kind._VIEW)
    return sorted(names - {""})


def kind_of(name: str) -> type[View]:
    """Return the class of a view."""
    return aw.ask.Question if name == "Question" else getattr(aw, name)


def make(name: str, given, **options):
    """Return a view of a trace of given numbers, or of what is listed here where a view takes no trace."""
    shown = OTHERS.get(name)
    return kind_of(name)(*([given()] if shown is None else shown()), **options)


def _queries():
    eye = ((1.0, 0.0), (0.0, 1.0))
    return [aw.from_qkv(eye, eye, eye)]


def _two_texts():
    given = [[[[1.0, 0.0], [0.5, 0.5]]]]
    return [[aw.from_attentions(given, ["a", name]) for name in ("b", "c")]]


@functools.cache
def _masked():
    model = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3))
    sae = made.sae(d_in=32, site=made.SITE)
    sae.maxima = torch.linspace(1, 5, 20)
    return [aw.trace(model, tiny.wordpiece(), "the new cat sat."), sae]


@functools.cache
def _patched():
    """Both directions of patching, and a lens, of a model whose circuit is known."""
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))
    both = aw.circuits.patch(clean, corrupt, "c", foil="a", how="both")
    claims = ["head 1.0 is induction", "head 1.1 is induction"]
    texts = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa"]
    return both, aw.circuits.lens(clean, "c"), aw.circuits.check_claims(claims, model, tokenizer, texts)


OTHERS = {
    "ClaimView": lambda: [_patched()[2]],
    "LensView": lambda: [_patched()[1]],
    "NeuronView": _queries,
    "PatchView": lambda: [_patched()[0]],
    "Question": lambda: ["number", "How many heads has the model?", "heads"],
    "RemovalView": lambda: [aw.trace(random_classifier(), tiny.wordpiece(), "cat")],
    "ScorecardView": lambda: [aw.evaluate.Scorecard([[[[1.0]]]], metrics=["m"], methods=["a"], x=[0])],
    "SteerView": _masked,
    "TwoTexts": _two_texts,
    **dict.fromkeys(("FeaturePanel", "FeatureStrip", "FeatureTable"), lambda: [aw.sae_features(*_masked())]),
}
