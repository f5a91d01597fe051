/** The features of an SAE as a table to search, sort, name and choose from. Only visible rows are in the page. */

import { createWatch, h, keyboard, on, onResize, quoted, setChildren, setFlag } from "../../dom.ts";
import { printed } from "../../numbers.ts";
import { createAnswers } from "../../wire/answers.ts";
import { floatsOf, wholesOf } from "../../wire/buffers.ts";
import type { Answer } from "../../wire/embeddedAnswers.ts";
import { createCopyButton } from "../base/copyPython.ts";
import { createFrame } from "../base/frame.ts";
import { createMenu } from "../base/menu.ts";
import { type Missing, missingAnswer } from "../base/missing.ts";
import { only, view } from "../base/view.ts";
import { type Activations, activationsOf } from "./activations.ts";
import { barOf } from "./bars.ts";
import { createFeatureNames, nameField } from "./featureNames.ts";
import {
  axisOfText,
  createSaeControl,
  nameOfFeature,
  optionsOf,
  percentage,
  type Sae,
  shownSae,
  tokenAt,
  tokenSpan,
} from "./features.ts";

const ROW = 26;

interface Row {
  feature: number;
  token: string;
  density: number;
  maximum: number;
}

type Column = "feature" | "name" | "token" | "here" | "density" | "maximum";

const TITLES: Record<Column, string> = {
  feature: "feature",
  name: "name",
  token: "fires most on",
  here: "activation",
  density: "density",
  maximum: "maximum",
};
const WIDTHS: Record<Column, string> = {
  feature: "4.5em",
  name: "minmax(6.5em, 1.5fr)",
  token: "6.5em",
  here: "minmax(5.6em, 1fr)",
  density: "minmax(5.6em, 1fr)",
  maximum: "minmax(5.6em, 1fr)",
};
/** Columns that are sorted in descending order first. */
const LARGEST: readonly Column[] = ["here", "density", "maximum"];

interface Columns {
  pieces: string[];
  tokens: number;
}

const READ = new WeakMap<object, Row[]>();

function rowsOf({ meta, buffers }: Answer<Columns>): Row[] {
  const cached = READ.get(meta);
  if (cached) return cached;
  const [first, second, third, fourth] = buffers;
  if (!first || !second || !third || !fourth) return [];
  const [densities, maxima, pieces] = [floatsOf(second), floatsOf(third), wholesOf(fourth)];
  const rows = wholesOf(first).map((feature, i) => ({
    feature,
    token: meta.pieces[pieces[i] ?? -1] ?? "",
    density: densities[i] ?? 0,
    maximum: maxima[i] ?? 0,
  }));
  READ.set(meta, rows);
  return rows;
}

