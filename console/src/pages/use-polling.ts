import { useEffect } from "preact/hooks";

/** Calls the function of the first rendering at each interval, while the page is visible. */
export function usePolling(call: () => void, everyMs: number): void {
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (!document.hidden) call();
    }, everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
}
