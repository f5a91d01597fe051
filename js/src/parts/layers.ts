/** What a method says of every layer. */
import { renderLayerMap } from "../views/LayerMap.ts";
import { renderLayerProfile } from "../views/LayerProfile.ts";
import CSS from "../views/profile.css";
import { renderRelevanceMap } from "../views/RelevanceMap.ts";

export const style = CSS;
export const views = { LayerMap: renderLayerMap, LayerProfile: renderLayerProfile, RelevanceMap: renderRelevanceMap };
