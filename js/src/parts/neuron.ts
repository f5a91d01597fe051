/** How one attention weight comes about. */
import { renderNeuronView } from "../views/heads/NeuronView.ts";
import CSS from "./neuron.css";

export const style = CSS;
export const views = { NeuronView: renderNeuronView };
