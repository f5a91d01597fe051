/** The input tokens from which each token is mixed, through all layers. */
import { renderFlowView } from "../views/compare/FlowView.ts";
import CSS from "./flow.css";

export const style = CSS;
export const views = { FlowView: renderFlowView };
