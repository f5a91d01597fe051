/** The menu in the corner of every view: export as picture or table, and the list of keys. */

import { atEnd, h, keyboard, on, setChildren, setText } from "../../dom.ts";
import { download } from "../../snapshot.ts";
import { createAnswers } from "../../wire/answers.ts";
import { exportActions, fileName } from "./export.ts";
import { describeView } from "./verbalise.ts";
import { only, view } from "./view.ts";

/** Views that get a spoken summary: of a map, of attributions, or in their own words. */
const OF_MAPS = ".aw-heatmap, .aw-headgrid, .aw-strip-view, .aw-headview, .aw-relevance, .aw-layermap";
const OF_OTHERS = ".aw-compare, .aw-profile, .aw-flow, .aw-neuron";
/** Milliseconds without a change before the summary is spoken. */
const RESTS_MS = 500;

/** Rows of a table, and where the next page starts. */
interface Part {
  text: string;
  next: number | null;
}

/** All elements of a view that take keys, with descriptions of the keys. */
function keysOf(root: Element): [string, string[]][] {
  const keysByPlace = new Map<string, string[]>();
  for (const el of root.querySelectorAll<HTMLElement>("[data-aw-keys]")) {
    if (!el.checkVisibility()) continue;
    const name = (el.ariaLabel ?? el.role ?? "").split(/[,:]/)[0] as string;
    keysByPlace.set(el.dataset.awKeys as string, [...(keysByPlace.get(el.dataset.awKeys as string) ?? []), name]);
  }
  return [...keysByPlace].map(([keys, names]) => [[...new Set(names)].join(", "), keys.split(" · ")]);
}

/** `root` lies inside its view. */
export const renderTools = view((ctx, root, signal) => {
  const shown = ctx.el;
  const button = h("button.button.icon", {
    type: "button",
    "aria-label": "save, copy, keys",
    "aria-expanded": "false",
    title: "Save, copy, keys (?)",
  });
  button.textContent = "⋯";
  const message = h("div.tools-said", { role: "status" });
  const keys = h("dl.tools-keys");
  const item = (label: string, act: () => void | Promise<void>): HTMLButtonElement => {
    const el = h("button.tools-item", { type: "button" }, label);
    on(el, signal, {
      click: () => {
        setText(message, "");
        Promise.resolve()
          .then(act)
          .catch((error: Error) => setText(message, error.message));
      },
    });
    return el;
  };
  const answers = createAnswers(ctx, signal, () => handOver());
  /** The title of the table; a view without matrices has a single one. */
  const values = (): Record<string, unknown> => {
    if (ctx.header().sources.length === 0) return {};
    const { source, layer, head } = ctx.resolved();
    return { method: source.method, stack: source.stack, unit: source.unit, layer, head };
  };
  /** Without a kernel, the table has only the digits of the picture. */
  const approximate = (): string => {
    if (ctx.header().sources.length === 0) return "";
    const { source, layer, head } = ctx.resolved();
    const tile = ctx.tiles.get(source.id, layer, head);
    if (!tile || tile.meta.whole) return "";
    const quoted = (label: string): string => `"${label.replaceAll('"', '""').replace(/^[=+@-](?![\d.]*$)/, "'$&")}"`;
    const [rows, cols] = [ctx.axisOf(source.query).labels, ctx.axisOf(source.key).labels];
    const line = (label: string, row: number): string =>
      [quoted(label), ...cols.map((_, col) => Number(tile.value(row, col).toPrecision(3)))].join();
    return [["", ...cols.map(quoted)].join(), ...rows.map(line), ""].join("\n");
  };
  let wanted: Record<string, unknown> | null = null;
  const table: string[] = [];
  const handOver = (): void => {
    if (!wanted) return;
    const why = answers.failure("csv", wanted);
    const answer = answers.get<string | Part>("csv", wanted)?.meta;
    if (typeof answer === "object") {
      table.push(answer.text);
      if (answer.next !== null) {
        answers.retry("csv", true);
        wanted = { ...wanted, first: answer.next };
        handOver();
        return;
      }
    }
    const text = answer ? table.join("") || (answer as string) : why && approximate();
    if (text) {
      download(`${fileName(shown)}${why ? "-approximate" : ""}.csv`, new Blob([text], { type: "text/csv" }));
      open(false);
    } else if (why) setText(message, why);
    else return;
    answers.retry("csv", true);
    wanted = null;
    table.length = 0;
  };
  const panel = h(
    "div.menu.tools-menu",
    { role: "group", "aria-label": "save, copy, keys", hidden: "" },
    ...exportActions(ctx, signal, shown, (words) => setText(message, words)).map(([label, act]) =>
      item(label, () => act().then(() => open(false))),
    ),
    item("Values (CSV)", () => {
      wanted = values();
      handOver();
      if (wanted) setText(message, "asking the kernel …");
    }),
    message,
    h("div.tools-title", "Keys"),
    keys,
  );
  const open = (is: boolean): void => {
    if (!panel.hidden === is) return;
    panel.hidden = !is;
    button.ariaExpanded = String(is);
    setText(message, "");
    if (!is) return;
    setChildren(
      keys,
      ...keysOf(shown).flatMap(([place, lines]) => [h("dt", place), ...lines.map((line) => h("dd", line))]),
      h("dt", "everywhere"),
      h("dd", "Tab: next part"),
      h("dd", "?: this list"),
    );
    panel.querySelector("button")?.focus();
  };
  const close = (): void => {
    if (panel.hidden) return;
    open(false);
    button.focus();
  };
  // A summary for screen readers, in the view and on every focusable element of it.
  const summary = h("p.sr", { id: `aw-${crypto.getRandomValues(new Uint32Array(2)).join("-")}` });
  let resting: ReturnType<typeof setTimeout> | undefined;
  const tell = (): void => {
    const finds = (names: string): boolean => shown.matches(names) || shown.querySelector(names) !== null;
    let words = "";
    if (finds(OF_OTHERS)) words = shown.querySelector(".aw-readout")?.textContent ?? "";
    else if (finds(OF_MAPS) && ctx.header().sources.length > 0) words = describeView(ctx);
    setText(summary, words);
    for (const el of [shown, ...shown.querySelectorAll("[role=application]")]) {
      if (words) el.setAttribute("aria-describedby", summary.id);
      else el.removeAttribute("aria-describedby");
    }
  };
  atEnd(signal, () => clearTimeout(resting));
  root.classList.add("aw-tools");
  setChildren(root, button, panel, summary);
  on(button, signal, { click: () => open(Boolean(panel.hidden)) });
  keyboard(root, signal, { Escape: close });
  on(root, signal, {
    focusout: ({ relatedTarget }) => {
      if (relatedTarget && !root.contains(relatedTarget as Node)) open(false);
    },
  });
  on(document, signal, {
    pointerdown: (event) => {
      if (!event.composedPath().includes(root)) open(false);
    },
  });
  on(shown, signal, {
    keydown: (event) => {
      const typing = (event.target as Element).matches("input:not([type=range]):not([type=checkbox]), textarea");
      if (event.key !== "?" || typing || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      open(Boolean(panel.hidden));
    },
  });
  return (changed) => {
    if (only(changed, "hover")) return;
    clearTimeout(resting);
    resting = setTimeout(tell, RESTS_MS);
  };
});
