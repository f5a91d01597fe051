/**
 * A page without a kernel: the same views, over models stored in the page. This host answers the store's requests from
 * the page's archive, as the kernel would, and replies with an error if the file lacks an answer.
 */
import type { AnyModel, Host } from "@anywidget/types";
import type { ViewProps } from "../context.ts";
import type { Host as LiveHost, PackedLive, Session, Tell } from "../live/session.ts";
import { createRenderers, type Part, type PartCode } from "../runtime.ts";
import { shared } from "../shared.ts";
import type { Inside } from "../views/base/inside.ts";
import { inflate, joined } from "../wire/inflate.ts";
import type { ViewState } from "../wire/viewState.ts";
import type {
  Header,
  HeadKey,
  Placed,
  Question,
  QuestionReply,
  Reply,
  Request,
  Thumbs,
  TileMeta,
} from "../wire/wire.ts";
import { followAddress } from "./address.ts";
import { base64Bytes, base64Slice } from "./base64.ts";
import { type CodesOf, computedCodes, type Entry } from "./computed.ts";
import { type Group, nameIn, showIn } from "./groups.ts";
import { PageModel, type State } from "./pageModel.ts";

const VIEWS = ".aw-view[data-model]";

/** The data of a store in a page, in addition to its eager bytes. */
interface Archive {
  tiles: Entry[];
  thumbs: (Thumbs & Placed)[];
}

/** An answer of a view's Python twin, recorded when the page was written; or why there is none. */
interface RecordedAnswer {
  topic: string;
  args: Record<string, unknown>;
  refused?: string;
  meta: unknown;
  buffers: Placed[];
}

interface Page {
  version: number;
  models: Record<string, { kind: "store" | "selection" | "view" | "media"; view?: string; state: State }>;
  views: string[];
  texts: Group[];
  archive: Record<string, Archive["tiles"]>;
  thumbs: Record<string, Archive["thumbs"]>;
  answers: Record<string, RecordedAnswer[]>;
  /** Models that run in the page. */
  live?: PackedLive[];
}

/** The scripts of a page: its parts, and separately the script that runs models. */
interface Scripts {
  awParts?: PartCode[];
  /** The worker that runs models of the page's folder, as text. */
  awEngine?: string;
  awLive?: (lent: readonly unknown[]) => Part & { session(all: readonly PackedLive[], host: LiveHost): Session };
}

function textOf(id: string): string {
  return document.getElementById(id)?.textContent?.replace(/\s+/g, "") ?? "";
}

const MISSING = "not in this file; open the notebook with a kernel to see it";

/** Reads a part of an archive; rejects if it is damaged. */
type Read = (placed: Placed) => Promise<Uint8Array<ArrayBuffer>>;

/** A reader of the base64 text of an element that follows the script: it waits until the page is read so far. */
function reader(id: string): Read {
  let text: Promise<string> | null = null;
  return async ({ offset, length }) => {
    text ??= parsed().then(() => textOf(id));
    return inflate(base64Slice(await text, offset, length));
  };
}

/** The bytes of an element that is already in the page; none without such an element. */
async function unpacked(id: string): Promise<Uint8Array<ArrayBuffer>> {
  const text = textOf(id);
  return text ? inflate(base64Bytes(text)) : new Uint8Array(0);
}

/** Change the text of the views of a group. Its numbers are unpacked first, if it was not shown before. */
async function showText(
  group: Group,
  index: number,
  written: Page["models"],
  models: ReadonlyMap<string, PageModel>,
): Promise<void> {
  await parsed();
  const left = group.shown;
  const stateOf = (name: string | null | undefined): State | undefined => written[name ?? ""]?.state;
  for (const line of group.views) {
    const id = nameIn(stateOf(line[index])?.store);
    const store = models.get(id);
    if (!store || store.get("header")) continue;
    const header = JSON.parse(new TextDecoder().decode(await unpacked(`aw-head-${id}`))) as Header;
    store.setAll({ header, eager: await unpacked(`aw-data-${id}`) });
  }
  if (group.shown !== left) return;
  showIn(group, index, {
    written: stateOf,
    model: (name) => models.get(name),
    drawn: (line) => models.get(line.find((name) => name !== null && models.get(name)?.isDrawn) ?? ""),
  });
}

/** Resolves once the whole page is in the document. */
async function parsed(): Promise<void> {
  if (document.readyState !== "loading") return;
  await new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
}

