/** Many texts: concepts, the influence of training texts, and a simpler model. */
import { renderConceptView } from "../views/concepts/ConceptView.ts";
import { renderInfluenceView } from "../views/concepts/InfluenceView.ts";
import { renderShapeView } from "../views/concepts/ShapeView.ts";
import CSS from "./concepts.css";

export const style = CSS;
export const views = { ConceptView: renderConceptView, InfluenceView: renderInfluenceView, ShapeView: renderShapeView };
