/** Controls for ordering and filtering heads: by a statistic that the kernel computes, and by name. */

import { h, on, setText } from "../../../dom.ts";
import { tickText } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { GridOptions } from "../../../wire/viewState.ts";
import type { Source } from "../../../wire/wire.ts";
import { createMenu } from "../../base/menu.ts";
import { headFilter, type Order, type Spot } from "./arrange.ts";

/** The twin of the answers of attnwidgets/views/heads/handlers.py. */
interface Described {
  name: string;
  title: string;
  definition: string;
  high: string;
  refusal: string;
}

interface Measured {
  names: string[];
  heads: number;
}

export interface Chosen {
  title: string;
  /** NaN: the head has none. */
  of(spot: Spot): number;
  low: number;
  high: number;
}

export interface Controls {
  /** The menu of statistics. */
  menu: HTMLElement;
  /** Order, direction, threshold, names, and the statistic's definition. */
  panel: HTMLElement[];
  /** The progress of a computation. */
  work: HTMLElement;
  /** Forget the statistic. */
  clear(): void;
  order(): Order;
  lowest(): boolean;
  /** The chosen statistic, once it arrives. */
  statistic(): Chosen | null;
  /** Whether a head passes both filters. */
  keeps(spot: Spot, layer: string, head: string): boolean;
  /** Everything that the picture depends on, as a text. */
  state(): string;
  /** Read the statistics available for a source; request the chosen statistic. */
  update(source: Source): void;
  /** Show how many heads remain. */
  count(shown: number, all: number): void;
}

const ORDERS: Record<Order, string> = {
  layers: "by layer and head",
  within: "sorted within each layer",
  all: "sorted over all heads",
  groups: "grouped by value",
};
const STEPS = 100;

const NOTHING: GridOptions = { sort: "", order: "layers", lowest: false, only: null, heads: "" };

