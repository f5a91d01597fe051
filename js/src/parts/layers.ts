/** A method's values in every layer. */

import { renderLayerProfile } from "../views/compare/LayerProfile.ts";
import { renderLayerMap } from "../views/maps/LayerMap.ts";
import { renderRelevanceMap } from "../views/text/RelevanceMap.ts";
import CSS from "./layers.css";

export const style = CSS;
export const views = { LayerMap: renderLayerMap, LayerProfile: renderLayerProfile, RelevanceMap: renderRelevanceMap };
