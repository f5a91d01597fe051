/** The model's predictions after each layer. */
import { renderLensView } from "../views/circuits/LensView.ts";
import CSS from "./lens.css";

export const style = CSS;
export const views = { LensView: renderLensView };
