/** Signs drawn as shapes, in a box of 12: fonts draw such characters in colour, or not at all. */
export const PLAY = "M2 1 L11 6 L2 11 Z";
export const PAUSE = "M2 1 H5 V11 H2 Z M7 1 H10 V11 H7 Z";
