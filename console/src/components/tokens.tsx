import { formatCount, formatExactCount } from "../format.ts";

/** A number of tokens; a dash if the upstream reported none. */
export function Tokens({ count }: { count: number | null }) {
  if (count === null) return <span class="absent">–</span>;
  return (
    <span class="number" title={`${formatExactCount(count)} tokens`}>
      {formatCount(count)}
    </span>
  );
}
