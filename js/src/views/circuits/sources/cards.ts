/** Messages as cards in their order; folded messages are a single row. */
import { h, keyboard, on, setChildren, setFlag, setStyles } from "../../../dom.ts";
import { plural } from "../../base/navigation.ts";
import { decimal } from "../words.ts";
import { amount, named, type Picture, type Row, rowsOf, shade } from "./sources.ts";

export interface Cards {
  element: HTMLElement;
  draw(picture: Picture): void;
  /** Unfold a part, and bring it into sight. */
  reveal(part: number): void;
}

export interface CardActions {
  choose(part: number | null): void;
  /** Where copies of a picture are shown, a part is of a word. */
  hover(part: number | null, word?: number | null): void;
  /** Move to another sentence or word of the answer. */
  step(by: number): void;
  /** Write the answer without the chosen part. */
  write(): void;
}

const KEYS =
  "↑ ↓: another message · ← →: another sentence of the answer · Enter: unfold, or the answer without the message · Esc: let go";

export function createCards(signal: AbortSignal, actions: CardActions): Cards {
  const list = h("div.source-cards", { role: "listbox", tabindex: "0" });
  const id = `aw-${Math.random().toString(36).slice(2)}`;
  const opened = new Set<number>();
  let rows: Row[] = [];
  let cards: HTMLElement[] = [];
  let picture: Picture | null = null;
  /** The row that the keys are at. */
  let at = -1;

  const point = (): void => {
    cards.forEach((card, i) => {
      card.ariaSelected = String(rows[i] === picture?.part || (i === at && typeof rows[i] !== "number"));
    });
    const card = cards[at];
    if (card) list.setAttribute("aria-activedescendant", card.id);
    else list.removeAttribute("aria-activedescendant");
  };
  const write = (): void => {
    if (!picture) return;
    const { shown, sentence } = picture;
    const chosen = shown.answer[sentence];
    rows = chosen ? rowsOf(shown.parts, chosen, opened, sentence === 0) : [];
    cards = rows.map((row, i) => cardOf(picture as Picture, row, `${id}-${i}`));
    at = rows.indexOf(picture.part as Row);
    setChildren(list, ...cards);
    const numbers = shown.relation === "from" ? `${shown.measure} from` : `${shown.measure} lost without`;
    list.ariaLabel = `${plural(shown.unit)}, with the ${numbers} each`;
    point();
  };
  const unfold = (row: Row): void => {
    if (typeof row === "number") return;
    for (let part = row[0]; part < row[1]; part += 1) opened.add(part);
    actions.choose(row[0]);
    write();
    scrollTo(list, cards[at]);
  };
  const move = (to: number): void => {
    at = Math.max(0, Math.min(rows.length - 1, to));
    const row = rows[at];
    scrollTo(list, cards[at]);
    if (typeof row === "number") actions.choose(row);
    point();
  };
  const rowAt = (event: Event): number =>
    cards.indexOf((event.target as Element).closest<HTMLElement>(".aw-source-card, .aw-source-fold") as HTMLElement);
  const start = (): number => (at < 0 ? rows.indexOf(picture?.meant ?? -1) : at);
  keyboard(
    list,
    signal,
    {
      ArrowUp: () => move(start() - 1),
      ArrowDown: () => move(start() + 1),
      ArrowLeft: () => actions.step(-1),
      ArrowRight: () => actions.step(1),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      Enter: () => (typeof rows[at] === "object" ? unfold(rows[at] as Row) : actions.write()),
      Escape: () => actions.choose(null),
    },
    KEYS,
  );
  on(list, signal, {
    click(event) {
      const row = rows[rowAt(event)];
      if (typeof row === "number") actions.choose(row === picture?.part ? null : row);
      else if (row) unfold(row);
    },
    pointermove(event) {
      const row = rows[rowAt(event)];
      actions.hover(typeof row === "number" ? row : null);
    },
    pointerleave: () => actions.hover(null),
  });
  return {
    element: list,
    draw(now) {
      picture = now;
      write();
    },
    reveal(part) {
      if (!rows.includes(part)) opened.add(part);
      write();
      scrollTo(list, cards[rows.indexOf(part)]);
    },
  };
}

/** Scroll the pane of the list, and nothing around it. */
export function scrollTo(list: HTMLElement, card: HTMLElement | undefined): void {
  const pane = list.parentElement;
  if (!card || !pane) return;
  const start = card.offsetTop - pane.offsetTop;
  const end = start + card.offsetHeight;
  if (start < pane.scrollTop) pane.scrollTop = start - 8;
  else if (end > pane.scrollTop + pane.clientHeight) pane.scrollTop = end - pane.clientHeight + 8;
}

function cardOf(picture: Picture, row: Row, id: string): HTMLElement {
  const { shown, values, sentence, meant, part, top } = picture;
  if (typeof row !== "number") {
    const count = row[1] - row[0];
    return h("div.source-fold", { role: "option", id }, `… ${count} ${plural(shown.unit)}`);
  }
  const { name, role, text, kind } = shown.parts[row] ?? { name: "", role: "", text: "", kind: "" };
  const value = values[row] ?? 0;
  const before = shown.answer.slice(0, sentence).map((each) => each.text);
  const words = h("span", kind === "answer" ? before.join(" ") : text);
  shade(words, value, picture);
  const bar = h("span.source-bar", { "aria-hidden": "true", "data-side": value < 0 ? "against" : "for" });
  setStyles(bar, { width: `${(100 * Math.abs(value)) / Math.max(top, 1e-9)}%` });
  const head = h("span.source-head", ...(name ? [h("b", name), " "] : []), role);
  const card = h(
    "div.source-card",
    {
      role: "option",
      id,
      "data-part": String(row),
      "aria-label": `${named(shown, row)}, ${name ? `${role}, ` : ""}${amount(shown, value)}: ${text}`,
      ...(kind ? { "data-kind": kind } : {}),
    },
    head,
    h("span.source-text", { dir: "auto", title: text }, words),
    h("span.source-track", bar),
    h("span.source-value", decimal(value, shown.places, true)),
  );
  setFlag(card, "data-meant", row === meant && part === null);
  return card;
}
