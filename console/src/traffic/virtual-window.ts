export interface VirtualWindow {
  /** The first rendered row, and the one after the last. */
  first: number;
  end: number;
  /** Pixels above the first rendered row, and of all rows. */
  offset: number;
  height: number;
}

/** More rows above and below than are visible, so that scrolling shows no gaps before the next frame. */
const OVERSCAN = 8;

/** Returns which of many rows of one height are rendered. */
export function virtualWindow(count: number, rowHeight: number, scrollTop: number, viewHeight: number): VirtualWindow {
  const top = Math.max(0, Math.min(scrollTop, count * rowHeight - viewHeight));
  const first = Math.max(0, Math.floor(top / rowHeight) - OVERSCAN);
  const end = Math.min(count, Math.ceil((top + viewHeight) / rowHeight) + OVERSCAN);
  return { first, end, offset: first * rowHeight, height: count * rowHeight };
}

/** Returns the scroll position at which a row is completely visible; the same if it is. */
export function scrollToRow(index: number, rowHeight: number, scrollTop: number, viewHeight: number): number {
  const top = index * rowHeight;
  if (top < scrollTop) return top;
  return Math.max(scrollTop, top + rowHeight - viewHeight);
}
