/** How a single attention weight is computed. */
import { renderNeuronView } from "../views/heads/NeuronView.ts";
import CSS from "./neuron.css";

export const style = CSS;
export const views = { NeuronView: renderNeuronView };
