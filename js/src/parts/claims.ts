/** Claims about heads, checked on texts. */
import { renderClaimView } from "../views/circuits/ClaimView.ts";
import CSS from "./claims.css";

export const style = CSS;
export const views = { ClaimView: renderClaimView };
