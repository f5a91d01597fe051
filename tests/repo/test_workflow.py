"""The workflow of continuous integration: pinned, with the least rights, and of commands that there are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

yaml = pytest.importorskip("yaml")

PUBLISHING = {"publish": {"id-token": "write"}, "publish-docs": {"id-token": "write", "pages": "write"}}


@pytest.fixture(scope="module")
def path(root):
    return root / ".github" / "workflows" / "ci.yml"


@pytest.fixture(scope="module")
def workflow(path):
    return yaml.safe_load(path.read_text())


def test_actions_are_pinned_to_a_commit_and_say_their_version(path):
    used = re.findall(r"uses: (.*)", path.read_text())
    assert len(used) > 10
    assert [
        line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    ] == []


def test_only_the_jobs_that_publish_may_more_than_read(workflow):
    assert workflow["permissions"] == {"contents": "read"}
    granted = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert granted == PUBLISHING
    assert not re.search(r"secrets\.|password|token:", str(workflow["jobs"]).replace("id-token", ""))
    checkouts = [
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "actions/checkout" in step.get("uses", "")
    ]
    assert checkouts
    assert not any(step["with"]["persist-credentials"] for step in checkouts)


def test_nothing_is_published_before_everything_passed_on_a_tag(workflow):
    jobs = workflow["jobs"]
    assert jobs["build"]["if"] == "github.ref_type == 'tag'"
    assert set(jobs["build"]["needs"]) == {"checks", "python", "browser", "matrix", "docs"}
    assert (jobs["publish"]["needs"], jobs["publish-docs"]["needs"]) == ("build", "publish")
    assert workflow[True]["push"]["tags"] == ["v*"]  # YAML 1.1 reads "on" as true


def test_its_commands_are_those_of_the_makefile(root, workflow):
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    commands = [run.removeprefix("make ").split() for run in runs if run.startswith("make ")]
    assert len(commands) == len(runs)
    targets = {word for words in commands for word in words if re.fullmatch(r"[a-z][a-z-]*", word)}
    makefile = (root / "Makefile").read_text()
    assert targets <= set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    # All that `make test` runs, and the parts that the repository's runs leave out.
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    lanes = " ".join(re.findall(r'STEPS\) "[^"]*" ("[^;&\n]*")', recipe))
    words = {"tests": "pytest browser"} | dict.fromkeys(("python-env", "node-env", "browser-env"), "")
    tested = {word for lane in lanes.replace('"', "").split() for word in words.get(lane, lane).split()}
    assert targets - tested == {"test-env", "test-matrix", "torchvision", "docs", "release-check"}
    assert tested <= targets


def test_it_is_of_the_form_that_github_reads(path):
    pytest.importorskip("check_jsonschema", reason="pip install .[release] (make release-check does it)")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
