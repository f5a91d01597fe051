/** All views of a text in a single output, and the predictions of the model. */
import { renderExplorer } from "../views/explorer/Explorer.ts";
import { renderPredictions } from "../views/text/Predictions.ts";
import CSS from "./explorer.css";

export const style = CSS;
export const views = { Explorer: renderExplorer, Predictions: renderPredictions };
