/**
 * The style sheet of a copy of this code. A page may hold several copies: two notebooks in the same JupyterLab have two
 * kernels, with other views and perhaps other versions. The sheet is made by script, which a content policy allows
 * where it refuses style elements.
 */
import { onResize } from "./dom.ts";

const COPY = "data-aw-copy";

export interface Sheet {
  text(): string;
  /** Add rules of views, and rules for elements `around` them, which the scope of a view does not reach. */
  add(css: string, around?: string): void;
  /** Style a view in its root: a document or a shadow root. */
  dress(root: HTMLElement, signal: AbortSignal): void;
}

/** Whether a view in this tree belongs to the copy of a sheet; true for every foreign sheet. */
function isUsed(root: ParentNode, { cssRules: [first] }: CSSStyleSheet): boolean {
  const { selectorText = "" } = (first ?? {}) as Partial<CSSStyleRule>;
  return !selectorText.startsWith(`[${COPY}`) || root.querySelector(selectorText) !== null;
}

/** A sheet for views inside elements marked with `name`: the rules that all of them need, and added rules. */
export function createSheet(name: string, core: string): Sheet {
  let [added, outside] = ["", ""];
  let sheets: [CSSStyleSheet, CSSStyleSheet] | null = null;
  const mine = `[${COPY}="${name}"]`;
  /**
   * The first rule identifies the copy. The rules of another version, whose classes have the same names, are not ours.
   */
  const write = (sheet: CSSStyleSheet | undefined, css: string, around = ""): void =>
    sheet?.replaceSync(`${mine} {}${"CSSScopeRule" in window ? `@scope(${mine}){${css}}` : css}${around}`);
  return {
    text: () => core + added,
    add(css, around = "") {
      added += css;
      outside += around;
      write(sheets?.[1], added, outside);
    },
    dress(root, signal) {
      root.parentElement?.setAttribute(COPY, name); // scoped rules apply only inside the marked element
      const enter = (): void => {
        if (!sheets) {
          sheets = [new CSSStyleSheet(), new CSSStyleSheet()];
          write(sheets[0], core);
          write(sheets[1], added, outside);
        }
        const at = root.getRootNode();
        const scope = at instanceof ShadowRoot ? at : document;
        const all = scope.adoptedStyleSheets;
        if (all.includes(sheets[0])) return;
        // Sheets of restarted kernels are removed. The rules of a view outweigh the common rules of any copy.
        scope.adoptedStyleSheets = [sheets[0], ...all.filter((sheet) => isUsed(scope, sheet)), sheets[1]];
      };
      enter();
      onResize(root, signal, enter); // whenever it is on the page again
    },
  };
}
