/** The text, coloured by how unexpected each token was; a click shows the predictions at its position. */

import type { ViewContext } from "../../../context.ts";
import { atEnd, h, quoted, setChildren, setText } from "../../../dom.ts";
import { percent, printed, tickText } from "../../../numbers.ts";
import type { Answers } from "../../../wire/answers.ts";
import type { Axis } from "../../../wire/wire.ts";
import { peak } from "../rowValues.ts";
import { createStrip, type Strip } from "../strip.ts";
import { fills, gradient } from "../stripColour.ts";

interface SurprisalAnswer {
  labels: string[];
  special: number[];
  mean: number;
}

const TOPIC = "surprisal";

export function createSurprisal(
  ctx: ViewContext,
  answers: Answers,
  signal: AbortSignal,
  choose: (index: number) => number | null,
): { element: HTMLElement; show(offered: boolean, chosen: number | null): void } {
  const container = h("div.texts");
  const [high, ramp, mean] = [h("span"), h("span.ramp"), h("span")];
  const readout = h("div.readout", { role: "status" });
  const element = h(
    "section.predicted",
    { "aria-label": "surprisal of the text" },
    container,
    h("div.row", h("span.field", "0", ramp, high), mean),
    readout,
  );
  let bound = new AbortController();
  let strip: Strip | null = null;
  let axis: Axis | null = null;
  let values = new Float32Array(0);
  let chosen: number | null = null;
  let here = -1;

  const say = (): void => {
    if (!axis) return;
    const at = here >= 0 ? here : (chosen ?? -1);
    strip?.mark("aw-key", here);
    strip?.mark("aw-query", chosen ?? -1);
    const bits = values[at];
    if (bits === undefined) {
      setText(readout, "Hover a token to read its surprisal, click it to see what the model expected there.");
      return;
    }
    const name = quoted(axis.labels, at, ctx.options.indexBase);
    const words = Number.isNaN(bits)
      ? "is the first token: it has no surprisal"
      : `${printed(bits, true)} bits, probability ${percent(2 ** -bits)}`;
    setText(readout, `${name}: ${words}`);
  };
  const build = (answer: SurprisalAnswer, buffer: DataView): void => {
    bound.abort();
    bound = new AbortController();
    values = Float32Array.from(answer.labels, (_, i) => buffer.getFloat32(4 * i, true));
    const { labels, special } = answer;
    axis = {
      unit: "token",
      labels,
      special,
      spans: null,
      segment: labels.map(() => 0),
      boundary: null,
      grid: null,
      cells: null,
      times: null,
    };
    const events = {
      hover(index: number) {
        here = index;
        say();
      },
      pin(index: number) {
        chosen = index > 0 ? choose(index) : null;
        say();
      },
    };
    strip = createStrip(ctx, axis, "", new Set(), events, bound.signal);
    setChildren(container, strip.box);
    setText(mean, `mean ${tickText(answer.mean)} bits per token, perplexity ${tickText(2 ** answer.mean)}`);
  };
  let builtAnswer: unknown;
  const show = (offered: boolean, now: number | null): void => {
    chosen = now;
    if (!offered) return;
    const answer = answers.get<SurprisalAnswer>(TOPIC);
    const why = answers.failure(TOPIC);
    if (why) setText(readout, why);
    const [buffer] = answer?.buffers ?? [];
    if (!answer || !buffer) return;
    if (builtAnswer !== answer.meta) {
      builtAnswer = answer.meta;
      build(answer.meta, buffer);
    }
    const top = peak(values);
    const colour = fills(ctx.theme, false);
    strip?.underlay.paint((i) => colour((values[i] as number) / (top || 1)));
    ramp.style.background = gradient(ctx.theme, false);
    setText(high, `${tickText(top)} bits`);
    say();
  };
  atEnd(signal, () => bound.abort());
  return { element, show };
}
