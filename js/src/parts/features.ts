/** Features of sparse autoencoders. */
import { renderFeaturePanel } from "../views/FeaturePanel.ts";
import { renderFeatureStrip } from "../views/FeatureStrip.ts";
import { renderFeatureTable } from "../views/FeatureTable.ts";
import CSS from "./features.css";

export const style = CSS;
export const views = {
  FeaturePanel: renderFeaturePanel,
  FeatureStrip: renderFeatureStrip,
  FeatureTable: renderFeatureTable,
};
