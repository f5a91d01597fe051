/** Studies in which people judge explanations. */
import { renderStudyView } from "../views/people/StudyView.ts";
import CSS from "./study.css";

export const style = CSS;
export const views = { StudyView: renderStudyView };