/** Answer a store's request from the archive. */
async function answerRequest(
  request: Request,
  archive: Archive,
  read: Read,
  codes: CodesOf,
): Promise<[Reply, Uint8Array[]]> {
  const { id, kind } = request;
  if (kind === "ping") return [{ kind: "pong", id }, []];
  const refused = (message: string): [Reply, Uint8Array[]] => [{ kind: "error", id, message, needsKernel: true }, []];
  if (kind === "row") return refused("exact values need a running kernel");
  if (kind === "method" || kind === "cancel") return refused("needs a running kernel");
  const archivedTile = ({ source, layer, head }: Pick<TileMeta, "source" | "layer" | "head">) =>
    archive.tiles.find((t) => t.source === source && t.layer === layer && t.head === head);
  const archivedThumbs = ({ source, special }: Pick<Thumbs, "source" | "special">) =>
    archive.thumbs.find((t) => t.source === source && t.special === special);
  if (kind === "layer") {
    const { source, layer, heads } = request;
    const selected: Entry[] = [];
    const refused: { head: HeadKey; message: string }[] = [];
    for (const head of heads) {
      const tile = archivedTile({ source, layer, head });
      if (tile) selected.push(tile);
      else refused.push({ head, message: MISSING });
    }
    const parts = await Promise.all(selected.map(codes));
    let end = 0;
    const tiles = selected.map((tile, i) => {
      const { length } = parts[i] as Uint8Array;
      end += length;
      return { ...tile, offset: end - length, length };
    });
    return [{ kind, id, source, layer, tiles, refused }, [joined(parts)]];
  }
  const entry = kind === "thumbs" ? archivedThumbs(request) : archivedTile(request);
  if (!entry) return refused(MISSING);
  const { offset, length, ...meta } = entry;
  const data = "layer" in entry ? codes(entry) : read({ offset, length });
  return [{ kind, id, ...meta } as Reply, [await data]];
}

/** Answer a view's question from the answers recorded in the page. */
async function answerQuestion(
  question: Question,
  recorded: RecordedAnswer[],
  read: Read,
): Promise<[QuestionReply, Uint8Array[]]> {
  const { id } = question;
  const recordedAnswer =
    question.kind === "ask" &&
    recorded.find(
      ({ topic, args }) => topic === question.topic && JSON.stringify(args) === JSON.stringify(question.args),
    );
  const refused = recordedAnswer ? recordedAnswer.refused : "not in this file; it needs a running kernel";
  if (!recordedAnswer || refused) return [{ kind: "error", id, message: refused as string }, []];
  const buffers = await Promise.all(recordedAnswer.buffers.map(read));
  const lengths = buffers.map(({ length }) => length);
  return [{ kind: "answer", id, meta: recordedAnswer.meta, lengths }, buffers];
}

/** Whether a recorded reply is incomplete. */
const lacks = (reply: Reply | QuestionReply): boolean =>
  reply.kind === "error" || (reply.kind === "layer" && reply.refused.length > 0);

/** The models of a page, and the functions that answer their requests. */
interface Hosted {
  models: ReadonlyMap<string, PageModel>;
  /** Resolves when all models have been created. */
  ready: Promise<unknown>;
  groupOf(id: string): Group | undefined;
  show(group: Group, index: number): Promise<void>;
}

/** Create the models of a page; `texted` is called when views changed to another text. */
function hosted(page: Page, live: ReturnType<NonNullable<Scripts["awLive"]>> | undefined, texted: () => void): Hosted {
  const models = new Map<string, PageModel>();
  const groups = page.texts ?? [];
  const groupOf = (id: string): Group | undefined =>
    groups.find(({ views }) => views.some((line) => line.includes(id)));
  const show = async (group: Group, index: number): Promise<void> => {
    await showText(group, index, page.models, models);
    session?.offer();
    texted();
  };
  const make = async (id: string, { kind, state }: Page["models"][string]): Promise<void> => {
    const model = new PageModel({ ...state });
    models.set(id, model);
    if (kind === "store" && state.header && !state.eager) model.set("eager", await unpacked(`aw-data-${id}`));
    if (kind === "media") model.set("data", await unpacked(`aw-data-${id}`));
    if (kind === "selection" || kind === "media") return;
    const recorded = kind === "store" ? storeAnswers(page, id, model) : viewAnswers(page, id, groupOf(id), show);
    const computed = (kind === "store" ? session?.request : session?.question) as Computes | undefined;
    model.onSend = async (request) => {
      let answered: Answered;
      try {
        answered = await recorded(request as never);
        // Numbers that were not recorded may be computed in the page.
        const tell: Tell = (news) => model.emit("msg:custom", { kind: "progress", id: request.id, ...news }, []);
        if (lacks(answered[0])) answered = (await computed?.(id, request, tell)) ?? answered;
      } catch (error) {
        console.error(error);
        answered = [{ kind: "error", id: request.id, message: "this could not be read from the file" }, []];
      }
      model.emit("msg:custom", ...answered);
    };
  };
  const session = live?.session(page.live ?? [], {
    groups,
    model: (name) => models.get(name),
    written: (name) => page.models[name]?.state as State,
    add(name, kind, state) {
      page.models[name] = { kind, state };
      make(name, { kind, state });
    },
    show: async (group, index) => show(groups[group] as Group, index),
    bytes: async (id) => parsed().then(() => unpacked(id)),
    engine: (globalThis as Scripts).awEngine ?? "",
  });
  const ready = Promise.all(Object.entries(page.models).map(([id, written]) => make(id, written)));
  return { models, ready, groupOf, show };
}

