/** Sentences, and the sentences they depend on. */
import { renderSentenceView } from "../views/circuits/SentenceView.ts";
import CSS from "./sentences.css";

export const style = CSS;
export const views = { SentenceView: renderSentenceView };
