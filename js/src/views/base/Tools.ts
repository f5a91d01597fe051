/** The menu of a view: export as picture or table, filters and colours, and the list of keys. */
import type { ViewContext } from "../../context.ts";
import { assign, atEnd, h, keyboard, on, setChildren, setText } from "../../dom.ts";
import { download } from "../../snapshot.ts";
import { createAnswers } from "../../wire/answers.ts";
import { baseKey } from "../../wire/keys.ts";
import type { TableOptions } from "../../wire/viewState.ts";
import { toClipboard } from "./clipboard.ts";
import { createLinks } from "./copyLink.ts";
import { createCopyButton, type NumberAddress } from "./copyPython.ts";
import { exportActions, fileName } from "./export.ts";
import { renderFilters } from "./filterForm.ts";
import { adjustableOf, filtersOf, isFiltered } from "./filters.ts";
import { createBelowButton } from "./opensBelow.ts";
import { createPopover, tip, uniqueName } from "./popover.ts";
import { SINK_NAME } from "./rowFacts.ts";
import { describeView } from "./verbalise.ts";
import { only, view } from "./view.ts";

/** Views that get a spoken summary: of a map, of attributions, or in the words of the view. */
const OF_MAPS = ".aw-heatmap, .aw-headgrid, .aw-strip-view, .aw-headview, .aw-relevance, .aw-layermap";
const OF_OTHERS = ".aw-compare, .aw-profile, .aw-flow, .aw-neuron, .aw-image, .aw-patch, .aw-lens, .aw-claims";
/** Milliseconds without a change before the summary is spoken. */
const RESTS_MS = 500;

/** Rows of a table, and where the next page starts. */
interface Part {
  text: string;
  next: number | null;
}

/** All elements of a view that take keys, with descriptions of the keys. */
function keysOf(root: Element): [string, string[]][] {
  const namesByKeys = new Map<string, string[]>();
  for (const el of root.querySelectorAll<HTMLElement>("[data-aw-keys]")) {
    if (!el.checkVisibility()) continue;
    const name = (el.ariaLabel ?? el.role ?? "").split(/[,:]/)[0] as string;
    namesByKeys.set(el.dataset.awKeys as string, [...(namesByKeys.get(el.dataset.awKeys as string) ?? []), name]);
  }
  return [...namesByKeys].map(([keys, names]) => [[...new Set(names)].join(", "), keys.split(" · ")]);
}

/** An immediate action in the menu. */
interface Action {
  label: string;
  act(): void | Promise<void>;
}

interface Section {
  element: HTMLElement;
  head: HTMLElement;
  unfold(): void;
}

/** A part of the menu that unfolds under its name. */
function createSection(name: string, signal: AbortSignal, ...inside: Node[]): Section {
  const head = h("button.tools-head", { type: "button", "aria-expanded": "false" }, name);
  const body = h("div.tools-body", { hidden: "" }, ...inside);
  const unfold = (is = true): void => {
    body.hidden = !is;
    head.ariaExpanded = String(is);
  };
  on(head, signal, { click: () => unfold(body.hidden !== false) });
  return { element: h("div.tools-section", { role: "group", "aria-label": name }, head, body), head, unfold };
}

/** The subject of a claim: the shown head, and the pinned cells. The twin is `claim_paths` of links.py. */
function claimed(ctx: ViewContext): NumberAddress | null {
  const { source, layer, head } = ctx.resolved();
  if (typeof head !== "number" || baseKey(source.method) !== "attention") return null;
  return { of: "claim", source: source.id, layer, head, cells: ctx.pins().map(({ query, key }) => [query, key]) };
}

