"""Run the notebooks and save them with what they print and still pictures of their views: `make notebooks`.

A saved notebook shows a visitor of the repository what its cells print and, where a live view would be, a
picture of that view as it is when its cell ends. It holds no state of widgets, no progress, no warnings and
no times, so that running it again gives the same file.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nbformat import NotebookNode

FOLDER = Path(__file__).parent
MAX_BYTES = 300_000
"""Size limit of a saved notebook: a repository is cloned with all its versions."""

_VIEW = "application/vnd.jupyter.widget-view+json"
_COLOURS = 64
_LIVE = "Run the notebook for the live view."
# Figures of matplotlib are drawn into the notebook, whatever the caller's environment asks for.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
# Runs in the notebook's kernel after a cell that showed views: writes what each of them shows at that moment.
_STILLS = """
import json
from contextlib import suppress
from pathlib import Path
from attnwidgets.sphinx.cell import open_widgets
for place in wanted:
    view = open_widgets()[place]
    with suppress(TypeError):  # a slider draws nothing
        view.save(folder + place + ".png", dpi=100)
    described = {"name": view.name, "words": view.describe()}
    Path(folder + place + ".json").write_text(json.dumps(described), encoding="utf-8")
"""


def refreshed(path: Path) -> NotebookNode:
    """Run a notebook in a kernel of its own; return it as it is saved.

    Raises:
        CellExecutionError: A cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    metadata = {name: dict(notebook.metadata[name]) for name in ("kernelspec", "language_info")}
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as stills:
        client = NotebookClient(
            notebook,
            timeout=900,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": scratch}},
        )
        client.reset_execution_trackers()
        with client.setup_kernel(env=os.environ | _ENVIRONMENT):
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type != "code":
                    continue
                cell.outputs, cell.execution_count = [], None
                client.execute_cell(cell, index)
                cell.outputs = list(_saved(client, index, cell.outputs, Path(stills)))
    notebook.metadata = {**metadata, "attnwidgets": {"made": made(notebook)}}
    return notebook


def made(notebook: Any) -> str:
    """Return a hash of the code and of its outputs: a saved notebook holds the one it was made with."""
    written = json.loads(nbformat.writes(nbformat.from_dict(notebook)))
    code = [cell for cell in written["cells"] if cell["cell_type"] == "code"]
    both = [["".join(cell["source"]), cell["outputs"]] for cell in code]
    return hashlib.sha256(json.dumps(both, sort_keys=True).encode()).hexdigest()[:16]


def printed(notebook: Any) -> list[str]:
    """Return the text of every output that is not a picture, from top to bottom."""
    outputs = [out for cell in notebook["cells"] if cell["cell_type"] == "code" for out in cell["outputs"]]
    texts = [out.get("text") or out["data"].get("text/html") or out["data"]["text/plain"] for out in outputs]
    return ["".join(text) for text in texts]


def _saved(client: NotebookClient, index: int, outputs: list[Any], folder: Path) -> Iterator[NotebookNode]:
    """Yield the outputs of a cell that are saved: text joined, views as pictures."""
    shown = [out.data[_VIEW]["model_id"] for out in outputs if _VIEW in out.get("data", {})]
    if shown:
        names = {"wanted": shown, "folder": f"{folder}/"}
        cell = client.nb.cells[index]
        hidden = nbformat.v4.new_code_cell(f"exec({_STILLS!r}, {names!r})")
        client.execute_cell(hidden, index, store_history=False)
        client.nb.cells[index] = cell  # the client put the hidden one in its place
    text = ""
    for out in outputs:
        if out.output_type == "stream":
            text += out.text if out.name == "stdout" else ""
            continue
        if out.data.get("text/plain") == "" and len(out.data) == 1:  # a bar of progress that has gone
            continue
        if text:
            yield nbformat.v4.new_output("stream", name="stdout", text=text)
            text = ""
        if _VIEW in out.data:
            file = folder / out.data[_VIEW]["model_id"]
            of = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
            out.data, out.metadata = {"text/plain": f"{of['name']}: {of['words']}\n{_LIVE}"}, {}
            if file.with_suffix(".png").exists():
                out.data["image/png"] = _small(file.with_suffix(".png").read_bytes())
                out.metadata = {"image/png": {"alt": of["words"]}}
        elif "image/png" in out.data:
            out.data["image/png"] = _small(b64decode(out.data["image/png"]))
        yield out
    if text:
        yield nbformat.v4.new_output("stream", name="stdout", text=text)


def _small(picture: bytes) -> str:
    """Return a PNG with a palette, as a notebook holds it."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(_COLOURS, kmeans=1, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return b64encode(buffer.getvalue()).decode()


def main() -> None:
    """Refresh the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks, by name; none: all")
    names = parser.parse_args().names
    wanted = {Path(name).stem for name in names}
    paths = {path.stem: path for path in sorted([*FOLDER.glob("*.ipynb"), *FOLDER.glob("course/*.ipynb")])}
    if unknown := wanted - set(paths):
        raise SystemExit(f"no notebook {', '.join(sorted(unknown))}: there are {', '.join(paths)}")
    for path in (path for name, path in paths.items() if not wanted or name in wanted):
        notebook = refreshed(path)
        text = nbformat.writes(notebook) + "\n"
        if len(text.encode()) > MAX_BYTES:
            raise SystemExit(f"{path.name}: {len(text.encode()):,} bytes, more than {MAX_BYTES:,}")
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {len(text.encode()) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
