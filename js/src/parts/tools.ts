/** The menu in the corner of every view. */
import { renderTools } from "../views/base/Tools.ts";
import CSS from "./tools.css";

export const style = CSS;
export const views = { Tools: renderTools };
