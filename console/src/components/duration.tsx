import { formatDuration } from "../format.ts";

/** A duration in milliseconds; a dash if it is not known. */
export function Duration({ ms }: { ms: number | null }) {
  if (ms === null) return <span class="absent">–</span>;
  return <span class="number">{formatDuration(ms)}</span>;
}
