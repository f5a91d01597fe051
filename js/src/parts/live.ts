/** Models that run in a page: what answers in the kernel's place, and the line for the reader's own text. */
import { renderLiveBar } from "../live/LiveBar.ts";
import { createSession } from "../live/session.ts";
import CSS from "./live.css";

export const session = createSession;
export const style = CSS;
export const views = { LiveBar: renderLiveBar };
