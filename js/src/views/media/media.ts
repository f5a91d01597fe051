/** The picture or the sound of a view's trace. */
import type { AnyModel } from "@anywidget/types";
import type { ViewContext } from "../../context.ts";
import { asDeclared } from "../../wire/binary.ts";
import type { MediaState, PictureMedia, SoundMedia } from "../../wire/mediaState.ts";
import type { StoreState } from "../../wire/wire.ts";

type Model<State> = AnyModel<State & Record<string, unknown>>;

export interface ShownMedia<Kind = PictureMedia | SoundMedia> {
  media: Kind;
  /** A JPEG for a picture; two buffers for a sound, as `SoundMedia` describes. */
  buffers: Uint8Array<ArrayBuffer>[];
}

/** Read the media of a view's store; null if its trace has none, or they did not arrive. */
export async function mediaOf(ctx: ViewContext): Promise<ShownMedia | null> {
  const store = await ctx.host.getModel<StoreState & Record<string, unknown>>(ctx.model.get("store"));
  const reference = store.get("media");
  if (!reference) return null;
  const model = asDeclared((await ctx.host.getModel(reference)) as unknown as AnyModel) as unknown as Model<MediaState>;
  const { data, lengths } = { data: model.get("data"), lengths: model.get("lengths") };
  if (!data) return null;
  let at = 0;
  const buffers = lengths.map((length) => {
    at += length;
    // A copy, so that samples are aligned.
    return new Uint8Array(data.buffer.slice(data.byteOffset + at - length, data.byteOffset + at) as ArrayBuffer);
  });
  return buffers.every(({ length }, i) => length === lengths[i]) ? { media: model.get("media"), buffers } : null;
}
