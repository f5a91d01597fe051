/** A picture with maps over it. */
import { renderImageView } from "../views/media/ImageView.ts";
import CSS from "./image.css";

export const style = CSS;
export const views = { ImageView: renderImageView };
