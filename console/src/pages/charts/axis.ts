/** Ticks and labels of the axes of charts. */

/** Returns round values from 0 that cover the maximum: 0, 10, 20, 30, 40 for 37. */
export function ticks(max: number, count = 4): number[] {
  if (!(max > 0)) return [0, 1];
  const rough = max / count;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((size) => size >= rough) ?? rough;
  const steps = Math.ceil(max / step - 1e-9);
  return Array.from({ length: steps + 1 }, (_, index) => index * step);
}

/** Returns ticks for numbers of things: only whole ones. */
export function countTicks(max: number): number[] {
  return ticks(max).filter(Number.isInteger);
}

const MINUTE_MS = 60_000;

/** Returns ticks for milliseconds: from two minutes on, whole minutes. */
export function durationTicks(max: number): number[] {
  return max < 2 * MINUTE_MS
    ? ticks(max)
    : ticks(Math.ceil(max / MINUTE_MS))
        .filter(Number.isInteger)
        .map((minutes) => minutes * MINUTE_MS);
}

/** Returns which labels are drawn: those that are not empty, and have `room` pixels each. */
export function labelledIndexes(labels: string[], width: number, room: number): number[] {
  const step = width / Math.max(labels.length, 1);
  const drawn: number[] = [];
  labels.forEach((label, index) => {
    const last = drawn.at(-1);
    if (label && (last === undefined || (index - last) * step >= room)) drawn.push(index);
  });
  return drawn;
}
