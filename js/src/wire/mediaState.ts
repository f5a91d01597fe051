/** A picture or a sound as Python sends it; the twin of attnwidgets/views/wire/media.py. */

/** The picture of a trace, a JPEG: the given picture, or else the model's input. */
export interface PictureMedia {
  kind: "picture";
  /** Rows and columns of pixels as sent, and of the model's input. */
  size: [number, number];
  seen: [number, number] | null;
  /**
   * Pixels sent for each input pixel, and the offset of the input in them, (down, across); null where it is not
   * available.
   */
  scale: [number, number] | null;
  shift: [number, number] | null;
}

/** The sound of a trace as far as the model heard it: int16 samples, and uint8 [bin, frame] of its spectrogram. */
export interface SoundMedia {
  kind: "sound";
  /** Samples in a second; seconds. */
  rate: number;
  heard: number;
  spectrogram: { bins: number; frames: number; step: number } | null;
}

/** Traits of a picture or a sound, sent once for all views of it: its buffers in order, and their lengths. */
export interface MediaState {
  media: PictureMedia | SoundMedia;
  lengths: number[];
  data: DataView;
}
