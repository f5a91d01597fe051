/** Small copies of a picture, one for each word that rests on some part of it, on a common scale. */
import { colourAt, cssOf, heatMap } from "../../../colour.ts";
import type { ViewContext } from "../../../context.ts";
import { createWatch, h, keyboard, on, onResize, setChildren, setStyles } from "../../../dom.ts";
import { mediaOf } from "../../media/media.ts";
import { word as bare, inQuotes } from "../words.ts";
import { type CardActions, type Cards, scrollTo } from "./cards.ts";
import { amount, type Box, largestOf, named, type Picture, partAt, widthOfCopies } from "./sources.ts";

export interface CopyActions extends CardActions {
  /** Choose a word, null: the whole answer, and a part of the picture. */
  pick(word: number | null, part: number | null): void;
}

/** Opacity of the veil over parts that nothing rests on, and of the colour of parts; as in figures/parts/media.py. */
const [VEIL, FILL] = [0.5, 0.3];
const VEILS = { light: "#fff", dark: "#111418" };
/** px of a side from which a part has an edge, of an edge at most, and its share of a side. */
const [EDGED, THICKEST, EDGE] = [9, 5, 0.08];
/** Times from which an enlarged picture shows its pixels. */
const PIXELS = 4;

const KEYS =
  "↑ ↓: the part with the next smaller or larger number · ← →: another word · Enter: the answer without the part · Esc: let go";

interface Copy {
  word: number | null;
  element: HTMLElement;
  canvas: HTMLCanvasElement;
  over: HTMLElement;
  chosen: HTMLElement;
  rests: HTMLElement;
  isOld: ReturnType<typeof createWatch>;
}

interface Pictures {
  list: HTMLElement;
  copies: Copy[];
  image: ImageBitmap | null;
  /** Width of the list in px; 0 until it is on the page. */
  room: number;
  picture: Picture | null;
  over: number | null;
}

export function createPictures(ctx: ViewContext, signal: AbortSignal, actions: CopyActions): Cards {
  const list = h("div.source-pictures", { role: "listbox", tabindex: "0" });
  const state: Pictures = { list, copies: [], image: null, room: 0, picture: null, over: null };
  loadPicture(ctx)
    .then((image) => {
      state.image = image;
      paintAll(state);
    })
    .catch((error) => console.warn("attnwidgets: no picture", error));
  onResize(list, signal, ({ width }) => {
    state.room = width;
    paintAll(state);
  });
  const move = (by: number): void => {
    if (!state.picture) return;
    const { part, values } = state.picture;
    const order = [...partsOf(state.picture)].sort((a, b) => (values[b] ?? 0) - (values[a] ?? 0));
    const at = part === null ? -1 : order.indexOf(part);
    actions.choose(order[Math.max(0, Math.min(order.length - 1, at + by))] ?? null);
  };
  keyboard(
    list,
    signal,
    {
      ArrowUp: () => move(-1),
      ArrowDown: () => move(1),
      ArrowLeft: () => actions.step(-1),
      ArrowRight: () => actions.step(1),
      Home: () => move(-Infinity),
      End: () => move(Infinity),
      Enter: () => actions.write(),
      Escape: () => actions.choose(null),
    },
    KEYS,
  );
  on(list, signal, {
    click(event) {
      const { copy, part } = under(state, event);
      const { word, part: before } = state.picture ?? {};
      if (copy) actions.pick(copy.word, copy.word === word && part === before ? null : part);
    },
    pointermove(event) {
      const { copy, part } = under(state, event);
      state.over = part;
      for (const each of state.copies) mark(state, each.over, part);
      actions.hover(part, copy?.word);
    },
    pointerleave() {
      state.over = null;
      for (const each of state.copies) mark(state, each.over, null);
      actions.hover(null);
    },
  });
  return {
    element: list,
    draw(now) {
      state.picture = now;
      write(state);
      paintAll(state);
    },
    reveal: () => {},
  };
}

async function loadPicture(ctx: ViewContext): Promise<ImageBitmap | null> {
  const shown = await mediaOf(ctx);
  if (shown?.media.kind !== "picture" || !shown.buffers[0]) return null;
  return createImageBitmap(new Blob([shown.buffers[0]], { type: "image/jpeg" }));
}

/** The parts of the shown view of the picture. */
const partsOf = ({ shown, view }: Picture): readonly number[] => shown.picture?.views[view] ?? [];

const boxOf = ({ shown }: Picture, part: number): Box => shown.picture?.boxes[part] ?? [0, 0, 0, 0];

const valuesOf = ({ rows, values }: Picture, word: number | null): readonly number[] =>
  word === null ? values : (rows[word] ?? []);

/** The copy and the part under a pointer. */
function under({ copies, picture }: Pictures, event: MouseEvent): { copy: Copy | undefined; part: number | null } {
  const copy = copies.find(({ element }) => element.contains(event.target as Node));
  const area = copy?.canvas.getBoundingClientRect();
  if (!picture?.shown.picture || !area?.width) return { copy, part: null };
  const [x, y] = [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height];
  return { copy, part: partAt(picture.shown.picture.boxes, partsOf(picture), x, y) };
}

