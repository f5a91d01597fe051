/** Interventions: heads knocked out, rows of attention set, and the resulting prediction. */

import { renderActiveList } from "../views/interventions/bar.ts";
import { renderChangedPrediction } from "../views/interventions/change.ts";
import { renderInterventionView } from "../views/interventions/InterventionView.ts";
import CSS from "./interventions.css";

export const style = CSS;
export const views = {
  InterventionView: renderInterventionView,
  ActiveList: renderActiveList,
  ChangedPrediction: renderChangedPrediction,
};
