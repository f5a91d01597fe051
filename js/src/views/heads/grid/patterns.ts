/** The named pattern that heads are ranked by, or their similarity to a head; the kernel computes both. */
import type { ViewContext } from "../../../context.ts";
import { printed } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { Source } from "../../../wire/wire.ts";
import { createMenu } from "../../base/menu.ts";
import { headAddress } from "../../base/navigation.ts";
import type { Spot } from "./arrange.ts";

/** A pattern as menus show it: `_described` of attnwidgets/views/heads/handlers.py. */
export interface PatternEntry {
  name: string;
  title: string;
  words: string;
  definition: string;
  refusal: string;
  /** Whether it runs the model on additional texts. */
  run: boolean;
}

/** The answer to "patterns", without the values [pattern, layer, head]. */
export interface PatternsMeta {
  patterns: PatternEntry[];
  /** The name of each head's strongest pattern, "" without one [layer][head]. */
  own: string[][];
  heads: number;
}

/** A ranking of heads. */
export interface Ranking {
  /** Differs from that of any other ranking. */
  id: string;
  title: string;
  /** NaN: the head has none. */
  of(spot: Spot): number;
  /** Length of its bar, 0 to 1. */
  share(spot: Spot): number;
  /** Whether the smallest value comes first. */
  lowest: boolean;
  words(spot: Spot): string;
}

const SIMILAR = "similar";
/** Jensen-Shannon divergence of rows without a common key, in nats. */
const MOST_APART = Math.LN2;
const NO_ARGS = { source: "" };

export interface PatternChoice {
  field: HTMLElement;
  /** The chosen ranking, once it has arrived. */
  ranking(): Ranking | null;
  /** The name of a head's strongest pattern; "" without one. */
  strongest(spot: Spot): string;
  /** "1 of 9 patterns". */
  count(): string;
  /** The topic of the request that is under way or failed, with its arguments. */
  request(): [string, Record<string, unknown>];
  update(source: Source): void;
}

/** The entry of the menu that ranks heads by their similarity to the selected head. */
const LIKE_SELECTED = {
  value: SIMILAR,
  label: "heads like this one",
  note: "Jensen-Shannon divergence of rows from the selected head's, mean over queries not special. Clark et al. 2019, section 6",
};

/** The values of all heads that an answer has from its `at`-th table on. */
function tableOf(bytes: DataView | undefined, heads: number, layers: number, at: number): (spot: Spot) => number {
  const start = (bytes?.byteOffset ?? 0) + 4 * at * layers * heads;
  const values = new Float32Array(bytes?.buffer.slice(start, start + 4 * layers * heads) ?? new ArrayBuffer(0));
  return ({ layer, head }) => values[layer * heads + head] ?? NaN;
}

/** A ranking by values from 0 to 1, the largest first. */
function asShare(id: string, title: string, of: (spot: Spot) => number): Ranking {
  return { id, title, of, share: of, lowest: false, words: (spot) => `${title} ${printed(of(spot), true)}` };
}

/** `changed` is called when the reader chose a pattern, with whether its first head is to be selected. */
export function createPatterns(
  ctx: ViewContext,
  answers: Answers,
  signal: AbortSignal,
  changed: (selects: boolean) => void,
): PatternChoice {
  let chosen = "";
  let anchor: Spot = { layer: 0, head: 0 };
  let shown: PatternsMeta | null = null;
  let ranking: Ranking | null = null;
  let sourceId = "";
  let request: [string, Record<string, unknown>] = ["patterns", NO_ARGS];
  // In a question about heads, a ranking would give the answer away.
  const isHidden = ctx.el.closest("[data-hides-patterns]") !== null;
  const menu = createMenu("pattern", signal, (name) => {
    chosen = name;
    if (name === SIMILAR) {
      const { source, layer, head } = ctx.resolved();
      const at = typeof head === "number" ? (source.heads?.indexOf(head) ?? 0) : 0;
      anchor = { layer: source.layers.indexOf(layer), head: at };
    }
    changed(name !== SIMILAR);
  });

  const likeness = (source: Source): Ranking | null => {
    const layer = source.layers[anchor.layer] ?? 0;
    const head = source.heads?.[anchor.head] ?? 0;
    request = ["similar_heads", { source: source.id, layer, head }];
    const similar = answers.get<{ found: [number, number, number][] }>(...request)?.meta.found;
    if (!similar) return null;
    const values = new Map(
      similar.map(([l, k, value]) => [`${source.layers.indexOf(l)} ${source.heads?.indexOf(k)}`, value]),
    );
    const of = (spot: Spot): number => values.get(`${spot.layer} ${spot.head}`) ?? NaN;
    const title = `like ${headAddress(ctx, layer, head)}`;
    return {
      id: `${sourceId} ${title}`,
      title,
      of,
      share: (spot) => 1 - of(spot) / MOST_APART,
      lowest: true,
      words: (spot) => `${title}: Jensen-Shannon divergence ${printed(of(spot), true)} nats`,
    };
  };

  const update = (source: Source): void => {
    const args = { source: source.id };
    sourceId = source.id;
    request = ["patterns", args];
    const answer = answers.get<PatternsMeta>(...request);
    shown = (!isHidden && answer?.meta) || null;
    ranking = null;
    menu.field.hidden = !shown;
    if (!answer || !shown) return;
    const applicable = shown.patterns.filter(({ refusal }) => !refusal);
    const recorded = applicable.filter(({ run }) => !run);
    const opens = ctx.selection.get("opening");
    const opening = recorded.find(({ words }) => opens?.words === words.replace("token", opens?.unit ?? ""));
    const isOffered = chosen === SIMILAR || applicable.some(({ name }) => name === chosen);
    if (!isOffered) chosen = (opening ?? recorded[0])?.name ?? "";
    const items = applicable.map(({ name, title, definition, run }) => ({
      value: name,
      label: title,
      note: run ? `${definition} Runs the model.` : definition,
    }));
    menu.offer(source.heads ? [...items, LIKE_SELECTED] : items, chosen);
    if (chosen === SIMILAR) {
      ranking = likeness(source);
      return;
    }
    const pattern = applicable.find(({ name }) => name === chosen);
    if (!pattern) return;
    const id = `${source.id} ${pattern.name}`;
    if (!pattern.run) {
      const table = tableOf(answer.buffers[0], shown.heads, source.layers.length, recorded.indexOf(pattern));
      ranking = asShare(id, pattern.title, table);
      return;
    }
    request = ["pattern_scores", { ...args, name: pattern.name }];
    const scores = answers.get<{ heads: number }>(...request);
    if (scores)
      ranking = asShare(id, pattern.title, tableOf(scores.buffers[0], scores.meta.heads, source.layers.length, 0));
  };

  return {
    field: menu.field,
    ranking: () => ranking,
    strongest: ({ layer, head }) => shown?.own[layer]?.[head] ?? "",
    count() {
      if (isHidden) return "The ranking by patterns is hidden: it would give the answer.";
      const names = shown?.patterns.filter(({ refusal }) => !refusal).map(({ name }) => name) ?? [];
      const at = names.indexOf(chosen);
      return at < 0 ? "" : `${at + 1} of ${names.length} patterns`;
    },
    request: () => request,
    update,
  };
}
