"""Which modules return a map of the picture, and that its cells are listed row by row."""

from __future__ import annotations

import pytest
import torch

from attnwidgets.tracing.media.feature_maps import as_map, blocks_that_attend, grid_axis, watching_maps
from tests.vision.pictures import FAMILIES, noise, of_family


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cell", [(1, 1), (1, 2), (2, 1)])
def test_painting_one_place_changes_that_place_of_the_last_map_most(
    family: str, cell: tuple[int, int]
) -> None:
    model = of_family(family)
    outputs: list[torch.Tensor] = []
    pixels = noise()[None]
    with torch.no_grad(), watching_maps(model, (64, 64)) as maps:
        model(pixels)
    rows, columns = maps[-1].grid
    module = model.get_submodule(maps[-1].name)
    module.register_forward_hook(lambda *call: outputs.append(call[2].detach()))
    painted = pixels.clone()
    high, wide = 64 // rows, 64 // columns
    down, across = cell[0] * rows // 4, cell[1] * columns // 4
    painted[..., down * high : (down + 1) * high, across * wide : (across + 1) * wide] += 3
    with torch.no_grad():
        model(pixels)
        model(painted)
    change = as_map(outputs[1] - outputs[0], (64, 64), places=True)
    assert change is not None
    result = divmod(int(change.norm(dim=1).argmax()), columns)
    # The field of a cell may have its middle in the next cell.
    assert max(abs(result[0] - down), abs(result[1] - across)) <= (family in ("ResNet", "SegFormer"))


def test_attention_weights_of_a_square_picture_are_no_map() -> None:
    model = of_family("Swin")
    with torch.no_grad(), watching_maps(model, (64, 64)) as maps:
        model(noise()[None])
    assert not any("attention" in each.name for each in maps)
    assert {each.grid for each in maps} == {(16, 16), (8, 8)}


def test_blocks_are_those_of_every_stage() -> None:
    names = [name.split("layers.")[1] for name in blocks_that_attend(of_family("Swin"))]
    assert names == ["0.blocks.0", "1.blocks.0", "1.blocks.1"]
    assert len(blocks_that_attend(of_family("SegFormer"))) == 2
    assert blocks_that_attend(of_family("ResNet")) == []


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 8, 4, 6), (1, 8, 4, 6)),
        ((1, 4, 6, 8), (1, 8, 4, 6)),
        ((1, 24, 8), (1, 8, 4, 6)),
        ((1, 8, 1, 1), None),
        ((1, 25, 8), None),
        ((1, 24), None),
        ((1, 3, 64, 96), (1, 3, 64, 96)),
    ],
)
def test_maps_have_the_proportions_of_the_picture(
    shape: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    result = as_map(torch.zeros(shape), (64, 96), places=True)
    assert (None if result is None else tuple(result.shape)) == expected


def test_the_axis_of_a_grid_is_by_patches() -> None:
    unit = grid_axis((2, 3)).units["patch"]
    assert unit.labels[:4] == ("0,0", "0,1", "0,2", "1,0")
    assert (unit.grid, unit.cells) == ((2, 3), tuple(range(6)))
