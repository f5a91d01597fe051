/** SAE features as their views have them: what Python tells of the SAEs, and its answers decoded. */

import type { ViewContext } from "../../context.ts";
import { h, on, put, shortLabel } from "../../dom.ts";
import { nearest, translateIndex } from "../../selection.ts";
import type { Answer, Answers } from "../../wire/answers.ts";
import type { Axis, ViewOptions } from "../../wire/wire.ts";
import { spell } from "../text/tokens.ts";

/** One SAE. The twin of `Looked.describe` in attnwidgets/views/features/looked.py. */
export interface Sae {
  layer: number | null;
  features: number;
  site: string;
  stream: string;
  /** Whether it was read on a text. */
  onText: boolean;
  /** Whether the first token is a decoder's, on whose states no SAE is trained. */
  skipsFirst: boolean;
  /** Whether there are statistics over a corpus. */
  counted: boolean;
  names: Record<string, string>;
}

export interface FeatureOptions extends ViewOptions {
  saes?: Sae[];
  tabs?: number[];
}

export const optionsOf = (ctx: ViewContext): FeatureOptions => ctx.options;

/** Number of the SAE that is looked at: of several, the one nearest to the selected layer. */
export function saeShown(ctx: ViewContext): number {
  const saes = optionsOf(ctx).saes ?? [];
  const layers = saes.flatMap(({ layer }) => (layer === null ? [] : [layer]));
  if (layers.length < 2) return 0;
  const layer = nearest(layers, ctx.selection.get("layer"));
  return saes.findIndex((sae) => sae.layer === layer);
}

/** "#12 royalty" */
export function nameOfFeature(sae: Sae | undefined, feature: number): string {
  const name = sae?.names[feature];
  return name ? `#${feature} ${shortLabel(name, 40)}` : `#${feature}`;
}

/** A button with a feature's name that makes it the one all linked views look at. */
export function featureButton(
  ctx: ViewContext,
  sae: Sae | undefined,
  feature: number,
  signal: AbortSignal,
): HTMLElement {
  const name = nameOfFeature(sae, feature);
  const button = h("button.button.feature", { type: "button", title: name }, name);
  on(button, signal, { click: () => ctx.selection.set({ feature }) });
  return button;
}

/** Tells the kernel names of features, one after the other. */
export interface Naming {
  tell(of: number, feature: number, name: string): void;
  /** Why the last one could not be kept. */
  why(): string | undefined;
}

export function createNaming(answers: () => Answers): Naming {
  let last: Record<string, unknown> = {};
  return {
    tell(of, feature, name) {
      last = { of, feature, name };
      // The same name may have been given and taken away before.
      answers().retry("name", true);
      answers().get("name", last);
    },
    why: () => answers().failure("name", last),
  };
}

/** A field in which a feature is named; what is typed is told at the end. */
export function nameField(known: string, feature: number, tell: (name: string) => void): HTMLInputElement {
  const field = h("input.name", {
    "aria-label": `name of feature ${feature}`,
    placeholder: "name it",
    type: "text",
    spellcheck: "false",
  });
  field.value = field.title = known;
  let told = known;
  const end = (): void => {
    const name = field.value.trim();
    if (name === told) return;
    told = name;
    tell(name);
  };
  field.addEventListener("blur", end);
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") field.value = told;
    if (event.key === "Enter" || event.key === "Escape") field.blur();
  });
  return field;
}

/** A token as text, with its whitespace visible and a class for what it is. */
export function tokenSpan(label: string, share: number): HTMLElement {
  const span = h("span.hit");
  spell(span, label);
  if (share > 0) span.style.setProperty("--aw-share", `${Math.round(100 * Math.min(1, share) ** 0.8)}%`);
  return span;
}

/** A share of all tokens: "1.2 %", "0.013 %". */
export function percentage(share: number): string {
  const size = 100 * share;
  return `${size === 0 ? "0" : size >= 10 ? size.toFixed(0) : String(Number(size.toPrecision(2)))} %`;
}

const numbers = (view: DataView, read: (at: number) => number, bytes: number): number[] =>
  Array.from({ length: Math.floor(view.byteLength / bytes) }, (_, i) => read(bytes * i));

