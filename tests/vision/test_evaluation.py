"""Metrics on pictures: operators beside independent code, and classes of a single patch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

import attnwidgets as aw
from attnwidgets.evaluate.metrics.localisation import mask_as_seen, spread
from attnwidgets.evaluate.removals.media_operators import PictureRemoval, blurred, imputed
from tests.tracing.test_media import processor
from tests.vision.pictures import noise, vit

PATCH, SIDE = 8, 64
SHARES = (0.0, 0.05, 0.2, 0.5, 1.0)


def coloured() -> Any:
    """Return a model whose three classes are a red, a green and a blue patch."""
    reads = torch.nn.Conv2d(3, 3, PATCH, stride=PATCH)
    with torch.no_grad():
        colour = (torch.eye(3) * 1.5 - 0.5)[:, :, None, None] / PATCH**2
        reads.weight.copy_(colour.expand_as(reads.weight))
        reads.bias.fill_(-0.2)
    head = torch.nn.Linear(3, 3, bias=False)
    head.weight.data.copy_(300 * torch.eye(3))
    pool = torch.nn.AdaptiveAvgPool2d(1)
    return torch.nn.Sequential(reads, torch.nn.ReLU(), pool, torch.nn.Flatten(), head).eval()


def example(number: int) -> tuple[Any, np.ndarray, int]:
    """Return the trace of a grey picture with a coloured patch, the patch as a mask, and its class."""
    generator = np.random.default_rng(number)
    row, column = generator.integers(0, SIDE // PATCH, 2) * PATCH
    kind = number % 3
    grey = np.repeat(generator.normal(0, 0.3, (1, SIDE, SIDE)), 3, axis=0)
    mask = np.zeros((SIDE, SIDE), bool)
    mask[row : row + PATCH, column : column + PATCH] = True
    grey[:, mask] -= 1  # as bright as the rest, so that no edge gives it away
    grey[kind][mask] += 3
    return aw.trace(coloured(), None, image=torch.from_numpy(grey).float()), mask, kind


@pytest.fixture(scope="module")
def examples() -> tuple[Any, Any]:
    made = [example(number) for number in range(12)]
    assert all(trace.predictions(1)[0].id == kind for trace, _, kind in made)
    return [trace for trace, *_ in made], [mask for _, mask, _ in made]


METHODS = {"grad_cam": "grad_cam", "lrp": "lrp", "input x gradient": ("input_x_gradient", {})}


def test_a_right_method_always_points_at_the_patch_and_chance_one_time_in_n(examples: Any) -> None:
    traces, masks = examples
    card = aw.evaluate.localisation(
        traces,
        {**METHODS, **aw.vision.PRIORS},
        masks,
        tolerance=0,
        baseline=aw.evaluate.RandomBaseline(draws=5),
    )
    scores = dict(zip(card.methods, card.mean[:, :, 0].T, strict=True))
    metrics = list(card.metrics)
    for name in METHODS:
        assert scores[name][metrics.index("pointing_game")] == 1
        assert scores[name][metrics.index("energy_in_mask")] > 0.9
        assert scores[name][metrics.index("mean_iou")] > 0.9
    n = (SIDE // PATCH) ** 2
    assert scores["random"][metrics.index("pointing_game")] == pytest.approx(1 / n)
    assert scores["random"][metrics.index("energy_in_mask")] == pytest.approx(1 / n, rel=0.2)
    assert scores["centre prior"][metrics.index("pointing_game")] < 0.2
    assert (scores["oracle"] == 1).all()


def test_a_pointer_beside_the_mask_is_forgiven_within_the_tolerance(examples: Any) -> None:
    (trace, *_), (mask, *_) = examples
    row, column = (axis[0] // PATCH for axis in np.nonzero(mask))
    values = np.zeros((SIDE // PATCH, SIDE // PATCH))
    values[row, column + (1 if column < 7 else -1)] = 1
    beside = aw.results.Attributions(
        values.reshape(-1), axis=trace.axes()[0], unit="patch", trace_id=trace.id
    )
    options = {"metrics": "pointing_game"}
    for tolerance, expected in ((0, 0), (3, 0), (5, 1), (15, 1)):
        card = aw.evaluate.localisation(trace, beside, mask, tolerance=tolerance, **options)
        assert card.samples[0, 0, 0, 0] == expected


@pytest.mark.parametrize("operator", aw.evaluate.PICTURE_OPERATORS)
def test_the_right_patch_first_beats_chance_the_middle_and_the_edges(examples: Any, operator: str) -> None:
    traces = examples[0][: 1 if operator == "neighbours" else 3]
    card = aw.evaluate.faithfulness(
        traces,
        {"grad_cam": "grad_cam", **aw.vision.PRIORS},
        removal=aw.evaluate.Removal(operator, thresholds=SHARES, draws=3, score="number"),
        metrics=("deletion", "insertion"),
    )
    between = aw.evaluate.abpc(card)
    score = dict(zip(between.methods, between.mean[0, :, 0], strict=True))
    best = score.pop("grad_cam")
    assert best == pytest.approx(score.pop("oracle"), rel=0.05)
    assert best > 1.5 * max(score.values())
    deletion = card.mean[0, 0]
    assert deletion[0] == pytest.approx(np.mean([float(t.logits.max()) for t in traces]), rel=1e-5)
    # The class depends on a single patch of 64.
    assert deletion[1] < 0.5 * deletion[0]
    assert aw.evaluate.aopc(card).mean[0, 0, 0] == pytest.approx(deletion.mean())


def test_methods_by_token_and_by_patch_are_scored_together() -> None:
    trace = aw.trace(vit(), None, image=noise(32, 32))
    both = {"chefer": "chefer", "grad_cam": "grad_cam"}
    card = aw.evaluate.faithfulness(
        trace, both, removal=aw.evaluate.Removal("blur", draws=2), metrics="deletion"
    )
    named = aw.evaluate.faithfulness(
        trace, both, removal=aw.evaluate.Removal("blur", draws=2), metrics="deletion", unit="patch"
    )
    assert np.array_equal(card.mean, named.mean)


def test_abpc_is_the_area_between_both_orders_of_removal(examples: Any) -> None:
    trace = examples[0][0]
    shares = tuple(np.linspace(0, 1, 9))
    up = aw.vision.grad_cam(trace)
    down = aw.results.Attributions(-up.values, axis=up.axis, unit="patch", trace_id=trace.id)
    removal = aw.evaluate.Removal("mean_image", thresholds=shares, oracle=None, draws=1)
    card = aw.evaluate.faithfulness(trace, up, metrics=("deletion", "insertion"), removal=removal)
    other = aw.evaluate.faithfulness(trace, down, metrics="deletion", removal=removal)
    expected = aw.evaluate.area(other).samples[0, 0, 0, 0] - aw.evaluate.area(card).samples[0, 0, 0, 0]
    assert aw.evaluate.abpc(card).samples[0, 0, 0, 0] == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="'insertion' is not in the card"):
        aw.evaluate.abpc(other)
    half = aw.evaluate.faithfulness(
        trace, up, metrics=("deletion", "insertion"), removal=aw.evaluate.Removal("blur", draws=1)
    )
    with pytest.raises(ValueError, match="thresholds from 0 to 1"):
        aw.evaluate.abpc(half)


def removed(trace: Any, operator: Any, *tokens: int) -> torch.Tensor:
    """Return the pixels that the model reads without some tokens."""
    gone = np.zeros((1, len(trace.tokens)), bool)
    gone[0, list(tokens)] = True
    return PictureRemoval(trace, operator).inputs(gone)["pixel_values"][0]


def test_every_operator_changes_its_patch_and_no_other_pixel() -> None:
    given = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    reader = processor("ViTImageProcessor", size={"height": 32, "width": 32})
    trace = aw.trace(vit(), reader, image=Image.fromarray(given))
    before = trace.inputs["pixel_values"][0]
    inside = torch.zeros(32, 32, dtype=torch.bool)
    inside[8:16, 16:24] = True  # token 7, after [CLS], is the patch in row 1, column 2
    for operator in aw.evaluate.PICTURE_OPERATORS:
        after = removed(trace, operator, 7)
        assert torch.equal(after[:, ~inside], before[:, ~inside])
        assert not torch.equal(after[:, inside], before[:, inside])
        assert torch.equal(removed(trace, operator, 0), before)  # the class token has no pixels
    assert torch.allclose(removed(trace, "mean_image", 7)[:, inside], before.mean((1, 2))[:, None])
    assert torch.allclose(removed(trace, "zero_image", 7)[:, inside], torch.tensor(-1.0))  # black
    bare = aw.trace(vit(), None, image=noise(32, 32))
    assert not removed(bare, "zero_image", 7)[:, inside].any()


def test_blur_is_a_gaussian_of_a_patch() -> None:
    pixels = noise(40, 56)
    expected = [
        gaussian_filter(plane, 8.0, mode="nearest", truncate=3.0) for plane in pixels.double().numpy()
    ]
    assert np.allclose(blurred(pixels[None].double(), 8.0)[0], expected, atol=1e-12)


def test_linear_imputation_solves_the_authors_equations() -> None:
    generator = np.random.default_rng(3)
    pixels = generator.normal(size=(2, 9, 7))
    gone = generator.random((9, 7)) < 0.6
    filled = imputed(pixels, gone)
    assert np.array_equal(filled[:, ~gone], pixels[:, ~gone])
    holes = list(map(tuple, np.argwhere(gone)))
    matrix, right = np.zeros((len(holes),) * 2), np.zeros((len(holes), 2))
    for number, (row, column) in enumerate(holes):
        for near in range(row - 1, row + 2):
            for beside in range(column - 1, column + 2):
                if (near, beside) == (row, column) or not (0 <= near < 9 and 0 <= beside < 7):
                    continue
                weight = 1 / 6 if near == row or beside == column else 1 / 12
                matrix[number, number] += weight
                if gone[near, beside]:
                    matrix[number, holes.index((near, beside))] -= weight
                else:
                    right[number] += weight * pixels[:, near, beside]
    exact = np.linalg.solve(matrix, right)
    difference = np.stack([filled[:, row, column] for row, column in holes]) - exact
    assert 0.005 < difference.std() < 0.015  # the authors' noise, of 0.01
    assert np.array_equal(imputed(pixels, gone), filled)
    assert np.abs(imputed(pixels, np.ones_like(gone))).max() < 0.1


def test_segmentation_equals_sklearn_and_torch() -> None:
    from sklearn.metrics import average_precision_score, jaccard_score

    trace = aw.trace(vit(), None, image=noise(32, 32))
    values = np.round(np.random.default_rng(1).normal(size=17), 1)  # with ties
    given = aw.results.Attributions(values, axis=trace.axes()[0], unit="patch", trace_id=trace.id)
    mask = np.zeros((32, 32), int)
    mask[5:20, 3:22] = 1
    grid = torch.from_numpy(values[1:].reshape(1, 1, 4, 4))
    for how, options in (("nearest", {}), ("bilinear", {"align_corners": False})):
        large = torch.nn.functional.interpolate(grid, (32, 32), mode=how, **options)[0, 0].numpy()
        assert np.allclose(spread(values[1:].reshape(4, 4), (32, 32), how), large)
        card = aw.evaluate.localisation(trace, given, mask, upsampling=how)
        got = dict(zip(card.metrics, card.samples[0, :, 0, 0], strict=True))
        chosen = (large > large.mean()).reshape(-1)
        # Pixels at the very mean may be rounded to either side.
        assert got["pixel_accuracy"] == pytest.approx((chosen == mask.reshape(-1)).mean(), abs=2 / mask.size)
        iou = [jaccard_score(mask.reshape(-1), chosen, pos_label=kind) for kind in (0, 1)]
        assert got["mean_iou"] == pytest.approx(np.mean(iou), abs=4 / mask.size)
        scaled = (large - large.min()) / np.ptp(large)
        both = np.concatenate([1 - mask.reshape(-1), mask.reshape(-1)])
        expected = average_precision_score(both, np.concatenate([1 - scaled.reshape(-1), scaled.reshape(-1)]))
        assert got["mean_ap"] == pytest.approx(expected, rel=1e-4)
        assert got["energy_in_mask"] == pytest.approx(large.clip(0)[mask > 0].sum() / large.clip(0).sum())


def test_masks_of_the_given_picture_follow_it_into_the_model() -> None:
    given = np.zeros((64, 96, 3), np.uint8)
    given[16:32, 48:64] = 255
    reader = processor("BitImageProcessor", size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    trace = aw.trace(vit(), reader, image=given)
    unit = trace.units["patch"]
    seen = mask_as_seen(trace, given[..., 0], unit)
    assert np.argwhere(seen).min(0).tolist() == [8, 16]
    assert np.argwhere(seen).max(0).tolist() == [15, 23]
    assert np.array_equal(seen, mask_as_seen(trace, seen, unit))
    cells = np.zeros((4, 4))
    cells[1, 2] = 1
    assert np.array_equal(seen, mask_as_seen(trace, cells, unit))
    with pytest.raises(
        ValueError, match=r"a mask is 5 x 5 .*64 x 96 \(as given\), 32 x 32 \(as seen\), 4 x 4"
    ):
        mask_as_seen(trace, np.ones((5, 5)), unit)


def test_what_says_nothing_is_undefined_and_said() -> None:
    trace = aw.trace(vit(), None, image=noise(32, 32))
    flat = aw.results.Attributions(np.zeros(17), axis=trace.axes()[0], unit="patch", trace_id=trace.id)
    mask = np.zeros((32, 32))
    empty = aw.evaluate.localisation(trace, aw.vision.centre_prior(trace), mask)
    assert np.isnan(empty.samples[0, :, 0]).all()
    assert "a mask is empty" in empty.warning
    mask[:4] = 1
    card = aw.evaluate.localisation(trace, {"flat": flat}, mask)
    assert np.isnan(card.samples[0, :, 0]).all()
    assert "flat is constant" in card.warning
    with pytest.raises(ValueError, match="masks has 1 for 2 traces"):
        aw.evaluate.localisation([trace, trace], "grad_cam", [mask])


def test_operators_on_pictures_are_there_for_pictures_only() -> None:
    text = aw.trace(*aw.demo_model("classifier"), "A fine film.")
    with pytest.raises(
        ValueError, match=r"operator 'blur' is not possible here \(the model reads no picture"
    ):
        aw.evaluate.faithfulness(text, "saliency", operator="blur")
    picture = aw.trace(vit(), None, image=noise(32, 32))
    both = ("zero", "mean", *aw.evaluate.PICTURE_OPERATORS)
    assert aw.evaluate.possible_operators(picture, "self") == both
    with pytest.raises(ValueError, match="not made of token ids"):
        aw.evaluate.faithfulness(picture, "saliency", operator="mask")
    assert aw.RemovalView(picture).left(0, kept=False) == pytest.approx(picture.predictions(1)[0].probability)


def test_priors_know_the_middle_and_the_edges() -> None:
    pixels = torch.zeros(3, 32, 32)
    pixels[:, :, 20:] = 1
    trace = aw.trace(vit(), None, image=pixels)
    middle, lines = aw.vision.centre_prior(trace), aw.vision.edges(trace)
    assert middle.values[0] == lines.values[0] == 0
    grid = middle.values[1:].reshape(4, 4)
    assert np.allclose(grid, grid.T)
    assert grid[1:3, 1:3].min() > np.delete(grid.reshape(-1), [5, 6, 9, 10]).max()
    assert set(np.argwhere(lines.values[1:].reshape(4, 4))[:, 1]) == {2}
