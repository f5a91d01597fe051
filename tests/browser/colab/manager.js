/** The widget manager of one output: models come from the page by name, messages pass through it. */
import * as base from "@jupyter-widgets/base";
import { ManagerBase } from "@jupyter-widgets/base-manager";
import * as controls from "@jupyter-widgets/controls";
import css from "@jupyter-widgets/controls/css/widgets.built.css";
import { Widget } from "@lumino/widgets";

const MODULES = { "@jupyter-widgets/base": base, "@jupyter-widgets/controls": controls };

/** anywidget's front end is an AMD module. */
async function anywidget() {
  const loaded = new Promise((done) => {
    globalThis.define = (_, make) => done(make(base));
  });
  await import("/anywidget.js");
  return loaded;
}

const viewOf = (buffer) => new DataView(buffer);
/** As Colab's manager hands over the buffers of custom messages; here also with other bytes before them. */
const bytesOf = (buffer) => {
  const whole = new Uint8Array(buffer.byteLength + 3);
  whole.set(new Uint8Array(buffer), 3);
  return whole.subarray(3);
};

/** Buffers of custom messages or of state; the other way round where a test says so. */
const kindOf = (isCustom) => {
  if (globalThis.reversed) return isCustom ? viewOf : (buffer) => new Uint8Array(buffer);
  return isCustom ? bytesOf : viewOf;
};

class Comm {
  constructor(id, page) {
    Object.assign(this, { comm_id: id, page, waiting: new Map() });
    page.listen(id, (message) => this.hear(message));
  }
  send(data, callbacks, _, buffers) {
    const id = crypto.randomUUID();
    if (callbacks?.iopub?.status) this.waiting.set(id, callbacks.iopub.status);
    this.page.post({ op: "send", comm: this.comm_id, id, data, buffers });
    return id;
  }
  hear({ op, id, data, buffers }) {
    if (op === "idle") {
      this.waiting.get(id)?.({ content: { execution_state: "idle" } });
      this.waiting.delete(id);
    } else if (op === "close") this.closed?.();
    // No echo_update: this manager knows "update" and "custom".
    else this.heard?.({ content: { data }, buffers: buffers.map(kindOf(data.method === "custom")) });
  }
  close() {}
  on_msg(callback) {
    this.heard = callback;
  }
  on_close(callback) {
    this.closed = callback;
  }
}

export class Manager extends ManagerBase {
  constructor(page) {
    super();
    this.page = page;
    document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  }
  async loadClass(name, module) {
    const classes = module === "anywidget" ? await (Manager.anywidget ??= anywidget()) : MODULES[module];
    if (!classes?.[name]) throw new Error(`there is no ${name} in ${module}`);
    return classes[name];
  }
  get_model(id) {
    return super.get_model(id) ?? this.fetch(id);
  }
  fetch(id) {
    const made = this.page.state(id).then((found) => {
      if (!found) throw Object.assign(new Error(`the page has no model ${id}`), { isClosed: true });
      const { state, paths, buffers } = found;
      base.put_buffers(state, paths, buffers.map(kindOf(false)));
      const { _model_name: model_name, _model_module: model_module, _model_module_version } = state;
      const options = { model_name, model_module, model_module_version: _model_module_version, model_id: id };
      return this._make_model({ ...options, comm: new Comm(id, this.page) }, state);
    });
    this.register_model(id, made);
    return made;
  }
  async show(id, el) {
    const view = await this.create_view(await this.get_model(id));
    Widget.attach(view.luminoWidget, el);
  }
}
