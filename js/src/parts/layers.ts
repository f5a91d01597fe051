/** What a method says of every layer. */
import { renderLayerMap } from "../views/LayerMap.ts";
import { renderLayerProfile } from "../views/LayerProfile.ts";
import { renderRelevanceMap } from "../views/RelevanceMap.ts";
import CSS from "./layers.css";

export const style = CSS;
export const views = { LayerMap: renderLayerMap, LayerProfile: renderLayerProfile, RelevanceMap: renderRelevanceMap };
