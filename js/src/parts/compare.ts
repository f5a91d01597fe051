/** Explanations of the same text below each other, and how they agree. */

import { renderCompareView } from "../views/compare/CompareView.ts";
import CSS from "./compare.css";

export const style = CSS;
export const views = { CompareView: renderCompareView };
