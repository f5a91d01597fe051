/**
 * Small models stand in for the kernel of a notebook: when it is gone, they answer the requests of views, in the page.
 * The twin in pages without a kernel is src/host/standalone.ts.
 */
import type { AnyModel } from "@anywidget/types";
import { type Group, nameIn, type Settable, showIn } from "../host/groups.ts";
import { PageModel, type State } from "../host/pageModel.ts";
import { viewOf } from "../wire/binary.ts";
import { inflate } from "../wire/inflate.ts";
import type { Relieved, StandIn } from "../wire/standIn.ts";
import type { ExplorerOptions } from "../wire/viewState.ts";
import type { Question, QuestionReply, Reply, Request, StandInState } from "../wire/wire.ts";
import { createSession, type Host, type PackedLive, type Session, type Tell } from "./session.ts";
import type { Answered } from "./storeAnswers.ts";

const WORDS = "No kernel: computed here, with weights rounded to float16.";
const LOST = "needs a running kernel";
/** Milliseconds between two looks for the kernel. */
const LOOK_EVERY = 5000;
/** The state of a selection that carries over to another text. */
const COPIED = ["layer", "head", "unit", "method", "stack", "inside", "feature", "opening"] as const;

/** A store of the kernel: its views, and the model that answers for them. */
interface Desk {
  group: Group;
  session: Session;
  states: Map<string, State>;
  /** A view by its name; the name by its model. */
  views: Map<string, Relieved>;
  names: Map<unknown, string>;
  show(index: number): void;
}

/** A model of the notebook as the host of a session uses it. */
const settable = (model: AnyModel<never>): Settable => ({
  get: (key) => model.get(key as never),
  setAll(values) {
    for (const [key, value] of Object.entries(values)) model.set(key as never, value as never);
  },
});

export function createStandIn(): StandIn {
  const desks = new Map<string, Promise<Desk>>();
  /** Models that were created in the page, and the desks that they belong to. */
  const made = new Map<string, PageModel>();
  const owners = new Map<string, Desk>();
  const watched = new WeakSet<object>();
  const relieved = new Set<Relieved>();
  let isGone = false;
  let looked = 0;

  const isMadeHere = ({ props }: Relieved): boolean => made.has(nameIn(props.model.get("store")));
  /** The kernel has answered. Views of a text that it does not have are answered by the page as before. */
  const resume = (): void => {
    if (!isGone) return;
    isGone = false;
    for (const view of relieved) {
      if (isMadeHere(view)) continue;
      [view.model.answer, view.store.answer] = [null, null];
      relieved.delete(view);
      view.tiles.say("");
    }
  };
  const look = ({ given }: Relieved): void => {
    if (Date.now() - looked < LOOK_EVERY) return;
    looked = Date.now();
    try {
      given.send({ kind: "ping", id: 0 }, undefined, []);
    } catch {
      // The comm is closed.
    }
  };
  const watch = (model: AnyModel<never>): void => {
    if (watched.has(model)) return;
    watched.add(model);
    model.on("msg:custom", resume as never);
  };

  const opened = (view: Relieved, ref: string): Promise<Desk> => {
    const desk = desks.get(ref) ?? open(view, ref);
    desks.set(ref, desk);
    desk.catch(() => desks.delete(ref));
    return desk;
  };
  const open = async (view: Relieved, ref: string): Promise<Desk> => {
    const { model, ids } = view.store.get("stand_in") as StandInState;
    const liveModel = await view.props.host.getModel<{ packed: PackedLive; weights: unknown }>(model);
    const name = nameIn(ref);
    const units = view.store.get("header").sources.map(({ unit }) => unit);
    const packed: PackedLive = {
      ...liveModel.get("packed"),
      blob: name,
      group: 0,
      units: [...new Set(units)],
      stores: { [name]: ids },
    };
    const bytes = viewOf(liveModel.get("weights")) as DataView<ArrayBuffer>;
    const weights = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return createDesk(view, packed, made, owners, () => inflate(weights));
  };

  return {
    isNeeded: (view) => isGone || isMadeHere(view),
    modelOf: (ref, signal) => made.get(nameIn(ref))?.proxy(signal) as AnyModel<never> | undefined,
    async relieve(view) {
      const ref = String(view.props.model.get("store"));
      const isMade = isMadeHere(view);
      isGone ||= !isMade;
      const desk = owners.get(nameIn(ref)) ?? (await opened(view, ref));
      if (view.props.signal.aborted) return;
      const name = seated(desk, view);
      relieved.add(view);
      view.props.signal.addEventListener("abort", () => relieved.delete(view));
      view.model.answer = (question: Question) =>
        void answerView(desk, name, question, (news) =>
          view.model.hear({ kind: "progress", id: question.id, ...news }, []),
        ).then((answer) => answer && view.model.hear(...answer));
      if (!isMade) {
        for (const model of [view.props.model, view.given]) watch(model as never);
        view.store.answer = (request: Request) => {
          look(view);
          void answerStore(desk, nameIn(ref), request, (news) =>
            view.store.hear({ kind: "progress", id: request.id, ...news }, []),
          ).then((answer) => answer && view.store.hear(...answer));
        };
        // As if the kernel answered again: unanswered requests are sent again.
        view.store.hear({ kind: "pong", id: 0 }, []);
      }
      view.tiles.say(WORDS);
    },
  };
}

