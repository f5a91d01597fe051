/**
 * The style sheet of one copy of this code. A page may hold several copies: two notebooks of one JupyterLab have two
 * kernels, with other views and perhaps other versions. The sheet is made by script, which a content policy allows where
 * it refuses style elements.
 */
import { onResize } from "./dom.ts";

const COPY = "data-aw-copy";

export interface Sheet {
  text(): string;
  add(css: string): void;
  /** Style a view wherever it is put: in a document or a shadow root. */
  dress(root: HTMLElement, signal: AbortSignal): void;
}

/** Whether a view in this place is of the copy that a sheet belongs to; true of every sheet that is not ours. */
function isUsed(place: ParentNode, { cssRules: [first] }: CSSStyleSheet): boolean {
  const { selectorText = "" } = (first ?? {}) as Partial<CSSStyleRule>;
  return !selectorText.startsWith(`[${COPY}`) || place.querySelector(selectorText) !== null;
}

/** A sheet whose views are marked with `name`. */
export function createSheet(name: string): Sheet {
  let css = "";
  let sheet: CSSStyleSheet | null = null;
  /** Its first rule says whose it is. */
  const write = (): void => sheet?.replaceSync(`[${COPY}="${name}"] {}${css}`);
  return {
    text: () => css,
    add(more) {
      css += more;
      write();
    },
    dress(root, signal) {
      root.setAttribute(COPY, name);
      const enter = (): void => {
        if (!sheet) {
          sheet = new CSSStyleSheet();
          write();
        }
        const at = root.getRootNode();
        const place = at instanceof ShadowRoot ? at : document;
        const all = place.adoptedStyleSheets;
        // Those of kernels that were restarted go.
        if (!all.includes(sheet)) place.adoptedStyleSheets = [...all.filter((one) => isUsed(place, one)), sheet];
      };
      enter();
      onResize(root, signal, enter); // whenever it is on the page again
    },
  };
}
