/** What a method says of every layer. */
import { renderLayerMap } from "../views/LayerMap.ts";
import { renderRelevanceMap } from "../views/RelevanceMap.ts";

export const style = "";
export const views = { LayerMap: renderLayerMap, RelevanceMap: renderRelevanceMap };