export const bytesOf = (view: DataView): number[] => numbers(view, (at) => view.getUint8(at), 1);
export const shortsOf = (view: DataView): number[] => numbers(view, (at) => view.getUint16(at, true), 2);
export const wholesOf = (view: DataView): number[] => numbers(view, (at) => view.getInt32(at, true), 4);
export const floatsOf = (view: DataView): number[] => numbers(view, (at) => view.getFloat32(at, true), 4);

export interface Fired {
  feature: number;
  activation: number;
}

/** Which features fire on which elements of a text, in one unit. */
export interface Activations {
  unit: string;
  /** Of every element the features that fire, the strongest first. */
  fired: Fired[][];
  /** The largest activation of every feature that fires anywhere, special tokens aside. */
  largest: Map<number, number>;
  of(feature: number): number[];
}

const DECODED = new WeakMap<object, Activations>();

function decoded(
  { meta, buffers }: Answer<{ unit: string }>,
  special: readonly number[],
  skipsFirst: boolean,
): Activations {
  const known = DECODED.get(meta);
  if (known) return known;
  const [ends = [], features = []] = buffers.slice(0, 2).map(wholesOf);
  const values = buffers[2] ? floatsOf(buffers[2]) : [];
  const fired = ends.map((end, i) =>
    features.slice(ends[i - 1] ?? 0, end).map(
      (feature, j): Fired => ({
        feature,
        activation: values[(ends[i - 1] ?? 0) + j] as number,
      }),
    ),
  );
  const largest = new Map<number, number>();
  fired.forEach((row, i) => {
    if (special[i] || (skipsFirst && i === 0)) return;
    for (const { feature, activation } of row) {
      largest.set(feature, Math.max(activation, largest.get(feature) ?? 0));
    }
  });
  const of = (feature: number): number[] => fired.map((row) => row.find((f) => f.feature === feature)?.activation ?? 0);
  const made = { unit: meta.unit, fired, largest, of };
  DECODED.set(meta, made);
  return made;
}

/** The axis of the text that an SAE was read on, in the unit that is looked at. */
export function axisOfText(ctx: ViewContext, sae: Sae): { axis: Axis; unit: string } {
  const { sources, axes } = ctx.header();
  const { unit } = ctx.source();
  const mine = sources.filter(({ stream }) => stream === sae.stream);
  const found = mine.find((source) => source.unit === unit) ?? mine[0] ?? ctx.source();
  return { axis: axes[found.key] as Axis, unit: found.unit };
}

/** What fires on the text, once it is here. */
export function activationsOf(ctx: ViewContext, answers: Answers): Activations | undefined {
  const of = saeShown(ctx);
  const sae = optionsOf(ctx).saes?.[of];
  if (!sae?.onText) return undefined;
  const { axis, unit } = axisOfText(ctx, sae);
  const answer = answers.get<{ unit: string }>("activations", { of, unit });
  return answer && decoded(answer, axis.special, sae.skipsFirst);
}

/** The element of the text that is pinned, or under the pointer of any linked view; -1: none. */
export function tokenAt(ctx: ViewContext, which: "pinned" | "hover", sae: Sae): number {
  const cell = ctx.selection.get(which);
  if (!cell) return -1;
  const { axis, unit } = axisOfText(ctx, sae);
  const place = cell.key >= 0 ? cell.key : cell.query;
  if (cell.unit === unit) return place < axis.labels.length ? place : -1;
  const { sources, axes } = ctx.header();
  const from = sources.find((source) => source.unit === cell.unit && source.stream === sae.stream);
  const origin = from && axes[from.key];
  return origin ? translateIndex(place, origin, axis) : -1;
}

/** A line for what is being fetched, and why it cannot be had. */
export function createState(answers: () => Answers): { element: HTMLElement; told(topic: string, why?: string): void } {
  const [text, stop] = [h("span"), h("button.button", { type: "button" }, "Cancel")];
  const element = h("div.row.work", { role: "status" }, text, stop);
  let topic = "";
  element.hidden = true;
  stop.addEventListener("click", () => answers().cancel(topic));
  return {
    element,
    told(asked, why) {
      topic = asked;
      const job = answers().job(asked);
      element.hidden = !job && !why;
      stop.hidden = !job?.text;
      const steps = job?.total ? ` ${job.done} of ${job.total}` : "";
      const waits = job?.text && job.done === null ? ": waits for the running cell" : "";
      put(text, job ? `${job.text || "fetching"}${waits}${steps}` : (why ?? ""));
    },
  };
}
