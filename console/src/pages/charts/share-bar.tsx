import { Swatch, seriesClass } from "./chart.tsx";
import { useWidth } from "./use-width.ts";

export interface Share {
  name: string;
  color: number;
  value: number;
}

const HEIGHT = 28;

/** One bar that is divided into shares, with a legend of their values. */
export function ShareBar({
  label,
  shares,
  format,
}: {
  label: string;
  shares: Share[];
  format: (value: number) => string;
}) {
  const [ref, width] = useWidth<HTMLDivElement>();
  const total = shares.reduce((sum, { value }) => sum + value, 0);
  let left = 0;
  return (
    <div class="share-bar">
      <div ref={ref}>
        <svg role="img" aria-label={label} width={width} height={HEIGHT}>
          {shares.map(({ name, color, value }) => {
            const x = left;
            const size = total > 0 ? (width * value) / total : 0;
            left += size;
            return (
              <rect key={name} class={seriesClass(color)} x={x} y={0} width={Math.max(size - 1, 0.5)} height={HEIGHT}>
                <title>{`${name}: ${format(value)}`}</title>
              </rect>
            );
          })}
        </svg>
      </div>
      <ul class="chart-legend">
        {shares.map(({ name, color, value }) => (
          <li key={name}>
            <Swatch color={color} />
            {name} <b>{format(value)}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}
