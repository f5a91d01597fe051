// A stand-in for the part of VS Code between its widget manager (ipywidgets.js, Microsoft's) and a kernel.

import { activate } from "./ipywidgets.js";

const WIDGET = "application/vnd.jupyter.widget-view+json";
const { KernelManager, ServerConnection } = self["@jupyterlab/services"];
const container = document.getElementById("container");
const outputs = new Map();

/** Colours and kind of a theme, as VS Code sets them on every webview. */
window.setTheme = (kind, colours) => {
  const classes = [...document.body.classList].filter((name) => !name.startsWith("vscode-"));
  document.body.className = [...classes, kind].join(" ");
  document.body.dataset.vscodeThemeKind = kind;
  const { style } = document.documentElement;
  for (const name of [...style]) if (name.startsWith("--vscode-")) style.removeProperty(name);
  for (const [name, value] of Object.entries(colours)) style.setProperty(`--vscode-${name}`, value);
};

const settings = ServerConnection.makeSettings({ baseUrl: `${location.origin}/`, token: "test" });
const kernel = await new KernelManager({ serverSettings: settings }).startNew({ name: "python3" });

// The modules that the nbextensions of the environment name, which the extension copies and hands to require.js.
const paths = await (await fetch("modules.json")).json();
const registered = new Set();
const loader = {
  widgetsRegisteredInRequireJs: registered,
  loadWidgetScript: async (name) => {
    if (!(name in paths)) return;
    requirejs.config({ paths: { [name]: new URL(paths[name], location.href).href } });
    registered.add(name);
  },
  errorHandler: (...what) => console.error("attnwidgets: not loaded:", ...what),
  successHandler: () => {},
};

activate();
window.vscIPyWidgets8.load();
const manager = new window.vscIPyWidgets.WidgetManager(kernel, undefined, loader, () => {});

/** Draw a model in an output, or draw it again after its view was disposed, as when a cell is scrolled back into sight. */
window.draw = async (id) => {
  const { el, data, view } = outputs.get(id);
  view?.dispose();
  const place = document.createElement("div");
  place.className = "cell-output-ipywidget-background";
  place.append(Object.assign(document.createElement("div"), { className: "cell-output" }));
  el.replaceChildren(place);
  const model = await manager.get_model(data.model_id);
  const made = await manager.create_view(model, { el: place });
  outputs.get(id).view = await manager.display_view(data, made, { node: place });
};

const show = async (data) => {
  const el = document.createElement("div");
  el.className = "output";
  container.append(el);
  const id = outputs.size;
  outputs.set(id, { el, data });
  await window.draw(id);
};

/** Run code; widgets that it shows get an output each. Returns the status and what was printed. */
window.run = async (code) => {
  const future = kernel.requestExecute({ code });
  const shown = [];
  let out = "";
  future.onIOPub = ({ header, content }) => {
    if (header.msg_type === "stream") out += content.text;
    if (header.msg_type === "error") out += content.traceback.join("\n");
    const data = content.data?.[WIDGET];
    if (data) shown.push(show(data));
  };
  const { content } = await future.done;
  await Promise.all(shown);
  return [content.status, out];
};
window.ready = true;
