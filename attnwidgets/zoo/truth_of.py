"""The truth of a model that was made by `aw.zoo`, also after it was saved and loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnwidgets.zoo.truth import Truth

COMPILED = ("induction", "histogram", "additive", "negation", "two_hop", "dyck")
"""The compiled models, each a function of `aw.zoo`."""


def truth_of(model: Any) -> Truth:
    """Return what is known of a model of `aw.zoo`: `model.truth`, or that of the model its files describe.

    Files of a model hold its weights and its configuration. The configuration says what a compiled model was
    made of, from which its truth is made again; whether its weights were changed since is not looked at.

    Args:
        model: A model of `aw.zoo`, or one that was loaded from its files.

    Raises:
        ValueError: If it is neither.

    Example:
        >>> aw.zoo.truth_of(aw.zoo.induction()[0]).heads[0, 0]
        'previous token'
    """
    from attnwidgets import zoo

    if (known := getattr(model, "truth", None)) is not None:
        truth: Truth = known
        return truth
    made_of = getattr(getattr(model, "config", None), "zoo", None)
    if not isinstance(made_of, dict) or made_of.get("name") not in COMPILED:
        raise ValueError(
            f"model has no known truth: this {type(model).__name__} has no .truth, and is not of aw.zoo."
        )
    settings = {name: value for name, value in made_of.items() if name != "name"}
    try:
        made: Truth = getattr(zoo, made_of["name"])(**settings)[0].truth
    except TypeError as error:
        raise ValueError(f"model.config.zoo is not what aw.zoo wrote: {error}") from error
    return made
