/** Features of sparse autoencoders. */
import { renderFeaturePanel } from "../views/features/FeaturePanel.ts";
import { renderFeatureStrip } from "../views/features/FeatureStrip.ts";
import { renderFeatureTable } from "../views/features/FeatureTable.ts";
import CSS from "./features.css";

export const style = CSS;
export const views = {
  FeaturePanel: renderFeaturePanel,
  FeatureStrip: renderFeatureStrip,
  FeatureTable: renderFeatureTable,
};