/** Starts with `start`; `changed` is called with the reader's choice, or without it while a slider still moves. */
export function createControls(
  signal: AbortSignal,
  answers: Answers,
  start: GridOptions = NOTHING,
  changed: (now?: GridOptions) => void,
  picked: () => void,
): Controls {
  let chosen = start.sort;
  let lowest = start.lowest;
  /** The threshold from the options, until the slider moves. */
  let limit = start.only;
  let source: Source | null = null;
  let statistic: Chosen | null = null;
  let computedFor: unknown = null;
  let named = headFilter(start.heads);
  const tell = (): void =>
    changed({
      sort: chosen,
      order: order.value,
      lowest,
      only: statistic && (limit !== null || least.value !== "0") ? edge(statistic) : limit,
      heads: names.value,
    });
  const menu = createMenu("sort by", signal, (name) => {
    chosen = name;
    if (name) picked();
    if (name && order.value === "layers") order.value = "all";
    least.value = "0";
    limit = null;
    if (source) update(source);
    tell();
  });
  const order = h(
    "select.button",
    { "aria-label": "order of heads" },
    ...Object.entries(ORDERS).map(([value, name]) => h("option", { value }, name)),
  );
  const direction = h("button.button", { type: "button" });
  const least = h("input.range", {
    type: "range",
    min: "0",
    max: String(STEPS),
    value: "0",
    "aria-label": "threshold",
  });
  const bound = h("span.value");
  const threshold = h("label.field", "only", bound, least);
  const names = h("input.button.grid-names", {
    type: "search",
    "aria-label": "heads by name",
    placeholder: "3, 3.7, *.0",
  });
  const counted = h("span", { role: "status" });
  const [doing, bar, stop] = [
    h("span", { role: "status" }),
    h("progress"),
    h("button.button", { type: "button" }, "Cancel"),
  ];
  const work = h("div.row.work", { hidden: "" }, doing, bar, stop);
  const line = h("div.line");
  const row = h("div.row.grid-controls", order, direction, threshold, h("label.field", "heads", names), counted);

  order.value = start.order;
  names.value = start.heads;
  on(order, signal, { change: tell });
  on(least, signal, {
    input() {
      limit = null;
      changed();
    },
    change: tell,
  });
  on(names, signal, {
    input() {
      named = headFilter(names.value);
      names.ariaInvalid = String(!named);
      changed();
    },
    change: tell,
  });
  on(direction, signal, {
    click() {
      lowest = !lowest;
      limit = null;
      tell();
    },
  });
  on(stop, signal, { click: () => answers.cancel("head_statistics") });

  /** The threshold that heads must reach (or, lowest first, must not exceed). */
  const edge = ({ low, high }: Chosen): number => {
    if (limit !== null) return limit;
    const share = Number(least.value) / STEPS;
    return lowest ? high - share * (high - low) : low + share * (high - low);
  };
  const passes = (spot: Spot): boolean => {
    if (!statistic || (limit === null && least.value === "0")) return true;
    const value = statistic.of(spot);
    const slack = 1e-6 * (statistic.high - statistic.low);
    return lowest ? value <= edge(statistic) + slack : value >= edge(statistic) - slack;
  };

  const update = (shown: Source): void => {
    source = shown;
    const args = { source: shown.id };
    const offered = answers.get<Described[]>("statistics", args)?.meta ?? [];
    const offer = offered.find(({ name, refusal }) => name === chosen && !refusal);
    menu.offer(
      [
        { value: "", label: "layer", note: "heads stand in the order of layers" },
        ...offered.map(({ name, title, definition, refusal }) => ({
          value: name,
          label: title,
          note: refusal || definition,
          off: Boolean(refusal),
        })),
      ],
      offer?.name ?? "",
    );
    const answer = offer && answers.get<Measured>("head_statistics", args);
    const at = answer ? answer.meta.names.indexOf(chosen) : -1;
    if (!answer || at < 0) [statistic, computedFor] = [null, null];
    else if (computedFor !== `${shown.id} ${chosen}`) {
      computedFor = `${shown.id} ${chosen}`;
      const { heads } = answer.meta;
      const bytes = answer.buffers[0] as DataView;
      const size = shown.layers.length * heads;
      const start = bytes.byteOffset + 4 * at * size;
      const values = new Float32Array(bytes.buffer.slice(start, start + 4 * size));
      const [low, high] = [
        values.reduce((a, b) => (b < a ? b : a), Infinity),
        values.reduce((a, b) => (b > a ? b : a), -Infinity),
      ];
      statistic = {
        title: offer?.title ?? "",
        of: ({ layer, head }) => values[layer * heads + head] ?? NaN,
        low,
        high,
      };
      if (limit !== null && high > low) {
        const share = (lowest ? high - limit : limit - low) / (high - low);
        least.value = String(Math.round(STEPS * Math.max(0, Math.min(1, share))));
      }
    }
    const job = offer && answers.job("head_statistics");
    work.hidden = !job;
    setText(doing, job ? `${job.text}${job.done === null ? ": waits for the running cell" : ""}` : "");
    bar.hidden = !job?.total;
    bar.max = job?.total ?? 1;
    bar.value = job?.done ?? 0;
    const why = offer && answers.failure("head_statistics", args);
    const { low = 1, high = 0 } = statistic ?? {};
    const bars = high >= low ? `Bars below the heads: ${tickText(low)} to ${tickText(high)}.` : "No head has a value.";
    const ends = statistic ? ` ${bars}` : "";
    setText(
      line,
      why ? `${offer.title}: ${why}` : offer ? `${offer.title}: ${offer.definition} High: ${offer.high}.${ends}` : "",
    );
    for (const el of [order, direction]) el.hidden = !statistic;
    threshold.hidden = !statistic || !(statistic.high > statistic.low);
  };

  return {
    menu: menu.field,
    panel: [row, line],
    work,
    clear() {
      if (!chosen) return;
      chosen = "";
      limit = null;
      least.value = "0";
      if (source) update(source);
      tell();
    },
    order: () => order.value as Order,
    lowest: () => lowest,
    statistic: () => statistic,
    keeps: (spot, layer, head) => passes(spot) && (named?.(layer, head) ?? true),
    state: () => [chosen, statistic !== null, order.value, lowest, least.value, limit, names.value].join("|"),
    update,
    count(shown, all) {
      setText(direction, lowest ? "lowest first" : "highest first");
      direction.ariaPressed = String(lowest);
      const limit = statistic ? `${lowest ? "≤" : "≥"} ${tickText(edge(statistic))}` : "";
      setText(bound, limit);
      least.ariaValueText = limit;
      setText(
        counted,
        named
          ? shown < all
            ? `${shown} of ${all}`
            : ""
          : "3: layer 3, 3.7: head 7 of layer 3, *.7: head 7 of every layer",
      );
    },
  };
}
