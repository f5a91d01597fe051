/** Why a head reads a token: a score of attention, split into parts of the query and parts of the key. */
import { renderWhyView } from "../views/circuits/WhyView.ts";
import CSS from "./why.css";

export const style = CSS;
export const views = { WhyView: renderWhyView };
