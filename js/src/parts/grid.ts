/** Every layer and head at a glance. */

import { renderHeadGrid } from "../views/heads/HeadGrid.ts";
import CSS from "./grid.css";

export const style = CSS;
export const views = { HeadGrid: renderHeadGrid };
