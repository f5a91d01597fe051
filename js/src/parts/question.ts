/** Questions that are answered in a view. */
import { renderQuestion } from "../views/question/Question.ts";
import CSS from "./question.css";

export const style = CSS;
export const views = { Question: renderQuestion };
