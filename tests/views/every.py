"""Every public view, found by walking the subclasses of `View`, with the smallest content for each."""

from __future__ import annotations

import functools

import numpy as np
import torch

import attnwidgets as aw
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.views.base.view import View
from attnwidgets.views.circuits import sources_view, why_view
from tests.concepts.made import concept_scores, distilled, influence
from tests.explanations.made import random_classifier
from tests.sae import made
from tests.speech.made import heard
from tests.tracing import tiny
from tests.tracing.pictures import PICTURES
from tests.zoo.made import made as zoo


def public_views() -> dict[str, type[View]]:
    """Return the views at the top and in `aw.views`, by name."""
    items = {name: getattr(space, name) for space in (aw, aw.views) for name in space.__all__}
    return {name: item for name, item in items.items() if isinstance(item, type) and issubclass(item, View)}


def every_view() -> list[str]:
    public_views()  # a view is loaded on first use
    aw.ask.Question, aw.people.StudyView  # noqa: B018
    classes, names = [View], set()
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        if kind.__module__.startswith("attnwidgets.") and "_VIEW" in vars(kind):
            names.add(kind._VIEW)
    return sorted(names - {""})


def kind_of(name: str) -> type[View]:
    """Return the class of a view."""
    apart = {"Question": aw.ask.Question, "StudyView": aw.people.StudyView, "WhyView": why_view.WhyView}
    apart["SourcesView"] = sources_view.SourcesView
    return {**public_views(), **apart}[name]


def make(name: str, given, **options):
    """Return a view of a trace of given numbers, or of other content where a view takes no trace."""
    shown = OTHERS.get(name)
    return kind_of(name)(*([given()] if shown is None else shown()), **options)


def _queries():
    eye = ((1.0, 0.0), (0.0, 1.0))
    return [aw.from_qkv(eye, eye, eye)]


def _two_texts():
    given = [[[[1.0, 0.0], [0.5, 0.5]]]]
    return [[aw.from_attentions(given, ["a", name]) for name in ("b", "c")]]


@functools.cache
def _picture():
    vit = PICTURES["ViT"]
    return [aw.trace(tiny.build(vit.make), None, image=vit.picture())]


@functools.cache
def _masked():
    model = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3))
    sae = made.sae(d_in=32, site=made.SITE)
    sae.maxima = torch.linspace(1, 5, 20)
    return [aw.trace(model, tiny.wordpiece(), "the new cat sat."), sae]


def _patching():
    """A patching of given numbers."""
    raw = {"state": [[0.0, 2.0], [0.0, 1.0]], "head": [[0.5, 0.0], [-1.0, 2.0]]}
    texts = {"clean_tokens": ["a", "b"], "corrupt_tokens": ["a", "c"], "differs": [1]}
    return [
        aw.results.Patching(raw, direction="denoise", clean=2.0, corrupt=0.0, target="x", foil="y", **texts)
    ]


def _lens():
    """A lens of given numbers."""
    plane = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 1.0]])
    top = {"top_ids": np.ones((3, 2, 1)), "top_probabilities": plane[..., None], "labels": {1: "x"}}
    numbers = {"probability": plane, "rank": [[9, 8], [4, 3], [1, 0]], "entropy": plane, "kl": 1 - plane}
    return [aw.results.Lens(**numbers, **top, answer="x", tokens=["a", "b"])]


def _claims():
    """Two claims with a text each, of given numbers."""
    text = aw.results.ClaimText(0, "a b", "", 0.5, 0.1, (0,), (1,))
    numbers = {"mean": 0.5, "interval": (0.4, 0.6), "difference": 0.4, "difference_interval": (0.3, 0.5)}
    about = {
        "causal": False,
        "unit": "share of attention",
        "control": "same layer",
        "p_holds": 0.1,
        "p_fails": 1.0,
    }
    rest = {"heads": {"same layer": ((0, 0, 0.1),)}, "baselines": {"token 0": 0.2}, "given": 2}
    results = [
        aw.results.ClaimResult(
            claim=f"head 0.1 attends from {name} to any", verdict=verdict, texts=(text,),
            left_out=(("role absent", 1),), **numbers, **about, **rest,
        )
        for name, verdict in (("a", "holds"), ("b", "undecided"))
    ]  # fmt: skip
    return [aw.results.ClaimReport(results, margin=0.1, level=0.95)]


@functools.cache
def _why():
    """Why the induction head of a compiled model reads the letter after the query's."""
    trace = aw.trace(*zoo("induction", letters="abcdefgh", length=16), "fadebcfadeb")
    return [aw.why(trace, 11, 6, layer=1, head=0)]


def _sources():
    """The messages that an answer of two sentences rests on, of given numbers."""
    labels = ["0 user: It is red.", "1 user: Is it?", "the answer so far"]
    axis = TokenAxis.plain(labels, name="message")
    answer = ("It is red.", "Yes.")
    scores = aw.results.Attributions(
        [[2.5, 1.0, 0.0], [0.25, 3.0, -1.0]], axis=axis, unit="message", target=answer
    )
    return [aw.results.Sources(scores, ("", "question", "answer"), ((0,), (1,), (2, 3)))]


def _study():
    items = [{"text": "a text", "prediction": "yes", "explanations": {"a": "why"}}]
    texts = {"question": "How far?", "consent": "Do you agree?"}
    options = {"design": "between", "texts": texts, "checks": 0}
    return [aw.people.study("trust", items, ["none", "a"], **options)]


@functools.cache
def _run():
    """A run of two untrained models."""
    models = {step: zoo("induction", letters="abcdefgh", length=16) for step in (0, 10)}
    return [aw.checkpoints({step: model for step, (model, _) in models.items()}, models[0][1])]


OTHERS = {
    "ImageView": _picture,
    "AudioView": lambda: [heard()],
    "ClaimView": _claims,
    "ConceptView": lambda: [concept_scores()],
    "InfluenceView": lambda: [influence()],
    "LensView": _lens,
    "NeuronView": _queries,
    "PatchView": _patching,
    "Question": lambda: ["number", "How many heads has the model?", "heads"],
    "RemovalView": lambda: [aw.trace(random_classifier(), tiny.wordpiece(), "cat")],
    "ShapeView": lambda: [distilled()],
    "RunView": _run,
    "ScorecardView": lambda: [aw.results.Scorecard([[[[1.0]]]], metrics=["m"], methods=["a"], x=[0])],
    "SteerView": _masked,
    "SourcesView": _sources,
    "StudyView": _study,
    "TwoTexts": _two_texts,
    "WhyView": _why,
    **dict.fromkeys(("FeaturePanel", "FeatureStrip", "FeatureTable"), lambda: [aw.sae_features(*_masked())]),
}
