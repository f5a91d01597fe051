/**
 * Why a head reads a token: a score of attention, split into the parts that the query asks for and the parts that the
 * key offers.
 */
import { renderWhyView } from "../views/circuits/WhyView.ts";
import CSS from "./why.css";

export const style = CSS;
export const views = { WhyView: renderWhyView };
