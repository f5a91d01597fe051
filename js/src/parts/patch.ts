/** How much of the difference between two texts each activation carries. */
import { renderPatchView } from "../views/circuits/PatchView.ts";
import CSS from "./patch.css";

export const style = CSS;
export const views = { PatchView: renderPatchView };
