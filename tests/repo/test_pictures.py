"""Every page and every view of the documentation has small pictures, not older than the view."""

from __future__ import annotations

import html
import re
import runpy
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
PICTURED = runpy.run_path(str(ROOT / "docs" / "pictured.py"))
FOLDER, THEMES, Step, key = (PICTURED[name] for name in ("FOLDER", "THEMES", "Step", "key"))
STEPS = {page.relative_to(ROOT).as_posix(): PICTURED["steps_of"](page) for page in PICTURED["pages"]()}
NAMES = [(page, at) for page, steps in STEPS.items() for at, step in enumerate(steps) if step.name]
IMAGES = [f"{STEPS[page][at].name}-{theme}.webp" for page, at in NAMES for theme in THEMES]
SHOWN = r"^<!-- picture (\w+)\b(?:(?!<!--).)*?-->\n(<picture>.*?</picture>)"
WITHOUT = {
    "docs/README.md": "a list of pages",
    "docs/attack.md": "tables; its views are shown on the page of views",
    "docs/accuracy.md": "a table of tolerances",
    "docs/maintaining.md": "steps of a release, and the workflows",
    "docs/architecture.md": "folders and messages of the package",
    "docs/architectures.md": "a table of model types",
    "docs/citing.md": "a list of papers",
    "docs/conservation.md": "a table of architectures with random weights",
    "docs/design.md": "pictures by make_design.py, of the parts of views",
    "docs/front_ends.md": "a table of programs in which all views look the same",
    "docs/gallery.md": "written for the site, with pictures by make_gallery.py",
    "docs/one_token.md": "numbers by hand; NeuronView is on the page of views",
    "docs/reference.md": "a list of names, by make_reference.py",
    "docs/scale.md": "processes and machines",
}


@pytest.mark.parametrize("page", STEPS)
def test_a_page_has_a_picture_or_a_reason_to_have_none(page):
    assert any(step.name for step in STEPS[page]) != (page in WITHOUT)


def test_every_heading_that_names_a_view_has_a_picture(root):
    sections = re.split(r"^(?=##)", (root / "docs" / "views.md").read_text(), flags=re.MULTILINE)
    views = [section for section in sections if re.match(r"##.*`\w+`", section)]
    assert len(views) > 25
    assert [section.splitlines()[0] for section in views if "<picture>" not in section] == []


def test_every_picture_is_shown_below_its_comment_with_words():
    names = [STEPS[page][at].name for page, at in NAMES]
    assert len(set(names)) == len(names)
    for page, steps in STEPS.items():
        text = (ROOT / page).read_text()
        shown = dict(re.findall(SHOWN, text, re.MULTILINE | re.DOTALL))
        assert [*shown] == [step.name for step in steps if step.name]
        for step in filter(lambda step: step.name, steps):
            (words,) = re.findall(r'<img alt="([^"]+)"', shown[step.name])
            assert html.unescape(words) == step.words or (not step.words and len(words) > 30)
            files = [Path(path).name for path in re.findall(r'src(?:set)?="([^"]+)"', shown[step.name])]
            assert files == [f"{step.name}-dark.webp", f"{step.name}-light.webp"]


def test_the_folder_holds_the_pictures_that_are_shown_and_no_other():
    assert sorted(path.name for path in FOLDER.glob("*.*")) == sorted([*IMAGES, "made_of.json"])
    assert sorted(PICTURED["made_of"]()) == sorted(STEPS[page][at].name for page, at in NAMES)


def test_pictures_are_small():
    sizes = {name: (FOLDER / name).stat().st_size for name in IMAGES}
    assert {name: size for name, size in sizes.items() if size >= 60_000} == {}
    assert sum(sizes.values()) < 4_200_000


def test_a_picture_is_light_on_a_light_page_and_dark_on_a_dark_page():
    for page, at in NAMES:
        name = STEPS[page][at].name
        light, dark = (Image.open(FOLDER / f"{name}-{theme}.webp") for theme in THEMES)
        assert light.size == dark.size, name
        assert light.convert("L").resize((1, 1)).getpixel((0, 0)) > 140, name
        assert dark.convert("L").resize((1, 1)).getpixel((0, 0)) < 110, name


@pytest.mark.parametrize(("page", "at"), NAMES, ids=[STEPS[page][at].name for page, at in NAMES])
def test_no_picture_is_older_than_its_code_or_its_view(page, at):
    assert not PICTURED["is_stale"](STEPS[page], at), "run make pictures, and look at the result"


def test_a_picture_is_older_once_its_code_its_view_or_a_module_of_it_changes(tmp_path):
    view, module = tmp_path / "view.ts", tmp_path / "module.ts"
    view.write_text('import { draw } from "./module.ts";\ndraw();\n')
    module.write_text("export const draw = () => 1;\n")
    steps = [Step("text = 'a'"), Step("unused = 1"), Step("show(text)", "shown")]
    before = key(steps, 2, [str(view)])
    PICTURED["_plain"].cache_clear()
    view.write_text(view.read_text() + "// a comment\n")
    assert key(steps, 2, [str(view)]) == before
    assert key([steps[0], Step("unused = 2"), steps[2]], 2, [str(view)]) == before
    assert key([Step("text = 'b'"), *steps[1:]], 2, [str(view)]) != before
    PICTURED["_plain"].cache_clear()
    module.write_text("export const draw = () => 2;\n")
    assert key(steps, 2, [str(view)]) != before