/** Draw a mark around a part; null: around none. */
function mark({ picture }: Pictures, el: HTMLElement, part: number | null): void {
  const isShown = picture !== null && part !== null && partsOf(picture).includes(part);
  setStyles(el, { visibility: isShown ? "visible" : "hidden" });
  if (!isShown) return;
  const [top, left, bottom, right] = boxOf(picture, part).map((share) => 100 * share) as unknown as Box;
  setStyles(el, { top: `${top}%`, left: `${left}%`, height: `${bottom - top}%`, width: `${right - left}%` });
}

/** Write below each copy the parts that its word rests on. */
function write(state: Pictures): void {
  const picture = state.picture as Picture;
  const { shown, word, sentence } = picture;
  const strong = shown.picture?.strong ?? [];
  const words = word === null ? [null] : strong.length ? strong : [word];
  if (words.length !== state.copies.length || words.some((each, i) => each !== state.copies[i]?.word)) {
    state.copies = words.map((each) =>
      createCopy(each, each === null ? "" : (shown.answer[sentence]?.words[each] ?? "")),
    );
    setChildren(state.list, ...state.copies.map(({ element }) => element));
  }
  state.list.ariaLabel =
    word === null ? "the picture, for the whole answer" : "the picture, for each word that rests on it";
  state.list.removeAttribute("aria-activedescendant");
  for (const copy of state.copies) {
    const values = valuesOf(picture, copy.word);
    const best = largestOf(values, partsOf(picture));
    const rests = best === null ? "" : `${amount(shown, values[best])} ${shown.relation} ${named(shown, best)}`;
    copy.rests.textContent = rests;
    copy.element.ariaLabel = `${copy.word === null ? "the whole answer" : inQuotes(shown.answer[sentence]?.words[copy.word] ?? "")}: ${rests}`;
    const isChosen = copy.word === word;
    copy.element.ariaSelected = String(isChosen);
    if (isChosen) state.list.setAttribute("aria-activedescendant", copy.element.id);
    if (isChosen && state.room) scrollTo(state.list, copy.element);
    mark(state, copy.chosen, picture.part);
    mark(state, copy.over, state.over);
  }
}

function createCopy(word: number | null, label: string): Copy {
  const canvas = h("canvas");
  const [over, chosen, rests] = [h("span.source-mark"), h("span.source-mark.source-pin"), h("span.source-quiet")];
  const element = h(
    "div.source-picture",
    { role: "option", id: `aw-${Math.random().toString(36).slice(2)}` },
    h("div.source-copy", canvas, over, chosen),
    h("b", { dir: "auto" }, word === null ? "the whole answer" : bare(label)),
    rests,
  );
  return { word, element, canvas, over, chosen, rests, isOld: createWatch() };
}

function paintAll(state: Pictures): void {
  const { picture, room, copies, image } = state;
  const size = picture?.shown.picture?.size;
  if (!picture || !size || !room) return;
  const width = widthOfCopies(copies.length, room, size[0] / size[1]);
  const height = Math.round((width * size[0]) / size[1]);
  const scale = Math.min(3, window.devicePixelRatio || 1);
  for (const copy of copies) {
    setStyles(copy.element, { width: `${width}px` });
    setStyles(copy.canvas, { width: `${width}px`, height: `${height}px` });
    const values = valuesOf(picture, copy.word);
    if (!copy.isOld(image, values, picture.view, picture.theme, width, height, scale)) continue;
    [copy.canvas.width, copy.canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    paint(state, copy.canvas, values, scale);
  }
}

/** Draw the picture beneath a veil, which is lighter over parts that a word rests on, with an edge in their colour. */
function paint(
  { picture, image }: Pictures,
  canvas: HTMLCanvasElement,
  values: readonly number[],
  scale: number,
): void {
  const pen = canvas.getContext("2d");
  if (!pen || !picture) return;
  const { theme, top } = picture;
  const [wide, high] = [canvas.width, canvas.height];
  pen.imageSmoothingEnabled = !image || wide / scale < PIXELS * image.width;
  pen.imageSmoothingQuality = "high";
  if (image) pen.drawImage(image, 0, 0, wide, high);
  const map = heatMap(true, theme);
  for (const part of partsOf(picture)) {
    const share = Math.max(-1, Math.min(1, (values[part] ?? 0) / top));
    const size = Math.abs(share);
    const box = boxOf(picture, part);
    const [y, x, bottom, right] = [box[0] * high, box[1] * wide, box[2] * high, box[3] * wide].map(
      Math.round,
    ) as unknown as Box;
    pen.globalAlpha = VEIL * (1 - size);
    pen.fillStyle = VEILS[theme];
    pen.fillRect(x, y, right - x, bottom - y);
    if (size < 0.02) continue;
    const side = Math.min(right - x, bottom - y);
    const colour = cssOf(colourAt(map, share > 0 ? 1 : 0));
    const isEdged = side >= EDGED * scale;
    pen.globalAlpha = size * (isEdged ? FILL : 2 * FILL);
    pen.fillStyle = pen.strokeStyle = colour;
    pen.fillRect(x, y, right - x, bottom - y);
    if (!isEdged) continue;
    pen.globalAlpha = size;
    const line = Math.max(1, Math.min(THICKEST * scale, EDGE * side));
    pen.lineWidth = line;
    pen.strokeRect(x + line / 2, y + line / 2, right - x - line, bottom - y - line);
  }
  pen.globalAlpha = 1;
}
