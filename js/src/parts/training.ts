/** A model over the steps of its training. */
import { renderRunView } from "../views/training/RunView.ts";
import CSS from "./training.css";

export const style = CSS;
export const views = { RunView: renderRunView };
