"""The ramps' numbers: zero is the page, steps are even, sides are equal, and nobody confuses them."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest

from attnwidgets.figures.palettes import RAMPS, ink_on, lightness, linear, luminance, ramp

STEPS = 17  # colours that a reader is to tell apart
PAGES = {"paper": 255, "paperNight": 17, "sides": 255, "sidesNight": 17}

# Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of color vision
# deficiency", severity 1, on linear light.
VISIONS = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])

EVEN = 0.05  # of a step of lightness
EQUAL = 2.0  # L* between the sides
READABLE = 4.5  # contrast of the ink
STEP = 3.5  # ΔE*ab between neighbours of 17 colours; 2.3 is just noticeable
APART = 35.0  # ΔE*ab of the two ends of a diverging ramp; at a share of them, that share


def cielab(colours, vision="all cones"):
    light = np.clip(linear(np.asarray(colours)) @ VISIONS[vision].T, 0, 1)
    white = XYZ.sum(axis=1)
    t = light @ XYZ.T / white
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def contrast(colour, ink):
    a, b = (float(luminance(np.asarray(item))) + 0.05 for item in (colour, ink))
    return max(a, b) / min(a, b)


def zero_fault(colours, page):
    """The page's colour at zero: the first colour, or the middle colour."""
    off = np.abs(255 * np.asarray(colours) - page).max()
    return f"zero is {off:.1f} levels from the page" if off > 1 else ""


def even_fault(arm):
    """An arm from zero to its end: ever darker or ever paler, by equal steps."""
    steps = np.diff(lightness(arm))
    if steps.min() * steps.max() <= 0:
        return "lightness turns"
    off = np.abs(steps / steps.mean() - 1).max()
    return f"a step is {100 * off:.0f} % off" if off > EVEN else ""


def sides_fault(against, both):
    off = np.abs(lightness(against) - lightness(both)).max()
    return f"the sides differ by {off:.1f} in L*" if off > EQUAL else ""


def ink_fault(colours, ink=ink_on):
    worst = min(contrast(c, (0, 0, 0) if ink(c) == "black" else (1, 1, 1)) for c in colours)
    return f"ink has a contrast of {worst:.2f}" if worst < READABLE else ""


def step_fault(arm):
    for vision in VISIONS:
        least = np.linalg.norm(np.diff(cielab(arm, vision), axis=0), axis=1).min()
        if least < STEP:
            return f"{vision}: steps of {least:.1f}"
    return ""


def confused_fault(against, both):
    share = np.linspace(0, 1, len(both))
    for vision in VISIONS:
        apart = np.linalg.norm(cielab(against, vision) - cielab(both, vision), axis=1)
        if (apart < APART * share).any():
            return f"{vision}: {apart.round(1)}"
    return ""


def arms(name):
    """Arms of a ramp from zero to the end, [step, channel]."""
    if len(RAMPS[name]) == 1:
        return [ramp(name, STEPS)]
    whole = ramp(name, 2 * STEPS - 1)
    return [whole[STEPS - 1 :: -1], whole[STEPS - 1 :]]


@pytest.mark.parametrize("name", RAMPS)
def test_zero_is_the_page_and_steps_are_even_and_told_apart_and_readable(name):
    for arm in arms(name):
        assert not zero_fault(arm[0], PAGES[name])
        assert not even_fault(arm)
        assert not step_fault(arm)
    assert not ink_fault(ramp(name))


@pytest.mark.parametrize("name", ["sides", "sidesNight"])
def test_signs_are_equally_light_and_are_told_apart_by_any_colour_vision(name):
    assert not sides_fault(*arms(name))
    assert not confused_fault(*arms(name))
    end = ramp(name)[-1]
    assert end[0] > end[1] > end[2], "orange is for"


@pytest.mark.parametrize("name", RAMPS)
def test_the_page_has_the_same_ramps(root, name):
    source = (root / "js" / "src" / "colormaps.ts").read_text()
    knots = base64.b64decode(re.search(rf'\b{name}: "([^"]+)"', source)[1])
    colours = np.frombuffer(knots, np.uint8).reshape(-1, 3)
    np.testing.assert_allclose(colours, 255 * ramp(name, len(colours)), atol=1)


def line(*ends, steps=STEPS):
    """A bad ramp: straight in sRGB."""
    ends = np.array(ends, dtype=float)
    at = np.linspace(0, len(ends) - 1, steps)
    return np.stack([np.interp(at, range(len(ends)), ends[:, c]) for c in range(3)], axis=1)


def test_bad_ramps_are_found():
    white, red, green, blue = (1, 1, 1), (0.8, 0.15, 0.1), (0.1, 0.5, 0.1), (0.1, 0.15, 0.8)
    assert "levels" in zero_fault((0.97, 0.97, 0.97), 255), "a page that is nearly white"
    assert "off" in even_fault(line(white, blue, (0, 0, 0))), "uneven steps"
    assert "turns" in even_fault(line(white, blue, white))
    assert "L*" in sides_fault(line(white, (1, 0.6, 0)), line(white, blue))
    assert "steps" in step_fault(line(white, (0.9, 0.9, 0.9)))
    assert "opia" in confused_fault(line(white, green), line(white, red)), "red and green"
    assert "contrast" in ink_fault(ramp("paper"), lambda _: "black"), "an ink that never flips"
