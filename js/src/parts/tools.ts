/** The corner that every view has. */
import { renderTools } from "../views/base/Tools.ts";
import CSS from "./tools.css";

export const style = CSS;
export const views = { Tools: renderTools };
