/** Removing the tokens that an explanation ranks highest, step by step. */
import { renderRemovalView } from "../views/evaluate/RemovalView.ts";
import CSS from "./removal.css";

export const style = CSS;
export const views = { RemovalView: renderRemovalView };
