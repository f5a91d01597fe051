/** Pulling the wires: heads knocked out, rows of attention set, and what the model then says. */
import { renderInterventionView } from "../views/InterventionView.ts";
import CSS from "../views/interventions.css";
import { renderWireList } from "../views/wires/bar.ts";
import { renderChangedPrediction } from "../views/wires/change.ts";

export const style = CSS;
export const views = {
  InterventionView: renderInterventionView,
  WireList: renderWireList,
  ChangedPrediction: renderChangedPrediction,
};
