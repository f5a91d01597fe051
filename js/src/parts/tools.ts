/** The menu of every view: save, filter and colour, keys. */
import { renderFilterWords } from "../views/base/filterForm.ts";
import { renderTools } from "../views/base/Tools.ts";
import CSS from "./tools.css";

export const style = CSS;
export const views = { Tools: renderTools, FilterWords: renderFilterWords };
