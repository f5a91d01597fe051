/** Pulling the wires: heads knocked out, rows of attention set, and what the model then says. */
import { view } from "../views/frame.ts";
import CSS from "../views/interventions.css";

export const style = CSS;
export const views = { InterventionView: view(() => () => undefined) };
