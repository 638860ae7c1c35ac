/** 830 ms, 1.2 s, 3 min 5 s */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** 950, 12.3k, 1.2M */
export function formatCount(count: number): string {
  if (count < 1000) return String(count);
  if (count < 999_950) return `${trimmed(count / 1000)}k`;
  return `${trimmed(count / 1_000_000)}M`;
}

const exact = new Intl.NumberFormat("en");

/** 12,345 */
export function formatExactCount(count: number): string {
  return exact.format(count);
}

function trimmed(value: number): string {
  return value < 99.95 ? value.toFixed(1).replace(/\.0$/, "") : String(Math.round(value));
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_MS = 86_400_000;
const twoDigits = (value: number) => String(value).padStart(2, "0");

/** The local time of seconds since 1970; with the day unless it is today. Intl takes ten times as long for each row. */
export function formatTime(seconds: number, now = Date.now()): string {
  const date = new Date(seconds * 1000);
  const minutes = `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
  const isToday = date.getDate() === new Date(now).getDate() && Math.abs(now - date.getTime()) < DAY_MS;
  if (isToday) return `${minutes}:${twoDigits(date.getSeconds())}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]} ${minutes}`;
}

/** The time with its zone, for tooltips. */
export function formatExactTime(seconds: number): string {
  return new Date(seconds * 1000).toISOString();
}
