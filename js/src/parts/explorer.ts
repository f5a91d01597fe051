/** Everything in one output. */
import { renderExplorer } from "../views/Explorer.ts";

export const style = "";
export const views = { Explorer: renderExplorer };
