/** Where tokens come from, through all layers. */
import { renderFlowView } from "../views/FlowView.ts";
import CSS from "../views/flow.css";

export const style = CSS;
export const views = { FlowView: renderFlowView };
