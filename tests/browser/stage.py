"""A stage for views without Jupyter: their models in a page, and a kernel that a test controls."""

from __future__ import annotations

import base64
import json

from attnwidgets.views.page.packing import _models
from attnwidgets.views.wire.runtime import COMMON_PARTS, bundle

CORE = "attnwidgets.js"
# `kernel` is "silent" (no message is answered), "refuses", or "works" (it reports progress, and never ends).
STAGE = """async ({core, code, parts, models, eager, view, kernel, cold, stub, style, beside, opening}) => {
  const load = (code) => import(URL.createObjectURL(new Blob([code], {type: 'text/javascript'})));
  window.loaded ??= {};
  for (const [name, text] of Object.entries(code)) loaded[name] = load(text);
  const {default: {initialize}} = await loaded[core];
  const bytes = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  if (!beside) window.left?.abort();
  window.left = new AbortController();
  const sent = window.sent = [];
  window.kernel = kernel;
  const made = {};
  for (const [id, {kind, state}] of Object.entries(models)) {
    if (kind === 'store') state.eager = bytes(cold ? '' : eager[id]);
    if (kind === 'store' && cold) Object.assign(state.header, {tiles: [], thumbs: []});
    if (kind === 'view') state.runtime = 'anywidget:runtime';
    if (kind === 'view' && opening) state.opening = bytes(opening);
    const heard = {};
    const reply = (answer) => setTimeout(() => heard['msg:custom']?.forEach((cb) => cb(answer, [])), 5);
    made[id] = {
      get: (name) => state[name],
      set(name, value) {
        if (JSON.stringify(state[name]) === JSON.stringify(value)) return;
        state[name] = value;
        heard[`change:${name}`]?.forEach((cb) => cb());
      },
      save_changes() {},
      on: (name, cb) => { (heard[name] ??= new Set()).add(cb); },
      off: (name, cb) => heard[name]?.delete(cb),
      send(message) {
        sent.push(message);
        const {id, kind} = message;
        if (window.kernel === 'refuses' && kind !== 'ping')
          reply({kind: 'error', id, message: 'no memory is left'});
        if (window.kernel === 'works' && kind === 'ping') reply({kind: 'pong', id});
        else if (window.kernel === 'works')
          reply({kind: 'progress', id, text: 'value zeroing: layers', done: 3, total: 6});
      },
    };
  }
  const renderers = initialize({model: {get: () => ({})}});
  for (const name of parts) renderers.add((await loaded[name]).default);
  if (style) renderers.add(() => ({style, views: {}}));
  const named = (ref) => made[ref.replace('anywidget:', '')];
  const el = document.createElement('div');
  if (!beside) document.body.replaceChildren();
  document.body.append(el);
  const host = {getModel: async (ref) => named(ref)};
  const props = {model: made[view], el, signal: left.signal, host};
  if (!stub) return renderers.render(props, models[view].view);
  const exports = {render: (given) => renderers.render(given, models[view].view)};
  host.getWidget = () => new Promise((come) => { window.come = () => come({exports}); });
  (await load(stub)).default.render(props);
}"""


def play(page, view, kernel="silent", *, cold=True, late=False, style="", beside=False):
    """Draw a view in a page, instead of the view before it; code is loaded once.

    Args:
        page: The page.
        view: The view.
        kernel: Its kernel's behaviour.
        cold: Whether none of its numbers is there yet.
        late: Whether its code comes only when the page calls `come()`.
        style: Rules that its copy of the code has in addition, as another version would.
        beside: Whether it is added to the views before it, rather than drawn instead.
    """
    models, (name,), stores = _models([view], "")
    eager = {store: base64.b64encode(entry["eager"]).decode() for store, entry in stores.items()}
    parts = [f"{part}.js" for part in (*view.needs.scripts, *COMMON_PARTS)]
    scripts = {CORE: bundle(CORE), **{part: f"export default {bundle(part).strip()}" for part in parts}}
    missing = page.evaluate("names => names.filter(name => !window.loaded?.[name])", list(scripts))
    given = {"models": models, "view": name, "eager": eager, "kernel": kernel, "cold": cold}
    answers = base64.b64encode(view.opening or b"").decode()
    given |= {"style": style, "beside": beside, "opening": "" if cold else answers}
    given["stub"] = view._esm if late else ""
    plain = json.loads(json.dumps(given, default=str))
    page.evaluate(
        STAGE, {**plain, "core": CORE, "code": {name: scripts[name] for name in missing}, "parts": parts}
    )
    return page.locator("body > div").last.locator(".aw-root").first
