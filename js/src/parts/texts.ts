/** Two texts side by side, and the differences between them. */

import { renderTwoTexts } from "../views/compare/TwoTexts.ts";
import CSS from "./texts.css";

export const style = CSS;
export const views = { TwoTexts: renderTwoTexts };
