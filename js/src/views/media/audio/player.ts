/** Plays a span of a sound. Nothing plays by itself. */
import { atEnd } from "../../../dom.ts";

const LARGEST = 32768;

export interface SoundPlayer {
  /** Play a stretch of seconds; a stretch that is playing stops. */
  play(from: number, to: number): void;
  stop(): void;
  /** The second that is heard now; null while nothing plays. */
  at(): number | null;
}

/** `changed` is called when a sound begins and ends. */
export function createPlayer(samples: Int16Array, rate: number, signal: AbortSignal, changed: () => void): SoundPlayer {
  let context: AudioContext | null = null;
  let playing: { source: AudioBufferSourceNode; from: number; to: number; since: number } | null = null;
  const stop = (): void => {
    const was = playing;
    playing = null;
    was?.source.stop();
    if (was) changed();
  };
  atEnd(signal, () => {
    stop();
    void context?.close();
  });
  return {
    stop,
    play(from, to) {
      stop();
      const [first, last] = [Math.round(from * rate), Math.min(samples.length, Math.round(to * rate))];
      if (last <= first) return;
      context ??= new AudioContext();
      void context.resume(); // a browser lets sound begin after a click or a key
      const buffer = context.createBuffer(1, last - first, rate);
      buffer.copyToChannel(
        Float32Array.from(samples.subarray(first, last), (value) => value / LARGEST),
        0,
      );
      const source = context.createBufferSource();
      source.buffer = buffer;
      source.connect(context.destination);
      const playback = { source, from: first / rate, to: last / rate, since: context.currentTime };
      source.addEventListener("ended", () => {
        if (playing !== playback) return;
        playing = null;
        changed();
      });
      playing = playback;
      source.start();
      changed();
    },
    at: () => (playing && context ? Math.min(playing.to, playing.from + context.currentTime - playing.since) : null),
  };
}
