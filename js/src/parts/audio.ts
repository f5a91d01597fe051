/** A sound with its words, on a common axis of seconds. */
import { renderAudioView } from "../views/media/AudioView.ts";
import CSS from "./audio.css";

export const style = CSS;
export const views = { AudioView: renderAudioView };
