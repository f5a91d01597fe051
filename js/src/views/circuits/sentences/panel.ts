/** The sentences that a sentence depends on, and those that depend on it: bars with values, in two lists. */
import { h, on, setChildren, setText, shortLabel } from "../../../dom.ts";
import type { Link } from "./links.ts";

export interface PanelState {
  /** Names of the sentences: "4". */
  name(sentence: number): string;
  label(sentence: number): string;
  sentence: number;
  on: readonly Link[];
  of: readonly Link[];
  top: number;
  signed: boolean;
  /** A value as text, with the digits that are certain. */
  text(link: Link): string;
  pinned: Link | null;
  /** Words about omitted sentences, such as neighbours. */
  note: string;
}

const LISTED = 6;

export function createSentencePanel(
  signal: AbortSignal,
  choose: (link: { query: number; key: number }) => void,
): { element: HTMLElement; show(state: PanelState): void } {
  const [onTitle, ofTitle] = [h("b"), h("b")];
  const [onList, ofList] = [
    h("div.sentence-bars.column", { role: "group", "aria-label": "what it depends on" }),
    h("div.sentence-bars.column", { role: "group", "aria-label": "what depends on it" }),
  ];
  const note = h("p.sentence-note");
  const element = h("div.sentence-panel", onTitle, onList, ofTitle, ofList, note);
  on(element, signal, {
    click: (event) => {
      const at = (event.target as Element).closest<HTMLElement>("[data-at]")?.dataset.at;
      const [query, key] = (at ?? "").split(" ").map(Number);
      if (at && query !== undefined && key !== undefined) choose({ query, key });
    },
  });
  const rows = (state: PanelState, links: readonly Link[], other: "query" | "key", none: string): HTMLElement[] => {
    const { name, label, top, signed, text, pinned } = state;
    const listed = links.slice(0, LISTED).map((link) => {
      const bar = h("span.sentence-fill", {
        style: `width:${(100 * Math.min(1, Math.abs(link.value) / (top || 1))).toFixed(1)}%`,
        ...(signed ? { "data-side": link.value < 0 ? "against" : "for" } : {}),
      });
      const isPinned = pinned?.query === link.query && pinned.key === link.key;
      const at = link[other];
      return h(
        "button.sentence-bar.pick.ghost",
        {
          type: "button",
          "data-at": `${link.query} ${link.key}`,
          "aria-pressed": String(isPinned),
          title: label(at),
        },
        h("span.sentence-number.fine", name(at)),
        h("bdi.sentence-short", shortLabel(label(at), 60)),
        h("span.sentence-track", bar),
        h("span.sentence-value", text(link)),
      );
    });
    if (!listed.length) return [h("span.sentence-none", none)];
    const more = links.length - listed.length;
    return more > 0 ? [...listed, h("span.sentence-none", `and ${more} weaker`)] : listed;
  };
  return {
    element,
    show(state) {
      const name = state.name(state.sentence);
      setText(onTitle, `${name} depends on`);
      setText(ofTitle, `what depends on ${name}`);
      setChildren(onList, ...rows(state, state.on, "key", "no earlier sentence above the threshold"));
      setChildren(ofList, ...rows(state, state.of, "query", "no later sentence above the threshold"));
      setText(note, state.note);
    },
  };
}