export const renderFeatureTable = view((ctx, root, signal) => {
  const answers = createAnswers(ctx, signal, () => update());
  const naming = createFeatureNames(() => answers);
  const layer = createSaeControl(ctx, signal);
  const search = h("input.search.boxed", {
    type: "search",
    placeholder: "number, name or token",
    "aria-label": "search",
  });
  const order = createMenu("sort by", signal, (column) => sortBy(column as Column));
  const head = h("div.feature-row.feature-heads", { role: "row" });
  const space = h("div.feature-space");
  const scroll = h("div.feature-scroll", { role: "grid", tabindex: "0", "aria-label": "features" }, head, space);
  const previews = createWatch();
  let sorted: Column = "feature";
  let chose = false;
  let down = false;
  let rows: Row[] = [];
  let here: number[] | Map<number, number> = [];
  let columns: Column[] = [];
  /** Where the bars of a column end. */
  let tops = new Map<Column, number>();
  /** A description of the rows, for the readout. */
  let remarks: string[] = [];
  let active = 0;
  let listed = "";

  // How often the chosen feature fires.
  const copy = createCopyButton(ctx, signal, () => {
    const { of, sae } = current();
    const feature = ctx.selection.get("feature");
    return sae?.counted && feature !== null ? { of: "density", sae: of, feature } : null;
  });
  const frame = createFrame(ctx, root, {
    controls: [...layer.elements, h("label.field", search), order.field],
    body: [scroll],
    hint: "Click a feature to see where it fires.",
    actions: [copy.element],
  });
  root.classList.add("aw-feature-table");
  root.role = "group";
  root.ariaLabel = "table of features";

  const value = (row: Row): number => (here instanceof Map ? here.get(row.feature) : here[row.feature]) ?? 0;
  const amount = (row: Row, column: Column): number =>
    column === "here" ? value(row) : column === "density" ? row.density : row.maximum;
  const current = (): { of: number; sae: Sae | undefined } => {
    const of = shownSae(ctx);
    return { of, sae: optionsOf(ctx).saes?.[of] };
  };

  /** All rows before the search: every feature with statistics, or those that fire on the text. */
  const all = (activations: Activations | undefined, stats: Row[] | undefined): Row[] => {
    if (!activations) return stats ?? [];
    const statsOf = new Map(stats?.map((row) => [row.feature, row]));
    return [...activations.largest.keys()].map(
      (feature) => statsOf.get(feature) ?? { feature, token: "", density: Number.NaN, maximum: Number.NaN },
    );
  };

  const inOrder = (sae: Sae): ((a: Row, b: Row) => number) => {
    const text = (row: Row): string => (sorted === "name" ? (sae.names[row.feature] ?? "") : row.token);
    const number = (row: Row): number => (sorted === "feature" ? row.feature : amount(row, sorted));
    const sign = down ? -1 : 1;
    return (a, b) => {
      if (sorted !== "name" && sorted !== "token") return sign * (number(a) - number(b)) || a.feature - b.feature;
      const [first, second] = [text(a), text(b)];
      // Unnamed features come after named features in either direction.
      if (!first !== !second) return first ? -1 : 1;
      return sign * first.localeCompare(second) || a.feature - b.feature;
    };
  };

  const lacking = (sae: Sae, of: number, unit: string, isHere: boolean): Missing | null => {
    const awaited = [
      ...(sae.onText ? [missingAnswer(answers, "activations", { of, unit }, "activations")] : []),
      ...(sae.counted ? [missingAnswer(answers, "columns", { of }, "statistics")] : []),
    ];
    if (!isHere) return awaited.find(({ kind }) => kind === "failed") ?? awaited[0] ?? null;
    const why = naming.why();
    if (why) return { kind: "failed", words: why, part: true };
    if (rows.length > 0) return null;
    const query = search.value.trim();
    if (query) return { kind: "none", words: `No feature matches “${query}”`, advice: "Try a shorter search term." };
    return { kind: "none", words: "No feature fires on this text" };
  };

  const update = (): void => {
    const { of, sae } = current();
    if (!sae) return;
    layer.show();
    const activations = activationsOf(ctx, answers);
    const stats = sae.counted ? answers.get<Columns>("columns", { of }) : undefined;
    const { unit } = sae.onText ? axisOfText(ctx, sae) : { unit: "" };
    const token = sae.onText
      ? [tokenAt(ctx, "hover", sae), tokenAt(ctx, "pinned", sae)].find((i) => i >= 0)
      : undefined;
    if (activations) {
      here =
        token === undefined
          ? activations.largest
          : new Map(activations.fired[token]?.map((f) => [f.feature, f.activation]));
    }
    columns = ["feature", "name", ...(sae.counted ? (["token"] as const) : [])];
    if (sae.onText) columns.push("here");
    if (sae.counted) columns.push("density", "maximum");
    if (!chose) {
      sorted = sae.onText ? "here" : "maximum";
      down = true;
    }
    const query = search.value.trim().toLowerCase();
    const number = query.replace(/^#/, "");
    const everything = all(activations, stats && rowsOf(stats));
    rows = everything.filter(
      ({ feature, token: most }) =>
        !query ||
        String(feature) === number ||
        most.toLowerCase().includes(query) ||
        (sae.names[feature] ?? "").toLowerCase().includes(query),
    );
    rows.sort(inOrder(sae));
    frame.lacks(lacking(sae, of, unit, Boolean(activations || !sae.onText) && Boolean(stats || !sae.counted)));
    const count = `${rows.length} ${rows.length === 1 ? "feature" : "features"}`;
    frame.show(sae.site, count);
    const label = token === undefined ? "" : quoted(axisOfText(ctx, sae).axis.labels, token, ctx.options.indexBase);
    const which = label
      ? `activation on ${label}`
      : `activation: the largest in this text; pin a ${unit} for those on it`;
    remarks = [query ? `${count} of ${everything.length}` : "", activations ? which : ""].filter(Boolean);
    tops = new Map(
      LARGEST.map((column) => [column, rows.reduce((top, row) => Math.max(top, amount(row, column) || 0), 0)]),
    );
    order.offer(
      columns.map((column) => ({ value: column, label: TITLES[column] })),
      sorted,
    );
    scroll.ariaRowCount = String(rows.length + 1);
    scroll.style.setProperty("--aw-columns", columns.map((column) => WIDTHS[column]).join(" "));
    setFlag(scroll, "data-both", columns.length > 5);
    heads();
    const list = JSON.stringify([columns, sorted, down, query, of]);
    if (list !== listed) {
      listed = list;
      active = 0;
      scroll.scrollTop = 0;
    }
    draw();
  };

  /** Sort by a column; by the same column again, in reverse order. */
  const sortBy = (column: Column): void => {
    down = column === sorted ? !down : LARGEST.includes(column);
    [sorted, chose] = [column, true];
    update();
  };

  const heads = (): void => {
    const cells = columns.map((column) => {
      const sign = column === sorted ? (down ? " ▾" : " ▴") : "";
      const button = h("button.feature-sort.ghost", { type: "button" }, TITLES[column] + sign);
      on(button, signal, {
        click: () => {
          sortBy(column);
          [...head.querySelectorAll("button")][columns.indexOf(column)]?.focus();
        },
      });
      const order = column === sorted ? (down ? "descending" : "ascending") : "none";
      return h("span", { role: "columnheader", "aria-sort": order, "data-column": column }, button);
    });
    const focused = head.contains(document.activeElement)
      ? [...head.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement)
      : -1;
    setChildren(head, ...cells);
    if (focused >= 0) head.querySelectorAll("button")[focused]?.focus();
  };

  const cell = (row: Row, column: Column, sae: Sae, of: number): HTMLElement => {
    if (column === "feature") return h("span.value", String(row.feature));
    if (column === "name") {
      if (!sae.counted) return h("span", sae.names[row.feature] ?? "");
      return h(
        "span",
        nameField(sae.names[row.feature] ?? "", row.feature, (name) => naming.tell(of, row.feature, name)),
      );
    }
    if (column === "token") return h("span.clip", { title: row.token }, tokenSpan(row.token));
    const size = amount(row, column);
    const words = size === 0 ? "0" : column === "density" ? percentage(size) : printed(size, false);
    return h(
      "span.feature-amount",
      h("span.value", Number.isNaN(size) ? "–" : words),
      barOf(size / (tops.get(column) || 1), "amount"),
    );
  };

  const inSight = (): number => Math.max(1, Math.floor(scroll.clientHeight / ROW) - 1);
  /** Only the visible rows and a few around them. */
  const draw = (): void => {
    const { of, sae } = current();
    if (!sae) return;
    if (space.contains(document.activeElement) && document.activeElement?.tagName === "INPUT") return; // being named
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 2);
    const last = Math.min(rows.length, first + inSight() + 5);
    space.style.height = `${rows.length * ROW}px`;
    const shown = ctx.selection.get("feature");
    copy.show();
    const density = rows.find(({ feature }) => feature === shown)?.density ?? Number.NaN;
    const chosen = Number.isNaN(density)
      ? []
      : [`density ${printed(density, false)} of ${nameOfFeature(sae, shown ?? 0)}`];
    frame.readout.show([...chosen, ...remarks].join(" · "), remarks.length > 0);
    const elements = rows.slice(first, last).map((row, i) => {
      const cells = columns.map((column) => {
        const content = cell(row, column, sae, of);
        content.role = "gridcell";
        content.dataset.column = column;
        return content;
      });
      const el = h(
        "div.feature-row",
        { role: "row", id: `${id}${first + i}`, "aria-rowindex": String(first + i + 2) },
        ...cells,
      );
      el.dataset.feature = String(row.feature);
      el.ariaSelected = String(row.feature === shown);
      setFlag(el, "data-active", first + i === active);
      setFlag(el, "data-previewed", row.feature === ctx.selection.get("hover")?.feature);
      el.style.top = `${(first + i) * ROW}px`;
      return el;
    });
    setChildren(space, ...elements);
    scroll.setAttribute("aria-activedescendant", `${id}${active}`);
  };
  const id = `aw-${Math.random()}-`;
  const move = (by: number) => (): void => {
    active = Math.max(0, Math.min(rows.length - 1, active + by));
    const top = active * ROW;
    const height = scroll.clientHeight - ROW; // of the column heads
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    if (top + ROW > scroll.scrollTop + height) scroll.scrollTop = top + ROW - height;
    draw();
  };
  const choose = (feature: number | undefined): void => {
    if (feature !== undefined) ctx.selection.set({ feature });
  };
  onResize(scroll, signal, () => draw());
  on(search, signal, { input: () => update() });
  on(scroll, signal, {
    scroll: () => draw(),
    click: ({ target }) => {
      if ((target as Element).closest("input, button")) return;
      const row = (target as Element).closest<HTMLElement>(".aw-feature-row");
      if (!row) return;
      active = rows.findIndex(({ feature }) => String(feature) === row.dataset.feature);
      choose(rows[active]?.feature);
    },
    focusout: () => queueMicrotask(draw),
  });
  keyboard(
    scroll,
    signal,
    {
      ArrowDown: move(1),
      ArrowUp: move(-1),
      PageDown: () => move(inSight())(),
      PageUp: () => move(-inSight())(),
      Home: move(-Infinity),
      End: move(Infinity),
      Enter: () => choose(rows[active]?.feature),
      F2: () => {
        const row = space.querySelector<HTMLInputElement>(".aw-feature-row[data-active] input");
        row?.focus();
      },
    },
    "↑ ↓: feature · Enter: choose it · F2: name it",
  );
  return (changed) => {
    // Do not sort thousands of rows because the pointer moves in another view.
    const isPreviewed = previews(ctx.selection.get("hover")?.feature);
    if (only(changed, "feature")) draw();
    else if (current().sae?.onText || !only(changed, "hover", "pinned", "tiles")) update();
    else if (isPreviewed) draw();
  };
});
