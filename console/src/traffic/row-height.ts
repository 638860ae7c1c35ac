import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

// `traffic.css` has the same heights: all rows must be equally high to be found by their position.
const WIDE_PX = 28;
const NARROW_PX = 66;
const narrow = window.matchMedia("(max-width: 999px)");

/** The height of a row of the list, in pixels. */
export function useRowHeight(): number {
  const isNarrow = useSignal(narrow.matches);
  useEffect(() => {
    const update = () => {
      isNarrow.value = narrow.matches;
    };
    narrow.addEventListener("change", update);
    return () => narrow.removeEventListener("change", update);
  }, [isNarrow]);
  return isNarrow.value ? NARROW_PX : WIDE_PX;
}
