/** Everything in one output, and what the model predicts. */
import { renderExplorer } from "../views/explorer/Explorer.ts";
import { renderPredictions } from "../views/text/Predictions.ts";
import CSS from "./explorer.css";

export const style = CSS;
export const views = { Explorer: renderExplorer, Predictions: renderPredictions };
