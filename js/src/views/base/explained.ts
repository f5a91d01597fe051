/** The explanation of the prediction, which colours a text until the reader chooses another. */
import type { ViewContext } from "../../context.ts";
import type { Source } from "../../wire/wire.ts";

/** The explanation of the prediction over the elements of the shown map; null while something else is chosen. */
export function explanationAtRest(ctx: ViewContext): Source | null {
  const { source } = ctx.resolved();
  const { predictions, sources } = ctx.header();
  const isAtRest = ctx.options.method === null && source.kind === "map" && !ctx.cell("pinned");
  if (!isAtRest || !predictions.method || ctx.selection.get("interventions")?.length) return null;
  return (
    sources.find(
      ({ method, unit, stack, key }) =>
        method === predictions.method && unit === source.unit && stack === source.stack && key === source.key,
    ) ?? null
  );
}

/** Have the kernel explain the prediction, once for each text, unless the text is long. */
export function requestExplanation(ctx: ViewContext): void {
  const { predictions, methods, text } = ctx.header();
  const { source, layer } = ctx.resolved();
  const offer = methods.find(({ method }) => method === predictions.method);
  const isLong = ctx.axisOf(source.key).labels.length > LONGEST;
  if (!offer || offer.refusal || isLong || ctx.lasting.get(EXPLAINED) === text) return;
  ctx.lasting.set(EXPLAINED, text);
  ctx.tiles.make(offer.method, layer, () => undefined);
}
const EXPLAINED = "explained";
/** Tokens up to which a prediction is explained without a request: `MOST_EXPLAINED` of linked_view.py. */
const LONGEST = 512;
