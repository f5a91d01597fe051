"""The recipes by name."""

from __future__ import annotations

from attnwidgets.zoo.train import alice, dates, dyck, fairwashed, histogram, induction, recall, scenes

RECIPES = {
    module.RECIPE.name: module.RECIPE
    for module in (induction, dyck, histogram, recall, dates, alice, fairwashed, scenes)
}