/** The name of a view at a desk, where new views are added. */
function seated({ group, names, states, views }: Desk, view: Relieved): string {
  const existing = names.get(view.props.model);
  const name = existing ?? `view${names.size}`;
  views.set(name, view);
  if (existing) return existing;
  names.set(view.props.model, name);
  const [store, selection, options] = (["store", "selection", "options"] as const).map((key) => view.model.get(key));
  states.set(name, { store, selection, options });
  const { texts } = options as ExplorerOptions;
  // Other texts that the kernel recorded stay where they are: with the kernel.
  const [first] = group.views;
  const count = first?.length ?? Math.max(1, texts?.items.length ?? 0);
  if (!first) group.shown = texts?.items.length ? texts.shown : 0;
  group.views.push(Array.from({ length: count }, (_, i) => (i === group.shown ? name : null)));
  return name;
}

function createDesk(
  view: Relieved,
  packed: PackedLive,
  made: Map<string, PageModel>,
  owners: Map<string, Desk>,
  weights: () => Promise<Uint8Array<ArrayBuffer>>,
): Desk {
  const group: Group = { shown: 0, views: [] };
  const states = new Map<string, State>();
  const views: Desk["views"] = new Map();
  const names: Desk["names"] = new Map();
  const selection = nameIn(view.model.get("selection"));
  states.set(selection, Object.fromEntries(COPIED.map((key) => [key, view.selection.get(key)])));
  const given = new Map([
    [packed.blob, settable(view.given as never)],
    [selection, settable(view.selection as never)],
  ]);
  const model = (name: string): Settable | undefined => {
    const drawn = views.get(name);
    return drawn ? settable(drawn.props.model as never) : (made.get(name) ?? given.get(name));
  };
  const show = (index: number): void => {
    const drawn = (line: readonly (string | null)[]): Settable | undefined =>
      model(line.find((name) => name !== null && views.has(name)) ?? "");
    showIn(group, index, { written: (name) => states.get(name), model, drawn });
  };
  const host: Host = {
    groups: [group],
    model,
    written: (name) => states.get(name) as State,
    add(name, kind, state) {
      states.set(name, state);
      if (kind === "view") return;
      const pageModel = new PageModel({ ...state, ...(kind === "store" && { stand_in: view.store.get("stand_in") }) });
      made.set(name, pageModel);
      owners.set(name, desk);
      if (kind === "store")
        pageModel.onSend = (request) =>
          void answerStore(desk, name, request as Request, (news) =>
            pageModel.emit("msg:custom", { kind: "progress", id: request.id, ...news }, []),
          ).then((answer) => answer && pageModel.emit("msg:custom", ...answer));
    },
    show: async (_, index) => show(index),
    bytes: weights,
    engine: "",
  };
  const desk: Desk = { group, session: createSession([packed], host), states, views, names, show };
  return desk;
}

type Failed = { kind: "error"; id: number; message: string };

/** A computed answer; an error where it cannot be computed. */
async function replied<R>(id: number, computed: Promise<Answered<R> | null>): Promise<Answered<R | Failed>> {
  const failed = (message: string): Answered<Failed> => [{ kind: "error", id, message }, []];
  try {
    return (await computed) ?? failed(LOST);
  } catch (error) {
    console.error(error);
    return failed("this could not be computed in the page");
  }
}

async function answerStore(
  { session }: Desk,
  store: string,
  request: Request,
  tell: Tell,
): Promise<Answered<Reply | Failed>> {
  return replied(request.id, session.request(store, request, tell));
}

async function answerView(
  desk: Desk,
  name: string,
  question: Question,
  tell: Tell,
): Promise<Answered<QuestionReply> | null> {
  if (question.kind !== "ask") return null;
  const { id, topic, args } = question;
  if (topic !== "text" || typeof args.index !== "number")
    return replied(id, desk.session.question(name, question, tell) as Promise<Answered<QuestionReply> | null>);
  const isHere = desk.group.views.some((line) => line[args.index as number]);
  if (!isHere) return [{ kind: "error", id, message: LOST }, []];
  desk.show(args.index);
  return [{ kind: "answer", id, meta: { shown: desk.group.shown }, lengths: [] }, []];
}
