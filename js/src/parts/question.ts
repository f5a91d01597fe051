/** Questions that are answered in a view. */
import { renderQuestion } from "../views/question/Question.ts";
import CSS from "./question.css";
import AROUND from "./question_around.css";

export const style = CSS;
export const around = AROUND;
export const views = { Question: renderQuestion };
