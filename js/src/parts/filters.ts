/** Tools of a strip: find, count, step. */
import { renderStripTools } from "../views/text/stripTools.ts";
import CSS from "./filters.css";

export const style = CSS;
export const views = { StripTools: renderStripTools };
