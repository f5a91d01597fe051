"""Relative concepts: the direction from the texts of one concept to those of another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.concepts.concept_sets import ConceptSets, require_named

if TYPE_CHECKING:
    from attnwidgets.concepts.concept_scores import ConceptScores


def relative(scores: ConceptScores, concept: str, other: str) -> ConceptScores:
    """Return the scores of one concept against another; see `ConceptScores.against`."""
    from attnwidgets.concepts.tcav import concept_scores

    sets: ConceptSets = scores._sets  # noqa: SLF001 - a part of its class
    for name in (concept, other):
        require_named(name, scores.concepts)
        if name not in sets.rows:
            raise ValueError(
                f"concept {name!r} was given as a direction; a relative concept needs the texts of both."
            )
    first, second = (
        np.setdiff1d(sets.rows[a], sets.rows[b]) for a, b in ((concept, other), (other, concept))
    )
    if not len(first) or not len(second):
        raise ValueError(
            f"concepts {concept!r} and {other!r} hold the same texts and cannot be distinguished."
        )
    shared = len(np.intersect1d(sets.rows[concept], sets.rows[other]))
    left = "1 text of both concepts is" if shared == 1 else f"{shared} texts of both concepts are"
    notes = (f"{left} left out",) if shared else ()
    name = f"{concept} rather than {other}"
    pair = ConceptSets(sets.texts, {name: first}, {}, second, (second,), notes)
    settings = replace(scores._settings, runs=1)  # noqa: SLF001
    found = concept_scores(pair, scores.texts, scores.examples, settings)
    return replace(found, random=scores.random, _sets=replace(sets, rows={name: first}, vectors={}))