/** `root` is inside its view. */
export const renderTools = view((ctx, root, signal) => {
  const shown = ctx.el;
  const button = h("button.button.icon.tools-button", {
    type: "button",
    "aria-label": "menu",
    "aria-haspopup": "dialog",
  });
  const dot = h("span.dot", { hidden: "" });
  setChildren(button, "⋯", dot);
  const message = h("div.tools-said.fine", { role: "status" });
  /** The text that could not be copied, for the reader to copy by hand. */
  const byHand = h("input.copy-text", { readonly: "", spellcheck: "false", "aria-label": "link", hidden: "" });
  const link = createLinks(ctx, signal);
  const answers = createAnswers(ctx, signal, () => handOver());
  /** Whether its numbers are not those of a matrix of the store. */
  const hasTable = (): boolean => ctx.header().sources.length === 0 || (ctx.options as TableOptions).ownTable === true;
  const tableOptions = (): Record<string, unknown> => {
    const { tableOf = [], ...options } = ctx.options as TableOptions & Record<string, unknown>;
    return Object.fromEntries(tableOf.map((name) => [name, options[name]]));
  };
  /** The arguments that identify the table. */
  const values = (): Record<string, unknown> => {
    if (hasTable()) return tableOptions();
    const { source, layer, head } = ctx.resolved();
    return { method: source.method, stack: source.stack, unit: source.unit, layer, head };
  };
  /** Without a kernel, the table has only the digits of the picture. */
  const approximate = (): string => {
    if (hasTable()) return "";
    const { source, layer, head } = ctx.resolved();
    const tile = ctx.tiles.get(source.id, layer, head);
    if (!tile || tile.meta.whole) return "";
    const quoted = (label: string): string => `"${label.replaceAll('"', '""').replace(/^[=+@-](?![\d.]*$)/, "'$&")}"`;
    const [rows, cols] = [ctx.axisOf(source.query).labels, ctx.axisOf(source.key).labels];
    const { sink } = tile.meta;
    // No value, as of a key that was not compared, is an empty cell.
    const cellOf = (value: number): string => (Number.isNaN(value) ? "" : String(Number(value.toPrecision(3))));
    const line = (label: string, row: number): string =>
      [quoted(label), ...cols.map((_, col) => cellOf(tile.value(row, col))), ...(sink ? [sink[row]] : [])].join();
    const names = sink ? [...cols, SINK_NAME] : cols;
    return [["", ...names.map(quoted)].join(), ...rows.map(line), ""].join("\n");
  };
  const claimTitle = "Copy the Python that checks a claim about this head or the pins";
  const claim =
    ctx.options.makesClaims && ctx.model.get("runtime") !== ""
      ? createCopyButton(ctx, signal, () => claimed(ctx), "Claim", claimTitle)
      : null;
  const below = ctx.options.below ? createBelowButton(ctx, signal, shown, ctx.options.below) : null;
  for (const action of [claim, below])
    if (action) shown.querySelector(":scope > .aw-footer > .aw-end")?.prepend(action.element);
  let request: Record<string, unknown> | null = null;
  const table: string[] = [];
  const handOver = (): void => {
    if (!request) return;
    const why = answers.failure("csv", request);
    const answer = answers.get<string | Part>("csv", request)?.meta;
    if (typeof answer === "object") {
      table.push(answer.text);
      if (answer.next !== null) {
        answers.retry("csv", true);
        request = { ...request, first: answer.next };
        handOver();
        return;
      }
    }
    const text = answer ? table.join("") || (answer as string) : why && approximate();
    if (text) {
      download(`${fileName(shown)}${why ? "-approximate" : ""}.csv`, new Blob([text], { type: "text/csv" }));
      panel.hidePopover();
    } else if (why) setText(message, why);
    else return;
    answers.retry("csv", true);
    request = null;
    table.length = 0;
  };
  const actions: Action[] = [
    ...exportActions(ctx, signal, shown, (words) => setText(message, words)).map(([label, act]) => ({
      label,
      act: () => act().then(() => panel.hidePopover()),
    })),
    {
      label: "Values (CSV)",
      act() {
        request = values();
        handOver();
        if (request) setText(message, "waiting for the kernel …");
      },
    },
    {
      label: "Copy link",
      async act() {
        setText(message, "waiting for the kernel …");
        const { text, words } = await link();
        const isCopied = await toClipboard(text, panel);
        setText(message, `${isCopied ? "Copied" : "Copy this by hand"}: ${words}`);
        byHand.value = text;
        byHand.hidden = isCopied;
        if (!isCopied) byHand.select();
      },
    },
  ];
  const item = ({ label, act }: Action): HTMLElement => {
    const el = h("button.tools-item", { type: "button" }, label);
    on(el, signal, {
      click: () => {
        setText(message, "");
        byHand.hidden = true;
        Promise.resolve()
          .then(act)
          .catch((error: Error) => setText(message, error.message));
      },
    });
    return el;
  };
  const form = h("div");
  const keys = h("div.tools-keys", { role: "list" });
  const saving = createSection("Save", signal, ...actions.map(item), message, byHand);
  const showing = createSection("Filters and colours", signal, form);
  const listing = createSection("Keys", signal, keys);
  const panel = h(
    "div.menu.tools-menu",
    { role: "dialog", "aria-label": "menu", tabindex: "-1" },
    h("div.tools-sections", saving.element, showing.element, listing.element),
  );
  /** The element that gets the focus when the menu opens. */
  let entry = saving.head;
  saving.unfold();
  showing.unfold();
  const lines = (location: string, words: readonly string[]): HTMLElement =>
    h(
      "div.tools-place",
      { role: "listitem" },
      h("div.note", location),
      ...words.map((line) => {
        const [name = "", ...does] = line.split(": ");
        return h("div.tools-key", h("span.tools-key-name", name), h("span", does.join(": ")));
      }),
    );
  createPopover(button, panel, signal, () => {
    setText(message, "");
    byHand.hidden = true;
    if (form.childElementCount === 0 && adjustableOf(shown)) renderFilters(adjustableOf(shown)?.ctx ?? ctx, form);
    showing.element.hidden = form.childElementCount === 0;
    setChildren(
      keys,
      ...keysOf(shown).map(([location, words]) => lines(location, words)),
      lines("everywhere", [...[below?.words() ?? ""].filter(Boolean), "Tab: next part", "?: this list"]),
    );
  });
  // A summary for screen readers, in the view and on every focusable element of it.
  const summary = h("p.sr", { id: uniqueName() });
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
  tip(button, "Save, filters, colours, keys (?)", signal);
  on(panel, signal, {
    toggle({ newState }) {
      if (newState === "open") entry.focus();
      else entry = saving.head;
    },
    // No key of the menu reaches the view.
    keydown: (event) => event.stopPropagation(),
    focusout({ relatedTarget }) {
      if (relatedTarget && !root.contains(relatedTarget as Node)) panel.hidePopover();
    },
  });
  keyboard(panel, signal, { Escape: () => panel.hidePopover(), "?": () => panel.hidePopover() });
  on(shown, signal, {
    keydown: (event) => {
      const typing = (event.target as Element).matches("input:not([type=range]):not([type=checkbox]), textarea");
      if (event.key !== "?" || typing || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      listing.unfold();
      entry = listing.head;
      panel.showPopover();
    },
  });
  return (changed) => {
    if (only(changed, "hover")) return;
    claim?.show();
    below?.show();
    assign(dot, { hidden: !isFiltered(filtersOf(ctx)) });
    assign(button, { ariaLabel: dot.hidden ? "menu" : "menu, filters or colours have been changed" });
    clearTimeout(resting);
    resting = setTimeout(tell, RESTS_MS);
  };
});
