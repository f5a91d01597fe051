/** What a method is asked about: a target, rather than a foil. The twin of `attnwidgets/views/wire/keys.py`. */
import type { ViewContext } from "../context.ts";
import type { Header, Outcome } from "../wire/wire.ts";

type Asked = [target: Outcome | null, foil: Outcome | null];

/** A key without what it is about. */
export const baseOf = (method: string): string => method.replace(/@[\d-]+/, "");

/** The key of a method about a target, rather than a foil. */
export function askedAbout(method: string, target: Outcome | null, foil: Outcome | null): string {
  const base = baseOf(method).replace(/:layers$/, "");
  return target ? `${base}@${target.id}${foil ? `-${foil.id}` : ""}` : base;
}

/** What a key is about; null where that is the prediction, or nothing. */
export function askedIn(header: Header, method: string): Asked | null {
  const [, ...ids] = /@(\d+)-?(\d*)/.exec(method) ?? [];
  const [target = null, foil = null] = ids.map((id) =>
    id ? (header.predictions.items.find((item) => item.id === Number(id)) ?? { id: Number(id), label: id }) : null,
  );
  return target && [target, foil];
}

/** The first method that can be asked about targets: `method`, or any where that is left out. */
export function takesTargets({ sources, methods }: Header, method = ""): { title: string } | undefined {
  const [base] = method.split(/[@:]/);
  return [...sources, ...methods].find((one) => one.targets && (!base || one.method === base));
}

/** Target and foil of what is shown; where that is about neither, those that were chosen for what comes. */
export function askedOf(ctx: ViewContext): Asked {
  const { get } = ctx.selection;
  return askedIn(ctx.header(), ctx.source().method) ?? [get("target"), get("foil")];
}

/** Show a method, made where it is not here. */
export function showMethod(ctx: ViewContext, method: string, [target, foil]: Asked): void {
  ctx.tiles.make(
    method,
    ctx.resolved().layer,
    () => ctx.signal.aborted || ctx.selection.set({ method, target, foil, inside: false }),
  );
}

/** Show a method of the menu: about the chosen target where it is yet to be made and takes one. */
export function chooseMethod(ctx: ViewContext, method: string): void {
  const { sources, methods } = ctx.header();
  const { get } = ctx.selection;
  const chosen: Asked = [get("target"), get("foil")];
  if (methods.some((offer) => offer.method === method && offer.targets)) {
    showMethod(ctx, askedAbout(method, ...chosen), chosen);
  } else {
    const made = sources.some((source) => source.method === method && source.targets);
    showMethod(ctx, method, askedIn(ctx.header(), method) ?? (made ? [null, null] : chosen));
  }
}
