/** 12,345 */
export function formatExact(value: number): string {
  return Math.round(value).toLocaleString("en");
}

/** 12 %, 0.4 % */
export function formatShare(share: number): string {
  const percent = 100 * share;
  return `${percent > 0 && percent < 9.95 ? Number(percent.toFixed(1)) : Math.round(percent)} %`;
}

/** 512 B, 1.4 GB; 1 kB are 1000 bytes */
export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : Number(value.toFixed(1))} ${units[unit]}`;
}

/** $0.0042, $12.30 */
export function formatUsd(value: number): string {
  return `$${value === 0 || value >= 0.095 ? value.toFixed(2) : Number(value.toPrecision(2))}`;
}
