/** Scores of several methods. */
import { renderScorecardView } from "../views/evaluate/ScorecardView.ts";
import CSS from "./scorecard.css";

export const style = CSS;
export const views = { ScorecardView: renderScorecardView };
