"""Live pages without a browser: the session of a written page, run by node on the page's own bytes."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import attnwidgets as aw

JS = Path(__file__).parents[2] / "js"

# The page's models, without its views: what js/src/host/standalone.ts lends to a session.
DRIVER = """
const {createSession} = require(process.argv[2]);
const {state, blobs, steps} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
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
const packed = ([reply, buffers]) => [reply, buffers.map((one) => Buffer.from(one).toString('base64'))];
(async () => {
  const out = [];
  for (const {view, store, time, ...message} of steps) {
    const before = process.cpuUsage();
    const last = store === 'shown' ? made.get(view).get('store').replace('anywidget:', '') : store;
    const answer = store ? await session.request(last, message) : await session.question(view, message);
    const {user} = process.cpuUsage(before);
    out.push([...packed(answer), user / 1000, made.get(view ?? 'view0').get('store'), state.models]);
  }
  console.log(JSON.stringify(out.map(([reply, buffers, ms, shown, models]) => {
    const {header} = models[shown.replace('anywidget:', '')].state;
    return {reply, buffers, ms, header};
  })));
})();
"""


def session_code(folder):
    """The session as a module of node; skips where the JavaScript tools are missing."""
    tool = JS / "node_modules/.bin/esbuild"
    if shutil.which("node") is None or not tool.exists():
        pytest.skip("needs Node.js and js/node_modules (make js)")
    out = folder / "session.cjs"
    command = [tool, "src/live/session.ts", "--bundle", "--platform=node", "--format=cjs", f"--outfile={out}"]
    subprocess.run(command, cwd=JS, check=True, capture_output=True)
    return out


def parts_of(path):
    """The state of a page, and its bytes by the id of their element."""
    text = path.read_text(encoding="utf-8")
    state = re.search(r'id="aw-state">(.*?)</script>', text, re.DOTALL)[1]
    blobs = re.findall(r'id="(aw-[\w-]+)">([^<]*)</script>', text)
    return json.loads(state), {name: blob for name, blob in blobs if name != "aw-state"}


class Answer:
    """The reply to one request, and its numbers."""

    def __init__(self, told):
        self.reply, self.ms, self.header = told["reply"], told["ms"], told["header"]
        self._buffers = [base64.b64decode(item) for item in told["buffers"]]

    @property
    def meta(self):
        assert self.reply["kind"] == "answer", self.reply
        return self.reply["meta"]

    def numbers(self, number=0, kind="<f4"):
        return np.frombuffer(self._buffers[number], dtype=kind)


class LivePage:
    """A written page, whose session answers."""

    def __init__(self, code, folder, *views):
        self.path = aw.to_html(list(views), folder / "live.html", live=True)
        self._code, self._driver = code, folder / "driver.cjs"
        self._driver.write_text(DRIVER, encoding="utf-8")

    def answers(self, *steps):
        """The answers to requests, one after the other, in a fresh page."""
        state, blobs = parts_of(self.path)
        given = json.dumps({"state": state, "blobs": blobs, "steps": [{"id": 1, **step} for step in steps]})
        command = ["node", self._driver, self._code]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [Answer(told) for told in json.loads(done.stdout)]

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
    place = {"source": source, "layer": layer, "head": head, "row": number}
    return {"view": "view0", "store": "shown", "kind": "row", **place}
