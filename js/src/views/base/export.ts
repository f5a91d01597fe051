/**
 * Figures of a view, for its menu. The kernel draws them, as `view.save` does; without a kernel the browser makes a
 * picture of the view as it is on the page, without its controls.
 */
import type { ViewContext } from "../../context.ts";
import { download, toPng, toSvg } from "../../snapshot.ts";
import { createAnswers } from "../../wire/answers.ts";

/** A label and its action; a rejected promise has a message for the reader. */
export type ExportAction = readonly [label: string, act: () => Promise<void>];

type Format = "png" | "svg" | "pdf";

const TYPES: Record<Format, string> = { png: "image/png", svg: "image/svg+xml", pdf: "application/pdf" };
/** Everything but title, legend and picture. Some buttons are part of the picture: tokens, features, outcomes. */
const CHROME = [
  "[data-aw-chrome]",
  ".aw-toolbar",
  ".aw-footer",
  ".aw-readout",
  ".aw-menu",
  ".aw-tools",
  ".aw-status",
  ".aw-work",
  ".aw-button:not(.aw-outcome, .aw-feature, .aw-tab)",
  ".aw-field:not(.aw-legend)",
  "details:not([open])",
  "input",
  "select",
].join();

/** A file name from the letters and digits of the title. */
export function fileName(root: Element): string {
  const title = root.querySelector(".aw-title")?.textContent ?? "";
  const { stem = "view" } = /^(?<stem>.{1,60})/u.exec(title.replace(/[^\p{L}\p{N}]+/gu, "-"))?.groups ?? {};
  return stem.replace(/^-|-$/g, "") || "view";
}

/** The ways to save `root` as a figure; `say` reports progress. */
export function exportActions(
  ctx: ViewContext,
  signal: AbortSignal,
  root: HTMLElement,
  say: (words: string) => void,
): ExportAction[] {
  let arrived = (): void => undefined;
  const answers = createAnswers(ctx, signal, () => arrived());

  /** The figure that Python draws of the current state. */
  const drawn = (format: Format, columns: number): Promise<Blob> =>
    new Promise((done, fail) => {
      const args = { format, columns, theme: ctx.theme };
      answers.retry("figure", true);
      arrived = () => {
        const answer = answers.get("figure", args);
        const why = answers.failure("figure", args);
        if (answer) done(new Blob(answer.buffers as DataView<ArrayBuffer>[], { type: TYPES[format] }));
        else if (why) fail(new Error(why));
        else return;
        arrived = () => undefined;
      };
      arrived();
    });

  const photographed = async (format: Format): Promise<Blob> => {
    const svg = toSvg(root, ctx.sheet.text(), CHROME);
    return format === "png" ? toPng(svg) : new Blob([svg], { type: TYPES.svg });
  };

  const save = async (format: Format, columns: number): Promise<void> => {
    say("waiting for the kernel …");
    const file = await drawn(format, columns).catch((error: Error) => {
      if (format === "pdf") throw new Error(`No PDF: ${error.message}`);
      return photographed(format);
    });
    download(`${fileName(root)}.${format}`, file);
    say("");
  };

  return [2, 1].flatMap((columns) =>
    (["png", "svg", "pdf"] as const).map((format): ExportAction => {
      const width = columns === 1 ? "Picture, one column" : "Picture";
      return [`${width} (${format.toUpperCase()})`, () => save(format, columns)];
    }),
  );
}
