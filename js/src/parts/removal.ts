/** An explanation taken away, token by token. */
import { renderRemovalView } from "../views/evaluate/RemovalView.ts";
import CSS from "./removal.css";

export const style = CSS;
export const views = { RemovalView: renderRemovalView };
