"""Every check of `make release-check` passes a correct release, and reports a planted fault."""

from __future__ import annotations

import importlib
import io
import re
import sys
import tarfile
import zipfile

import pytest

DIST = "attnwidgets-0.1.0"
INFO = f"{DIST}.dist-info"
METADATA = "Metadata-Version: 2.4\nName: attnwidgets\nVersion: 0.1.0\n\n# attnwidgets\n"
CHANGELOG = "# Changelog\n\n## 0.1.0 (unreleased)\n"


@pytest.fixture(scope="module")
def release(root):
    """The module tools/release_check.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "tools")
        yield importlib.import_module("release_check")
        for name in ("release_check", "places", "matrix"):
            sys.modules.pop(name, None)


@pytest.fixture
def project(root, tmp_path):
    """A small project: `files` go into its folder, its sdist and its wheel."""
    files = {
        "attnwidgets/__init__.py": b"",
        "attnwidgets/demo/head.safetensors": b"numbers",
        "js/package.json": b"{}",
        "js/src/a.ts": b'import type { X } from "@anywidget/types";\nimport { b } from "./b.js";\n',
        "CHANGELOG.md": CHANGELOG.encode(),
        "THIRD_PARTY.md": b"`attnwidgets/demo/head.safetensors` is ours",
        "docs/page.md": b"",
        "pyproject.toml": (root / "pyproject.toml").read_bytes(),
    }
    for name, data in files.items():
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).write_bytes(data)
    return tmp_path / "p", files


def made(folder, files, **changes):
    """Write an sdist and a wheel of files, with changes to the wheel (None: without that file)."""
    folder.mkdir(exist_ok=True)
    sdist, wheel = folder / f"{DIST}.tar.gz", folder / f"{DIST}-py3-none-any.whl"
    with tarfile.open(sdist, "w:gz") as archive:
        for name, data in {**files, "PKG-INFO": METADATA.encode()}.items():
            member = tarfile.TarInfo(f"{DIST}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    inside = {name: data for name, data in files.items() if name.startswith("attnwidgets/")}
    inside |= {
        f"{INFO}/METADATA": METADATA.encode(),
        f"{INFO}/licenses/LICENSE": b"BSD",
        f"{INFO}/licenses/THIRD_PARTY.md": files["THIRD_PARTY.md"],
        **changes,
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in inside.items():
            if data is not None:
                archive.writestr(name, data)
    return sdist, wheel


def test_a_project_without_faults_passes(release, project, tmp_path):
    root, files = project
    sdist, wheel = made(tmp_path, files)
    assert release.strays(sdist, wheel, files, root) == []
    assert release.versions(sdist, wheel, CHANGELOG) == []
    assert release.licences(wheel, root) == []
    assert release.oversize(wheel) == []
    assert release.addresses(root) == []
    assert release.differing(wheel, wheel) == []


def test_a_wheel_that_the_sdist_does_not_build_is_noticed(release, project, tmp_path):
    _, files = project
    _, wheel = made(tmp_path, files)
    _, other = made(tmp_path / "other", files, **{"attnwidgets/__init__.py": b"1"})
    (fault,) = release.differing(wheel, other)
    assert fault.startswith("attnwidgets/__init__.py: not the same")


@pytest.mark.parametrize(
    ("name", "data", "fault"),
    [
        ("attnwidgets/.DS_Store", b"", "wheel: attnwidgets/.DS_Store does not belong there"),
        ("tests/test_a.py", b"", "wheel: tests/test_a.py does not belong there"),
        ("attnwidgets/__init__.py", None, "wheel: attnwidgets/__init__.py is missing"),
        ("attnwidgets/__init__.py", b"1", "wheel: attnwidgets/__init__.py is not the file of this folder"),
    ],
)
def test_a_stray_a_missing_and_a_changed_file_are_noticed(release, project, tmp_path, name, data, fault):
    root, files = project
    sdist, wheel = made(tmp_path, files, **{name: data})
    assert release.strays(sdist, wheel, files, root) == [fault]


def test_a_file_of_the_sdist_that_git_does_not_know_is_noticed(release, project, tmp_path):
    root, files = project
    sdist, wheel = made(tmp_path, {**files, "docs/secret.env": b""})
    assert release.strays(sdist, wheel, files, root) == [
        "sdist: docs/secret.env is not under version control"
    ]


def test_versions_that_disagree_and_a_release_without_a_date_are_noticed(release, project, tmp_path):
    _, files = project
    sdist, wheel = made(tmp_path, files)
    faults = release.versions(sdist, wheel, CHANGELOG.replace("0.1.0", "0.2.0"))
    assert faults == [f"{path.name}: version 0.1.0, but the changelog has 0.2.0" for path in (sdist, wheel)]
    assert len(release.versions(sdist, wheel, "# Changelog\n")) == 2
    assert release.versions(sdist, wheel, CHANGELOG, publishes=True) == ["CHANGELOG.md: 0.1.0 is unreleased"]
    dated = "## 0.1.0 (2026-12-01)"
    assert release.versions(sdist, wheel, dated, publishes=True, tag="v0.1.0") == []
    assert release.versions(sdist, wheel, dated, tag="v0.1") == ["tag: v0.1, but the changelog has 0.1.0"]


def test_a_licence_that_is_missing_is_noticed(release, project, tmp_path):
    root, files = project
    _, wheel = made(tmp_path, files, **{f"{INFO}/licenses/LICENSE": None})
    assert release.licences(wheel, root) == ["wheel: LICENSE is missing"]
    _, wheel = made(tmp_path, files, **{"attnwidgets/zoo/tiny.bin": b""})
    assert release.licences(wheel, root) == ["THIRD_PARTY.md does not list attnwidgets/zoo/tiny.bin"]
    zoo = {"THIRD_PARTY.md": b"`attnwidgets/demo` and `attnwidgets/zoo`"}
    _, wheel = made(tmp_path, {**files, **zoo}, **{"attnwidgets/zoo/tiny.bin": b""})
    assert release.licences(wheel, root) == []


@pytest.mark.parametrize(
    "line",
    [
        'import { scale } from "@d3/scale/linear";\n',
        'import "@d3/scale";\n',
        'export {\n  scale,\n} from "@d3/scale";\n',
    ],
)
def test_a_package_that_is_compiled_into_the_bundle_is_noticed(release, project, tmp_path, line):
    root, files = project
    _, wheel = made(tmp_path, files)
    (root / "js" / "src" / "a.ts").write_text(line)
    assert release.licences(wheel, root) == ["THIRD_PARTY.md does not list npm's @d3/scale"]


@pytest.mark.slow
def test_the_package_itself_has_its_licences(release, root, tmp_path):
    names = [
        path
        for path in (root / "attnwidgets").rglob("*")
        if path.is_file() and "__pycache__" not in str(path)
    ]
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in names}
    files["THIRD_PARTY.md"] = (root / "THIRD_PARTY.md").read_bytes()
    _, wheel = made(tmp_path, files)
    assert release.licences(wheel, root) == []


def test_a_wheel_that_is_too_large_is_noticed(release, project, tmp_path):
    _, files = project
    large = release.MAX_WHEEL_BYTES
    _, wheel = made(tmp_path, files, **{"attnwidgets/large.bin": bytes(large)})  # stored, not compressed
    (fault,) = release.oversize(wheel)
    assert fault.endswith(f"more than {large:,}")
    assert release.oversize(wheel, limit=2 * large) == []


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ('<img src="docs/a.png" alt="a">', "docs/a.png leads nowhere from a package index"),
        ("[page](docs/page.md)", "docs/page.md leads nowhere from a package index"),
        (
            "[page](https://github.com/YOUR_ACCOUNT/attnwidgets/blob/main/docs/gone.md)",
            "there is no docs/gone.md",
        ),
        ("![a](https://raw.githubusercontent.com/YOUR_ACCOUNT/attnwidgets/main/a.png)", "there is no a.png"),
        ("[page](https://github.com/YOUR_ACCOUNT/attnwidgets/blob/main/docs/page.md#part)", None),
        ("[other](https://example.org/a) and [here](#there)", None),
    ],
)
def test_what_a_package_index_would_not_show_is_noticed(release, project, tmp_path, words, fault):
    pytest.importorskip("readme_renderer", reason="pip install .[release] (make release-check does it)")
    root, files = project
    here = release.places.place(root).slug
    text = METADATA + words.replace("YOUR_ACCOUNT/attnwidgets", here)
    _, wheel = made(tmp_path, files, **{f"{INFO}/METADATA": text.encode()})
    assert release.description(wheel, root) == ([f"README: {fault}"] if fault else [])


def test_the_readme_of_the_wheel_is_the_readme_with_addresses(release, root, tmp_path):
    """The replacements of paths in pyproject.toml: with them no picture and no link leads nowhere."""
    pytest.importorskip("readme_renderer", reason="pip install .[release] (make release-check does it)")
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((root / "pyproject.toml").read_text())
    text = (root / "README.md").read_text()
    for change in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    files = {"THIRD_PARTY.md": b""}
    _, wheel = made(tmp_path, files, **{f"{INFO}/METADATA": (METADATA + text).encode()})
    assert release.description(wheel, root) == []


def test_a_placeholder_is_refused_where_it_would_be_published(release, project):
    root, _ = project
    text = (root / "pyproject.toml").read_text()
    here = release.places.place(root)
    unset = here.moved(text, release.places.Place(release.places.PLACEHOLDER, here.name))
    (root / "pyproject.toml").write_text(unset)
    assert release.addresses(root) == []
    assert release.addresses(root, publishes=True) == ["pyproject.toml: Repository is a placeholder"]
    (root / "docs" / "page.md").write_text("https://github.com/" + "someone/attnwidgets")
    assert release.addresses(root) == ["docs/page.md: " + "github.com/" + "someone/attnwidgets"]


@pytest.mark.slow
def test_an_installation_that_fails_is_noticed(release, tmp_path):
    wheel = tmp_path / f"{DIST}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{INFO}/METADATA", METADATA)  # no WHEEL, no RECORD
    (fault,) = release.installed(wheel, sys.executable)
    assert "pip install fails" in fault
    assert "WHEEL" in fault


@pytest.mark.slow
def test_a_package_that_does_not_work_and_one_that_is_too_heavy_are_noticed(release, tmp_path, monkeypatch):
    wheel = tmp_path / f"{DIST}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("attnwidgets/__init__.py", "__version__ = '0.0.9'")
        archive.writestr(f"{INFO}/METADATA", METADATA)
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{INFO}/RECORD", "")
    monkeypatch.setattr(release, "MAX_INSTALLED_BYTES", 0)
    broken, heavy = release.installed(wheel, sys.executable)
    assert "AssertionError: 0.0.9" in broken
    assert "bytes installed beside torch, more than 0" in heavy


@pytest.mark.slow
def test_metadata_that_the_index_refuses_is_noticed(release, project, tmp_path):
    pytest.importorskip("twine", reason="pip install .[release] (make release-check does it)")
    _, files = project
    broken = METADATA.replace("Version: 0.1.0", "Version: 0.1.0\nDescription-Content-Type: text/nothing")
    sdist, wheel = made(tmp_path, files, **{f"{INFO}/METADATA": broken.encode()})
    (fault,) = release.twine(sdist, wheel)
    assert "text/nothing" in fault
