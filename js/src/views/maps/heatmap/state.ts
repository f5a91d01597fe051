/** The elements of a Heatmap, and its state. */
import type { ViewContext } from "../../../context.ts";
import type { Tile } from "../../../wire/tile.ts";
import type { ExactRows } from "../../base/cellValues.ts";
import type { Chosen } from "../../base/chosen.ts";
import type { ColourScale } from "../../base/colourScale.ts";
import type { CopyButton } from "../../base/copyPython.ts";
import type { Frame } from "../../base/frame.ts";
import type { SharedScale } from "../../base/sharedScale.ts";
import type { Control } from "../../base/toolbar.ts";
import type { AxisPart } from "../axisPart.ts";
import type { createFigure } from "../figure.ts";
import type { RowBars } from "../rowBars.ts";
import type { Box, Size } from "../size.ts";

type MapFigure = ReturnType<typeof createFigure>;

/** The elements of the view, and the state that they show. */
export interface HeatmapState {
  readonly root: HTMLElement;
  readonly signal: AbortSignal;
  readonly ctx: ViewContext;
  readonly controls: Control;
  readonly figure: MapFigure;
  /** The pinned row as bars, next to the map. */
  readonly bars: RowBars;
  /** The element with the map and the bars. */
  readonly body: HTMLDivElement;
  /** Copies the pinned number as Python; null inside another view. */
  readonly copy: CopyButton | null;
  readonly scale: ColourScale;
  /** The scale that targets and the text share with the layers. */
  readonly shared: SharedScale;
  /** Words on the row that the map opens with, and their reserved room. */
  readonly opens: HTMLSpanElement;
  readonly opensRoom: HTMLSpanElement;
  /** Exact rows from Python, for the readout; and for the shares of elements apart. */
  readonly exactRows: ExactRows;
  readonly chosen: Chosen;
  readonly shareRows: ExactRows;
  /** px that the figure may take. */
  box: Box;
  /** The sizes of the figure; null until it is laid out. */
  size: Size | null;
  /** The drawn part of each axis. */
  parts: readonly [query: AxisPart, key: AxisPart] | null;
  /** The names of the elements apart; empty: none. */
  names: string;
  /** Whether there is a column for the sink. */
  hasSink: boolean;
  /** Whether the whole map is shown, not a window of it. */
  isWhole: boolean;
  /** Whether the pointer is on this map, and the row of the hovered bar or cell of the sink. */
  isInside: boolean;
  onBar: number;
  onSink: number;
  /** The row that was pinned by its cell of the sink. */
  pinnedSink: number;
  /** The input of the current sizes and labels. */
  laidOut: string;
  readonly isLaidOut: (...values: unknown[]) => boolean;
  /** The pixels of the canvas. */
  image: ImageData | null;
  /** The content of the canvas. */
  painted: string;
  /** The source of the picture, which may be an older source. */
  paintedSource: string;
  /** The values that the canvas shows; null while they are awaited. */
  tile: Tile | null;
  /** Whether the readout is spoken: after a key, not after the pointer. */
  spoken: boolean;
  readonly frame: Frame;
}
