/** Tools for readers: hide values, recolour, find. */
import { renderFilters } from "../views/base/filterForm.ts";
import { renderStripTools } from "../views/text/stripTools.ts";
import CSS from "./filters.css";

export const style = CSS;
export const views = { Filters: renderFilters, StripTools: renderStripTools };
