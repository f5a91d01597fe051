/** Models that run in a page: their answers in place of the kernel's, and the field for the reader's text. */
import { renderLiveBar } from "../live/LiveBar.ts";
import { createSession } from "../live/session.ts";
import CSS from "./live.css";

export const session = createSession;
export const style = CSS;
export const views = { LiveBar: renderLiveBar };
