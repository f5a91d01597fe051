/** Studies in which people say what they make of explanations. */
import { renderStudyView } from "../views/people/StudyView.ts";
import CSS from "./study.css";

export const style = CSS;
export const views = { StudyView: renderStudyView };
