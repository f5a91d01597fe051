/** Why a head reads a token: a score of attention as what the query asks for and what the key offers. */
import { renderWhyView } from "../views/circuits/WhyView.ts";
import CSS from "./why.css";

export const style = CSS;
export const views = { WhyView: renderWhyView };
