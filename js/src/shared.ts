/**
 * Functions and constants of the core that parts use, in a fixed order, so that no part carries a second copy. The
 * build fills in this list; nothing else reads it.
 */
export const shared: readonly unknown[] = [];
