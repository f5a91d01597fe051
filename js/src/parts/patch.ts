/** What places of a model carry of the difference between two texts. */
import { renderPatchView } from "../views/circuits/PatchView.ts";
import CSS from "./patch.css";

export const style = CSS;
export const views = { PatchView: renderPatchView };
