/** The most probable tokens of the chosen cell, and how far it is from the output. */
import { h, on, setChildren, setText } from "../../../dom.ts";
import { decimal, inQuotes, word } from "../words.ts";
import { type Lens, topOf, valueAt } from "./lens.ts";

const MOST_OTHERS = 3;

export interface PanelState {
  lens: Lens;
  other: Lens | null;
  fitted: boolean;
  cell: readonly [row: number, token: number];
  /** "layer 24" or "output". */
  name: string;
  canPatch: boolean;
}

export function createLensPanel(
  signal: AbortSignal,
  events: { answer(id: number, label: string): void; patch(): void },
): { element: HTMLElement; show(state: PanelState): void } {
  const [title, kind] = [h("b"), h("span")];
  const first = h("div.lens-tops", {
    role: "group",
    "aria-label": "most probable tokens; a click makes one the answer",
  });
  const [second, secondKind] = [h("b"), h("span")];
  const secondHead = h("div.lens-panel-head.inline.fine", second, secondKind);
  const otherTokens = h("div.lens-tops");
  const distance = h("div.lens-distance");
  const note = h("p.lens-note.fine");
  const patch = h("button.button", { type: "button" }, "Patch this cell");
  const element = h(
    "div.lens-panel",
    h("div.lens-panel-head.inline.fine", title, kind),
    first,
    secondHead,
    otherTokens,
    h("div.lens-panel-head.inline.fine", h("b", "from the output"), h("span", "KL in nats")),
    distance,
    note,
    patch,
  );
  let shown: { id: number; label: string }[] = [];
  patch.title = "Choose this state in a PatchView of the same text";
  on(patch, signal, { click: events.patch });
  on(first, signal, {
    click: (event) => {
      const at = (event.target as Element).closest<HTMLElement>("[data-at]")?.dataset.at;
      const top = shown[Number(at ?? -1)];
      if (top) events.answer(top.id, top.label);
    },
  });
  const rows = (lens: Lens, row: number, token: number, most: number, isMain: boolean): HTMLElement[] =>
    topOf(lens, row, token)
      .slice(0, most)
      .map(({ label, p }, i) => {
        const bar = h(
          "span.meter-bar",
          h(`span.${isMain ? "amount" : "special-sum"}`, { style: `width:${(100 * p).toFixed(1)}%` }),
        );
        const parts = [
          h("bdi.lens-top-name.meter-name", word(label)),
          bar,
          h("span.meter-value", p < 0.005 ? "< 0.01" : p.toFixed(2)),
        ];
        const isAnswer = label === lens.answer ? { "data-answer": "" } : {};
        return isMain
          ? h(
              "button.lens-top.pick.subrow",
              { type: "button", "data-at": String(i), title: `follow ${label}`, ...isAnswer },
              ...parts,
            )
          : h("div.lens-top.subrow", isAnswer, ...parts);
      });
  return {
    element,
    show({ lens, other, fitted, cell: [row, token], name, canPatch }) {
      setText(title, `${name} at ${inQuotes(lens.tokens[token] ?? "")}`);
      const names = fitted ? ["fitted", "plain"] : ["plain", "fitted"];
      setText(kind, other ? (names[0] as string) : "");
      shown = topOf(lens, row, token);
      setChildren(first, ...rows(lens, row, token, lens.k, true));
      secondHead.hidden = otherTokens.hidden = !other;
      if (other) {
        setText(second, "the same state");
        setText(secondKind, names[1] as string);
        setChildren(otherTokens, ...rows(other, row, token, MOST_OTHERS, false));
      }
      setChildren(
        distance,
        ...[lens, ...(other ? [other] : [])].flatMap((reading, i) => [
          h("span", other ? (names[i] as string) : "this state"),
          h("span.meter-value", decimal(valueAt(reading, "kl", row, token))),
        ]),
      );
      setText(
        note,
        fitted
          ? "Fitted: one linear map per layer, least squares. The maps are fitted to states of late layers in general, not to this text."
          : "Plain: the model's own norm and head read the state. Early states use other directions: a poor rank does not mean that the answer is absent.",
      );
      patch.disabled = !canPatch;
    },
  };
}
