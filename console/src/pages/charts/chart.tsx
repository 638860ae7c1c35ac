import "./charts.css";
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { labelledIndexes, ticks } from "./axis.ts";
import { useWidth } from "./use-width.ts";

/** One line, or one part of each bar. */
export interface ChartSeries {
  name: string;
  /** Number of the colour, from 0. */
  color: number;
  /** One for each time; null: not known. */
  values: (number | null)[];
}

export interface ChartProps {
  title: string;
  kind: "bars" | "lines";
  series: ChartSeries[];
  /** Short labels of the horizontal axis; those that are empty have none. */
  labels: string[];
  /** Labels of the table and of tooltips. */
  longLabels: string[];
  /** Title of the first column of the table. */
  labelTitle: string;
  format: (value: number) => string;
  /** Upper end of the vertical axis, at least; shares have 1. */
  max?: number;
  /** Where each bar leads; the chart then consists of links. */
  links?: string[];
  /** The bar that is marked. */
  current?: number;
  /** The values of the vertical axis; by default `ticks`. */
  scale?: (max: number) => number[];
  /** What to know about the numbers. */
  note?: string;
}

const HEIGHT = 190;
const TOP = 10;
const BOTTOM = 24;
const LEFT = 52;
const RIGHT = 8;
const COLORS = 10;

interface Plot {
  width: number;
  x: (index: number) => number;
  y: (value: number) => number;
  step: number;
}

/** A chart with a legend, and the same numbers as a table. */
export function Chart(props: ChartProps) {
  const [ref, width] = useWidth<HTMLDivElement>();
  const id = useId();
  const drawn = props.series.filter((series) => series.values.some((value) => value));
  return (
    <figure class="chart" aria-labelledby={id}>
      <figcaption id={id}>{props.title}</figcaption>
      {drawn.length === 0 ? (
        <p class="quiet">No values.</p>
      ) : (
        <>
          <div ref={ref}>{width > 0 && <Drawing {...props} series={drawn} width={width} />}</div>
          <Legend series={drawn} />
          <details>
            <summary>Table</summary>
            <ChartTable {...props} series={drawn} />
          </details>
        </>
      )}
      {props.note && <p class="quiet">{props.note}</p>}
    </figure>
  );
}

/** The class that sets the colour of a series. */
export function seriesClass(color: number): string {
  return `series-${color % COLORS}`;
}

function Legend({ series }: { series: ChartSeries[] }) {
  return (
    <ul class="chart-legend">
      {series.map(({ name, color }) => (
        <li key={name}>
          <Swatch color={color} />
          {name}
        </li>
      ))}
    </ul>
  );
}

/** A square in the colour of a series. */
export function Swatch({ color }: { color: number }) {
  return <span class={`swatch ${seriesClass(color)}`} aria-hidden="true" />;
}

function ChartTable({ title, series, longLabels, labelTitle, format }: ChartProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled by keyboard
    <div class="scroll" tabIndex={0} role="region" aria-label={`Table: ${title}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">{labelTitle}</th>
            {series.map(({ name }) => (
              <th key={name} scope="col" class="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {longLabels.map((label, index) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {series.map(({ name, values }) => (
                <td key={name} class="number">
                  {formatValue(values[index], format)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function formatValue(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

function Drawing(props: ChartProps & { width: number }) {
  const { width, kind, series, labels, format } = props;
  const scale = (props.scale ?? ticks)(Math.max(highest(kind, series), props.max ?? 0));
  const top = scale.at(-1) ?? 1;
  const step = (width - LEFT - RIGHT) / Math.max(labels.length, 1);
  const plot: Plot = {
    width,
    step,
    x: (index) => LEFT + step * (index + 0.5),
    y: (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top),
  };
  // Bars that are links are read one by one; another chart is one image, and its table is next to it.
  const role = props.links ? "group" : "img";
  return (
    <svg role={role} aria-label={`${props.title}; the table has the numbers`} width={width} height={HEIGHT}>
      {scale.map((value) => (
        <g key={value} class="grid">
          <line x1={LEFT} x2={width - RIGHT} y1={plot.y(value)} y2={plot.y(value)} />
          <text x={LEFT - 6} y={plot.y(value)} dy="0.32em" text-anchor="end">
            {format(value)}
          </text>
        </g>
      ))}
      {labelledIndexes(labels, width - LEFT - RIGHT, 56).map((index) => (
        <text key={index} class="axis" x={plot.x(index)} y={HEIGHT - 6} text-anchor="middle">
          {labels[index]}
        </text>
      ))}
      {kind === "lines" && series.map((line) => <Line key={line.name} series={line} plot={plot} />)}
      {props.longLabels.map((label, index) => (
        <Column key={label} {...props} plot={plot} index={index} />
      ))}
    </svg>
  );
}

function highest(kind: ChartProps["kind"], series: ChartSeries[]): number {
  const numbers = series.map(({ values }) => values.map((value) => value ?? 0));
  if (kind === "lines") return numbers.flat().reduce((max, value) => Math.max(max, value), 0);
  const sums = numbers[0]?.map((_, index) => numbers.reduce((sum, values) => sum + (values[index] ?? 0), 0)) ?? [];
  return sums.reduce((max, value) => Math.max(max, value), 0);
}

/** What belongs to one time: its part of the bars, and the tooltip with its numbers. */
function Column(props: ChartProps & { plot: Plot; index: number }) {
  const { kind, series, plot, index, format, links, current } = props;
  const label = props.longLabels[index] ?? "";
  const numbers = series
    .filter(({ values }) => values[index])
    .map(({ name, values }) => `${name} ${formatValue(values[index], format)}`);
  const text = `${label}: ${numbers.join(", ") || "none"}`;
  const content = (
    <>
      <title>{text}</title>
      <rect class="column" x={plot.x(index) - plot.step / 2} y={TOP} width={plot.step} height={HEIGHT - TOP - BOTTOM} />
      {kind === "bars" && <Bar series={series} plot={plot} index={index} />}
    </>
  );
  const link = links?.[index];
  if (link === undefined) return <g>{content}</g>;
  return (
    <a href={link} aria-label={text} {...(current === index && { "aria-current": "true" })}>
      {content}
    </a>
  );
}

function Bar({ series, plot, index }: { series: ChartSeries[]; plot: Plot; index: number }) {
  const width = Math.min(Math.max(plot.step - (plot.step > 6 ? 3 : 0.5), 1), 48);
  let sum = 0;
  return series.map(({ name, color, values }) => {
    const value = values[index] ?? 0;
    const bottom = plot.y(sum);
    sum += value;
    const height = bottom - plot.y(sum);
    if (height <= 0) return null;
    const x = plot.x(index) - width / 2;
    return <rect key={name} class={seriesClass(color)} x={x} y={bottom - height} width={width} height={height} />;
  });
}

function Line({ series, plot }: { series: ChartSeries; plot: Plot }): ComponentChildren {
  const points = series.values.map((value, index) =>
    value === null ? null : ([plot.x(index), plot.y(value)] as const),
  );
  let path = "";
  points.forEach((point, index) => {
    if (point) path += `${points[index - 1] ? "L" : "M"}${point[0].toFixed(1)},${point[1].toFixed(1)}`;
  });
  return (
    <g class={seriesClass(series.color)}>
      <path class="line" d={path} />
      {points.map((point, index) =>
        // A point without neighbours has no line.
        point && (points.length <= 40 || !(points[index - 1] || points[index + 1])) ? (
          <circle key={series.values.length + index} cx={point[0]} cy={point[1]} r={2.5} />
        ) : null,
      )}
    </g>
  );
}
