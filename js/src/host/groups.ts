/** Views that show the same text, and change to another text together. */

import type { QuestionOptions } from "../wire/questions.ts";
import type { ExplorerOptions, ViewOptions } from "../wire/viewState.ts";
import type { Header } from "../wire/wire.ts";
import { carriedOver } from "./carrying.ts";
import type { State } from "./pageModel.ts";

/** For each view, the models of its texts; null where it does not change. `shown` is the index of the shown text. */
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
  /** The drawn model among the models of a view. */
  drawn(line: readonly (string | null)[]): Settable | undefined;
}

type Asking = ViewOptions & Partial<QuestionOptions>;

/** The name of a model that a state refers to. */
export const nameIn = (ref: unknown): string => String(ref).replace(/^anywidget:/, "");

/** Change the text of the views of a group. */
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
      // A submitted answer stays; the next answer is about the shown text.
      ...(question && { question: { ...question, subject: subject === undefined ? record?.subject : subject } }),
    };
    model.setAll({ options, store: after.store, selection: after.selection });
  }
}
