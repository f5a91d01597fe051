/** Steering with a feature of a sparse autoencoder. */
import { renderSteerView } from "../views/features/SteerView.ts";
import CSS from "./steer.css";

export const style = CSS;
export const views = { SteerView: renderSteerView };
