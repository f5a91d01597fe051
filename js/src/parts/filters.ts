/** What a reader may do to a picture: leave out, recolour, find. */
import { renderFilters } from "../views/filterForm.ts";
import CSS from "../views/filters.css";
import { renderStripTools } from "../views/stripTools.ts";

export const style = CSS;
export const views = { Filters: renderFilters, StripTools: renderStripTools };
