/** Views that show the same text, and go to another one together. */

import type { QuestionOptions } from "../wire/questions.ts";
import type { ExplorerOptions, ViewOptions } from "../wire/viewState.ts";
import type { Header } from "../wire/wire.ts";
import { carriedOver } from "./carrying.ts";
import type { State } from "./pageModel.ts";

/** For each view the models that stand for it, by text; null where it stays as it is. `shown` is the place of the text. */
export interface Group {
  shown: number;
  views: (string | null)[][];
}

/** A model whose values can be read and set. */
export interface Settable {
  get(key: string): unknown;
  setAll(values: State): void;
}

/** Where the models are. */
export interface Models {
  /** State of a view's model as it was written. */
  written(name: string): State | undefined;
  /** A store or a selection. */
  model(name: string): Settable | undefined;
  /** Of the models that stand for a view, the one that is drawn. */
  drawn(line: readonly (string | null)[]): Settable | undefined;
}

type Asking = ViewOptions & Partial<QuestionOptions>;

/** The name of a model that a state refers to. */
export const nameIn = (ref: unknown): string => String(ref).replace(/^anywidget:/, "");

/** Let the views of a group show another text. */
export function showIn(group: Group, index: number, models: Models): void {
  const left = group.shown;
  if (index === left) return;
  group.shown = index;
  for (const line of group.views) {
    const [before, after] = [left, index].map((at) => models.written(line[at] ?? ""));
    const model = models.drawn(line);
    if (!before || !after || !model) continue;
    const partOf = (state: State, name: string): Settable | undefined => models.model(nameIn(state[name]));
    const [from, to] = [partOf(before, "selection"), partOf(after, "selection")];
    const [header, next] = [before, after].map((state) => partOf(state, "store")?.get("header") as Header);
    if (from && to) to.setAll(carriedOver(from, header as Header, to, next as Header));
    const { filters, question } = model.get("options") as Asking;
    const { texts } = after.options as ExplorerOptions;
    const { subject, record } = (after.options as Asking).question ?? {};
    const options = {
      ...(after.options as ViewOptions),
      filters,
      ...(texts && { texts: { ...texts, previous: left } }),
      // An answer stays; the next one is about the text that is shown.
      ...(question && { question: { ...question, subject: subject === undefined ? record?.subject : subject } }),
    };
    model.setAll({ options, store: after.store, selection: after.selection });
  }
}