type Answered = [Reply | QuestionReply, Uint8Array[]];
type Computes = (id: string, request: Request | Question, tell: Tell) => Promise<Answered | null>;

/** The recorded answers of a store. */
function storeAnswers(page: Page, id: string, store: PageModel): (request: Request) => Promise<Answered> {
  const archive = { tiles: page.archive[id] ?? [], thumbs: page.thumbs?.[id] ?? [] };
  const read = reader(`aw-tiles-${id}`);
  const codes = computedCodes(archive.tiles, read, () => store.get("header") as Header);
  return (request) => answerRequest(request, archive, read, codes);
}

/** The recorded answers of a view about the shown text; `show` changes its group to another text. */
function viewAnswers(
  page: Page,
  id: string,
  group: Group | undefined,
  show: Hosted["show"],
): (question: Question) => Promise<Answered> {
  const readers = new Map<string, Read>();
  return async (question) => {
    if (group && question.kind === "ask" && question.topic === "text" && typeof question.args.index === "number") {
      await show(group, question.args.index);
      return [{ kind: "answer", id: question.id, meta: { shown: group.shown }, lengths: [] }, []];
    }
    const line = group?.views.find((names) => names.includes(id));
    const name = line?.[group?.shown ?? 0] ?? id;
    const read = readers.get(name) ?? reader(`aw-tiles-${name}`);
    readers.set(name, read);
    return answerQuestion(question, page.answers?.[name] ?? [], read);
  };
}

async function start(): Promise<void> {
  const page = JSON.parse(document.getElementById("aw-state")?.textContent ?? "null") as Page | null;
  if (!page) return;
  const { awParts, awLive } = globalThis as Scripts;
  const live = awLive?.(shared);
  /** Mark every view with the index of its text, for its link. */
  const markTexts = (): void => {
    for (const { el, group } of shown) if (group) el.dataset.text = String(group.shown);
  };
  const { models, ready, groupOf, show } = hosted(page, live, () => markTexts());
  await ready;
  const renderers = createRenderers();
  for (const code of [...(awParts ?? []), ...(live ? [() => live] : [])]) renderers.add(code);
  const named = (ref: string): PageModel => {
    const model = models.get(nameIn(ref));
    if (!model) throw new Error(`unknown model in this page: ${ref}`);
    return model;
  };
  const shown = [...document.querySelectorAll<HTMLElement>(VIEWS)].flatMap((el) => {
    const id = el.dataset.model ?? "";
    const name = page.models[id]?.view;
    return name ? [{ el, name, model: named(`anywidget:${id}`), group: groupOf(id) }] : [];
  });
  // Views inside others, such as that below a question, are drawn as well.
  const mark = (model: PageModel): void => {
    model.isDrawn = true;
    for (const inside of (model.get("options") as { inner?: Inside[] }).inner ?? []) mark(named(inside.model));
  };
  for (const { model } of shown) mark(model);
  markTexts();
  // Before anything is drawn: a page opens as its address specifies.
  const scroll = await followAddress(
    shown
      .filter(({ el }) => !("live" in el.dataset))
      .map(({ el, model, group }) => ({
        el,
        part: (of) => named(model.get(of) as string),
        texts: group?.views[0]?.length ?? 0,
        shownText: () => group?.shown ?? 0,
        showText: async (index) => {
          if (group) await show(group, index);
        },
      })),
    [...models].flatMap(([id, model]) => (page.models[id]?.kind === "selection" ? [model] : [])),
  );
  const drawn = shown.map(async ({ el, name, model }) => {
    const { signal } = new AbortController();
    const host = {
      getModel: async (ref: string) => named(ref).proxy(signal),
      getWidget: async () => ({ exports: renderers }),
    } as unknown as Host;
    const props: ViewProps = { model: model.proxy(signal) as unknown as AnyModel<ViewState>, el, signal, host };
    await renderers.render(props, name).catch(reportError);
  });
  await Promise.all(drawn);
  scroll();
}

/** Write in every view that the page cannot be shown. */
function refuse(error: unknown): void {
  console.error(error);
  for (const el of document.querySelectorAll<HTMLElement>(VIEWS)) {
    el.role = "alert";
    el.textContent = "This file is damaged and cannot be read. Write the page again with to_html().";
  }
}

if (typeof document !== "undefined") {
  document.querySelector(".aw-unable")?.remove();
  start().catch(refuse);
}
