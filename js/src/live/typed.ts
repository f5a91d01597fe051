/** A text that the reader typed: its models, and its index among the texts of its views. */
import { type Group, nameIn } from "../host/groups.ts";
import type { State } from "../host/pageModel.ts";
import { lastContent } from "../views/base/opening.ts";
import type { QuestionOptions } from "../wire/questions.ts";
import type { ExplorerOptions, TextItem, Texts } from "../wire/viewState.ts";
import type { Axis, Header, Opens } from "../wire/wire.ts";
import { labelsOf } from "./labels.ts";
import { createText, headerOf, type LiveText } from "./liveText.ts";
import type { Host, LiveModel, PackedLive, Source } from "./model.ts";
import { predictionsOf } from "./predictions.ts";
import { type Read, read, Unreadable } from "./reader.ts";
import { axisIn } from "./units.ts";

/** A model of the page with its texts. */
export interface Live {
  packed: PackedLive;
  source: Source;
  texts: Map<string, (model: LiveModel) => LiveText>;
  opened: Map<string, LiveText>;
}

/** Characters of a text in a menu. */
const BEGINNING = 80;
/** Texts that were typed: each has a store and a selection. */
let made = 0;
/** Predictions of a header. */
const FEW = 10;

const itemOf = ({ text, model, predictions, axes }: Header): TextItem => ({
  text: text.length > BEGINNING ? `${text.slice(0, BEGINNING - 1)}…` : text,
  tokens: Object.values(axes)[0]?.labels.length ?? 0,
  model,
  prediction: predictions.items[0] ?? null,
});

/** Show a text that the reader typed in all views of its group; returns its index. */
export async function type(live: Live, host: Host, typed: string): Promise<number> {
  const { packed } = live;
  const group = host.groups[packed.group] as Group;
  const text = typed.toWellFormed();
  const model = await live.source.ready();
  const tokens = read(model.reader, text);
  const lead = group.views.find((line) => line[group.shown]) as string[];
  const header = (name: string | null | undefined): Header | undefined =>
    name ? (host.model(nameIn(host.written(name).store))?.get("header") as Header | undefined) : undefined;
  const existing = lead.findIndex((name) => header(name)?.text === text);
  if (existing < 0) await add(live, model, host, text, tokens);
  const index = existing < 0 ? lead.length - 1 : existing;
  await host.show(packed.group, index);
  return index;
}

/** Create the text of a store. */
export const textIn =
  (host: Host, store: string, ids: readonly number[]) =>
  (model: LiveModel): LiveText =>
    createText(
      model,
      ids,
      () => host.model(store)?.get("header") as Header,
      (header) => host.model(store)?.setAll({ header }),
    );

/** Add the models of a text: a store, a selection, and the states of the views that show it. */
async function add(
  { packed, texts, opened }: Live,
  model: LiveModel,
  host: Host,
  text: string,
  tokens: Read,
): Promise<void> {
  const predictions = predictionsOf(model.predicts, await model.pass(tokens.ids), FEW);
  const group = host.groups[packed.group] as Group;
  const lines = group.views.map((line) => line[group.shown] ?? null);
  const like = host.written(lines.find(Boolean) as string);
  const before = host.model(nameIn(like.store))?.get("header") as Header;
  const labels = labelsOf(model.reader, tokens.ids);
  const axes = packed.units.flatMap((unit) => axisIn(unit, text, tokens, labels) ?? []);
  made += 1;
  const [store, selection] = ["store", "selection"].map((kind) => `${packed.blob}-${kind}${made}`) as [string, string];
  const empty = headerOf(before, text, axes, predictions);
  if (!empty.sources.length && !empty.methods.length)
    throw new Unreadable("The views of this page show nothing that is computed for another text.");
  host.add(store, "store", { header: empty, eager: new Uint8Array() });
  const typed = textIn(host, store, tokens.ids);
  texts.set(store, typed);
  opened.set(store, typed(model));
  // Views that show only explanations explain the prediction immediately.
  if (!empty.sources.length) for (const { method } of empty.methods) await opened.get(store)?.explain(method);
  const header = host.model(store)?.get("header") as Header;
  host.add(selection, "selection", startOf(host.written(nameIn(like.selection)), header));
  const items = itemsOf(group, host, header);
  const questions = lines.map((name) =>
    name ? (host.written(name).options as Partial<QuestionOptions>).question : null,
  );
  const subjects = await Promise.all(questions.map((question) => question && subjectOf(question.model, tokens.ids)));
  group.views.forEach((line, row) => {
    const name = lines[row] ? `${store}-view${row}` : null;
    if (name) {
      const state = host.written(lines[row] as string);
      const { texts, ...rest } = state.options as ExplorerOptions;
      const question = questions[row] && { ...questions[row], subject: subjects[row] };
      const options = {
        ...rest,
        marks: [],
        ...(texts && { texts: { ...texts, text: null } }),
        ...(question && { question }),
      };
      const at = { store: `anywidget:${store}`, selection: `anywidget:${selection}` };
      // The line for typed texts receives the text, and is not redrawn.
      const isLine = "text" in rest;
      host.add(name, "view", { ...state, ...(isLine ? { options: { ...options, text } } : { options, ...at }) });
    }
    line.push(name);
    line.forEach((viewName, index) => {
      if (viewName) setTexts(host.written(viewName), items, index);
    });
  });
}

/** The hash of a model and a text, as `subject_of` of attnwidgets/course/records.py; null where browsers do not hash. */
async function subjectOf(model: readonly string[], ids: readonly number[]): Promise<string | null> {
  // Only pages from files and from https have it.
  if (!globalThis.crypto?.subtle) return null;
  const bytes = new TextEncoder().encode(JSON.stringify([model, ids, [], []]));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest.subarray(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A selection before anything was chosen in it. */
function startOf(like: State, { sources, axes }: Header): State {
  const [first] = sources;
  const opening = first && {
    ...{ layer: -1, head: null, unit: first.unit, query: lastContent(axes[first.query] as Axis) },
    ...{ pair: null, words: "", sentence: "", value: null, note: "" },
  };
  const none = {
    pinned: null,
    pins: [],
    heads: [],
    span: null,
    target: null,
    foil: null,
    interventions: [],
    opening: (opening ?? null) satisfies Opens | null,
  };
  const has = sources.some(({ method }) => method === like.method);
  return { ...like, ...none, hover: null, unit: first?.unit, ...(has ? {} : { method: first?.method }) };
}

/** The menu of texts, with the typed text added. */
function itemsOf(group: Group, host: Host, more: Header): TextItem[] {
  const states = group.views.flatMap((line) => (line[group.shown] ? [host.written(line[group.shown] as string)] : []));
  const texts = states.map(({ options }) => (options as ExplorerOptions).texts).find(Boolean);
  const [first] = states;
  const shown = host.model(nameIn(first?.store))?.get("header") as Header;
  return [...(texts?.items.length ? texts.items : [itemOf(shown)]), itemOf(more)];
}

/** Set the list of texts in a view's options; views without a menu of texts keep theirs. */
function setTexts(state: State, items: TextItem[], shown: number): void {
  const { texts, ...options } = state.options as ExplorerOptions;
  if (texts) state.options = { ...options, texts: { ...texts, items, shown } satisfies Texts };
}
