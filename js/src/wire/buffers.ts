/** Decodes little-endian numbers. */

const numbers = (view: DataView, read: (at: number) => number, bytes: number): number[] =>
  Array.from({ length: Math.floor(view.byteLength / bytes) }, (_, i) => read(bytes * i));

export const bytesOf = (view: DataView): number[] => numbers(view, (at) => view.getUint8(at), 1);
export const shortsOf = (view: DataView): number[] => numbers(view, (at) => view.getUint16(at, true), 2);
export const wholesOf = (view: DataView): number[] => numbers(view, (at) => view.getInt32(at, true), 4);
export const floatsOf = (view: DataView): number[] => numbers(view, (at) => view.getFloat32(at, true), 4);
export const doublesOf = (view: DataView): number[] => numbers(view, (at) => view.getFloat64(at, true), 8);
