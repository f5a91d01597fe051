/** Signs like those of `icons.ts` that only parts use. */
export const BACK =
  "M5 1.5 L6 2.5 L3.9 4.6 H8 A3.2 3.2 0 0 1 8 11 H4 V9.6 H8 A1.8 1.8 0 0 0 8 6 H3.9 L6 8.1 L5 9.1 L1.2 5.3 Z";
export const EDIT = "M8.6 1 L11 3.4 L4.2 10.2 L1 11 L1.8 7.8 Z";
export const FIND =
  "M5 1 A4 4 0 1 1 5 9 A4 4 0 1 1 5 1 Z M5 2.4 A2.6 2.6 0 1 0 5 7.6 A2.6 2.6 0 1 0 5 2.4 Z M7.6 8.6 L8.6 7.6 L11.4 10.4 L10.4 11.4 Z";
export const EXPAND =
  "M1 1 H5 V2.4 H2.4 V5 H1 Z M7 1 H11 V5 H9.6 V2.4 H7 Z M1 7 H2.4 V9.6 H5 V11 H1 Z M9.6 7 H11 V11 H7 V9.6 H9.6 Z";
export const SHRINK =
  "M3.6 1 H5 V5 H1 V3.6 H3.6 Z M7 1 H8.4 V3.6 H11 V5 H7 Z M1 7 H5 V11 H3.6 V8.4 H1 Z M7 7 H11 V8.4 H8.4 V11 H7 Z";
