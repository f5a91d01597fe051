/** Every layer and head at a glance. */
import CSS from "../views/grid.css";
import { renderHeadGrid } from "../views/HeadGrid.ts";

export const style = CSS;
export const views = { HeadGrid: renderHeadGrid };
