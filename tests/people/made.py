"""Studies of given numbers."""

from __future__ import annotations

import attnwidgets as aw

WORDS = ["a", "plain", "text", "it", "was"]
ANSWERS = ("no", "yes")


def items(count=8, *conditions, **more):
    """Items whose explanations have a value for each word, of both signs, in every condition."""
    return [
        {
            "text": " ".join([*WORDS, str(i)]),
            "prediction": ANSWERS[i // 2 % 2],
            "explanations": {
                name: ([*WORDS, str(i)], [0.1, -0.2, 0.9, 0.0, 0.3, 0.4]) for name in conditions or ("lrp",)
            },
            **more,
        }
        for i in range(count)
    ]


def study(kind="forward", conditions=("none", "lrp"), count=8, **options):
    explained = [name for name in conditions if name not in ("none", "random")]
    more = {
        "counterfactual": {"changed": "another text", "changed_prediction": "yes"},
        "which_model": {"better": 1, "prediction": ("yes", "no")},
        "remove_words": {"remove": ("plain",)},
    }.get(kind, {})
    given = items(count, *explained, **more)
    if kind == "which_model":
        for item in given:
            item["explanations"] = {name: (entry, entry) for name, entry in item["explanations"].items()}
    if kind == "counterfactual":
        for i, item in enumerate(given):
            item["changed_prediction"] = ANSWERS[i % 2]
    return aw.people.study(kind, given, conditions, **options)
