"""Live pages without a browser: the session of a written page, run by node on the page's own bytes.

A single process of node answers for all pages of a test file; reading a page begins its session anew.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import attnwidgets as aw

JS = Path(__file__).parents[2] / "js"

# The page's models, without its views: lent to a session by js/src/host/standalone.ts.
DRIVER = """
const {createSession} = require(process.argv[2]);
const packed = ([reply, buffers]) => [reply, buffers.map((one) => Buffer.from(one).toString('base64'))];
const answers = async ({state, blobs, steps}) => {
  const made = new Map();
  const make = (name, {state}) => made.set(name, {
    state, get: (key) => state[key], setAll: (values) => Object.assign(state, values),
  });
  for (const [name, written] of Object.entries(state.models)) make(name, written);
  const session = createSession(state.live, {
    groups: state.texts,
    model: (name) => made.get(name),
    written: (name) => state.models[name]?.state,
    add(name, kind, written) { state.models[name] = {kind, state: written}; make(name, state.models[name]); },
    async show(group, index) {
      const {views} = state.texts[group];
      for (const line of views) {
        const {store, selection} = state.models[line[index]].state;
        made.get(line[0]).setAll({store, selection});
      }
      state.texts[group].shown = index;
    },
    bytes: async (id) => require('zlib').inflateSync(Buffer.from(blobs[id], 'base64')),
  });
  const out = [];
  for (const {view, store, time, ...message} of steps) {
    const last = store === 'shown' ? made.get(view).get('store').replace('anywidget:', '') : store;
    const before = process.cpuUsage();
    const answer = store ? await session.request(last, message) : await session.question(view, message);
    const {user, system} = process.cpuUsage(before);
    out.push([...packed(answer), made.get(view ?? 'view0').get('store'), (user + system) / 1000]);
  }
  return out.map(([reply, buffers, shown, ms]) => {
    const {header} = state.models[shown.replace('anywidget:', '')].state;
    return {reply, buffers, header, ms};
  });
};
(async () => {
  for await (const line of require('readline').createInterface({input: process.stdin})) {
    console.log(JSON.stringify(await answers(JSON.parse(line))));
  }
})();
"""


@contextmanager
def sessions(folder):
    """A process that answers for pages; skips where the JavaScript tools are missing."""
    tool = JS / "node_modules/.bin/esbuild"
    if shutil.which("node") is None or not tool.exists():
        pytest.skip("needs Node.js and js/node_modules (make js)")
    out, driver = folder / "session.cjs", folder / "driver.cjs"
    command = [tool, "src/live/session.ts", "--bundle", "--platform=node", "--format=cjs", f"--outfile={out}"]
    subprocess.run(command, cwd=JS, check=True, capture_output=True)
    driver.write_text(DRIVER, encoding="utf-8")
    pipe = subprocess.PIPE
    with subprocess.Popen(["node", driver, out], stdin=pipe, stdout=pipe, encoding="utf-8") as process:
        yield process  # it ends with its input


def parts_of(path):
    """The state of a page, and its bytes by the id of their element."""
    text = path.read_text(encoding="utf-8")
    state = re.search(r'id="aw-state">(.*?)</script>', text, re.DOTALL)[1]
    blobs = re.findall(r'id="(aw-[\w-]+)">([^<]*)</script>', text)
    return json.loads(state), {name: blob for name, blob in blobs if name != "aw-state"}


class Answer:
    """The reply to one request, its numbers, and the milliseconds of CPU that it took."""

    def __init__(self, told):
        self.reply, self.header, self.ms = told["reply"], told["header"], told["ms"]
        self._buffers = [base64.b64decode(item) for item in told["buffers"]]

    @property
    def meta(self):
        assert self.reply["kind"] == "answer", self.reply
        return self.reply["meta"]

    def numbers(self, number=0, kind="<f4"):
        return np.frombuffer(self._buffers[number], dtype=kind)


class LivePage:
    """A written page, whose session answers."""

    def __init__(self, node, folder, *views):
        self._node = node
        self._parts = parts_of(aw.to_html(list(views), folder / "live.html", live=True))

    def answers(self, *steps):
        """The answers to requests, one after the other, in a fresh page."""
        state, blobs = self._parts
        given = json.dumps({"state": state, "blobs": blobs, "steps": [{"id": 1, **step} for step in steps]})
        self._node.stdin.write(f"{given}\n")
        self._node.stdin.flush()
        told = self._node.stdout.readline()
        assert told, "the session failed, see above"
        return list(map(Answer, json.loads(told)))

    def ask(self, topic, *, before=(), **args):
        """The answer to a view's question, after others."""
        return self.answers(*before, asks(topic, **args))[-1]


def asks(topic, **args):
    """A view's question."""
    return {"view": "view0", "kind": "ask", "topic": topic, "args": args}


def typed(text):
    """The question by which a text is typed."""
    return asks("text", text=text)


def row(method, layer, head, number, unit="token"):
    """The request for an exact row of the text that is shown."""
    source = f"{method}/{unit}/self"
    cell = {"source": source, "layer": layer, "head": head, "row": number}
    return {"view": "view0", "store": "shown", "kind": "row", **cell}
