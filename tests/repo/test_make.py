"""Every target that `make help` names runs from a fresh clone, as somebody who has just come would run it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.extended

ONE_FILE = 'PYTEST_ARGS="tests/test_ramps.py"'
# Targets with other packages: their environment is not filled by `make test-env`.
VISITORS = {"demo": "", "gallery": "", "lab": "is running at"}
# The arguments that make each target short, in an environment for developers.
DEVELOPERS = {
    "lint": "",
    "js": "",
    "bundle": "",
    "build": "",
    "places": "",
    "format": "",
    "watch": "an Explorer",
    "course": "",
    "test-fast": ONE_FILE,
    "test": ONE_FILE,
    "soak": f"RUNS=1 {ONE_FILE}",
    "fuzz": "FUZZ_SECONDS=1",
    "test-all": f"FUZZ_SECONDS=1 {ONE_FILE}",
    "notebooks": "NOTEBOOKS=quickstart",
    "release-check": "",
    "test-matrix": "MATRIX_ONLY=lowest",
    "models": "",
    "bench": "",
    "docs": "",
    "pictures": "",
    "clean": "",
}
SERVERS = ("lab", "watch")
MINUTES = 40


@pytest.fixture(scope="module", params=["visitors", "developers"])
def clone(request, root, tmp_path_factory):
    """A clone without anything installed, and the targets to run in it."""
    folder = tmp_path_factory.mktemp(request.param)
    subprocess.run(["git", "clone", "--quiet", root, folder / "attnwidgets"], check=True)
    settings = {"ServerApp": {"allow_root": True, "open_browser": False}}
    (folder / "jupyter_server_config.json").write_text(json.dumps(settings))
    targets = VISITORS if request.param == "visitors" else DEVELOPERS
    return folder / "attnwidgets", targets, os.environ | {"JUPYTER_CONFIG_DIR": str(folder)}


def test_the_list_is_that_of_make_help(root):
    told = subprocess.run(["make", "help"], cwd=root, check=True, capture_output=True, text=True).stdout
    assert set(re.findall(r"\bmake ([a-z-]+)", told)) == {*VISITORS, *DEVELOPERS}


def test_every_target_runs(clone):
    folder, targets, environment = clone
    failed = {}
    for name, more in targets.items():
        log = folder.parent / f"{name}.log"
        command = f"make --no-print-directory {name} {'' if name in SERVERS else more}"
        with log.open("w") as out:
            running = subprocess.Popen(
                command,
                shell=True,
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        if name in SERVERS:
            good = until_said(running, log, more)
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(60)
        else:
            good = running.wait(60 * MINUTES) == 0
        if not good:
            failed[name] = log.read_text()[-1500:]
    assert failed == {}


def until_said(running, log, words):
    """Return whether a server said these words before it ended."""
    end = time.monotonic() + 60 * MINUTES
    while running.poll() is None and time.monotonic() < end:
        if words in log.read_text():
            return True
        time.sleep(0.5)
    return False
