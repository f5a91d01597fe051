/** Heads as lines between two columns of tokens. */
import { renderHeadView } from "../views/heads/HeadView.ts";
import CSS from "./heads.css";

export const style = CSS;
export const views = { HeadView: renderHeadView };
