/** A picture or a sound as Python sends it; the twin of attnwidgets/views/wire/media.py. */

/** The picture of a trace, one JPEG: the one that was given, or else what the model saw. */
export interface PictureMedia {
  kind: "picture";
  /** Rows and columns of pixels that are sent, and of what the model saw. */
  size: [number, number];
  seen: [number, number] | null;
  /** Pixels sent for each pixel seen, and where what was seen begins in them, (down, across); null where it is not known. */
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

/** Traits of a picture or a sound, sent once whatever shows it: its buffers one after the other, and their lengths. */
export interface MediaState {
  media: PictureMedia | SoundMedia;
  lengths: number[];
  data: DataView;
}
