/**
 * What the core lends to parts: functions and constants in the order that the build found parts to import them, so that
 * no part carries them a second time. The build fills this list; nothing else reads it.
 */
export const shared: readonly unknown[] = [];
