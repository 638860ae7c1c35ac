import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { TrafficRow } from "../types.ts";

/** The row that was at the top when the list was left, so that going back shows it; "" if the list was at its top. */
let leftAt = "";

interface Position {
  scroller: RefObject<HTMLElement | null>;
  rows: readonly TrafficRow[];
  rowHeight: number;
  scrollTop: number;
  activeId: string;
}

/** Keeps the active row, or those on screen, in place while new ones come. At its top, the list shows the newest. */
export function useKeptPosition({ scroller, rows, rowHeight, scrollTop, activeId }: Position): void {
  const before = useRef(rows);

  useLayoutEffect(() => {
    const index = indexOf(before.current, leftAt);
    if (scroller.current && index > 0) scroller.current.scrollTop = index * rowHeight;
  }, [scroller, rowHeight]);

  useLayoutEffect(() => {
    // The position is not read from the element, which would cost a layout for each change.
    const element = scroller.current;
    const top = before.current[Math.floor(scrollTop / rowHeight)]?.id ?? "";
    if (element && before.current !== rows && (activeId || scrollTop > 0)) {
      const moved = indexOf(rows, activeId || top) - indexOf(before.current, activeId || top);
      if (moved > 0) element.scrollTop += moved * rowHeight;
    }
    before.current = rows;
    leftAt = scrollTop > 0 ? top : "";
  }, [scroller, rows, rowHeight, scrollTop, activeId]);
}

export function indexOf(rows: readonly TrafficRow[], id: string): number {
  return rows.findIndex((row) => row.id === id);
}
