/** On which messages an answer rests. */
import { renderSourcesView } from "../views/circuits/SourcesView.ts";
import CSS from "./sources.css";

export const style = CSS;
export const views = { SourcesView: renderSourcesView };
