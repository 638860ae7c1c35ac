import { Badge } from "../components/badge.tsx";
import { Duration } from "../components/duration.tsx";
import { Tokens } from "../components/tokens.tsx";
import { formatExactTime, formatTime } from "../format.ts";
import { memo } from "../memo.ts";
import { href } from "../router.ts";
import type { TrafficRow } from "../types.ts";
import { CallBadge } from "./call-badge.tsx";
import { isFailure, isReasked } from "./row-filter.ts";

interface Props {
  row: TrafficRow;
  index: number;
  isActive: boolean;
}

export const rowElementId = (row: TrafficRow) => `row-${row.id}`;

export function TrafficRowView({ row, index, isActive }: Props) {
  return (
    <div
      role="row"
      id={rowElementId(row)}
      class="traffic-row"
      data-testid="row"
      data-id={row.id}
      data-state={row.state}
      data-failed={isFailure(row)}
      aria-rowindex={index + 2}
      aria-selected={isActive}
    >
      <Cells row={row} />
    </div>
  );
}

// The place of a row changes with each row above it, its cells do not.
const Cells = memo(function Cells({ row }: { row: TrafficRow }) {
  return (
    <>
      <span role="gridcell" class="cell-time" title={formatExactTime(row.began_s)}>
        <a href={href(`/exchanges/${row.id}`)} tabIndex={-1}>
          {formatTime(row.began_s)}
        </a>
        {row.is_captured && (
          <span class="captured-mark" title="captured: its content can be shown">
            {" "}
            <span aria-hidden="true">●</span>
            <span class="visually-hidden">captured</span>
          </span>
        )}
      </span>
      <span role="gridcell" class="cell-agent">
        {row.agent || <span class="absent">unknown</span>}
        {row.role && <span class="detail"> {row.role}</span>}
      </span>
      <span role="gridcell" class="cell-model">
        <ModelPath row={row} />
      </span>
      <span role="gridcell" class="cell-mode detail">
        {row.tool_mode} {row.format}
      </span>
      <span role="gridcell" class="cell-tokens">
        <TokenCounts row={row} />
      </span>
      <span role="gridcell" class="cell-first cell-duration">
        <Duration ms={row.first_ms} />
      </span>
      <span role="gridcell" class="cell-total cell-duration">
        <Duration ms={row.total_ms} />
      </span>
      <span role="gridcell" class="cell-calls">
        {row.calls.map((call) => (
          <CallBadge key={call.tool + call.outcome + call.repairs} call={call} />
        ))}
        <ReaskedBadge row={row} />
      </span>
      <span role="gridcell" class="cell-result">
        <Result row={row} />
      </span>
    </>
  );
});

/** Says that the model was re-asked, unless a call says so. */
export function ReaskedBadge({ row }: { row: TrafficRow }) {
  if (!isReasked(row) || row.calls.some(({ outcome }) => outcome === "reasked")) return null;
  return (
    <Badge tone="warning" title="The model was shown the error of its response, and asked again">
      ↻ re-asked
    </Badge>
  );
}

/** The model that was asked for, and the upstream that answered, with its model if that is another. */
export function ModelPath({ row }: { row: TrafficRow }) {
  const target = [row.upstream, row.upstream_model !== row.model && row.upstream_model].filter(Boolean).join(" ");
  return (
    <>
      {row.model}
      {target && <span class="detail"> → {target}</span>}
    </>
  );
}

export function TokenCounts({ row }: { row: TrafficRow }) {
  if (row.input_tokens === null && row.output_tokens === null) return <span class="absent">–</span>;
  return (
    <>
      <Tokens count={row.input_tokens} />
      <span class="detail"> → </span>
      <Tokens count={row.output_tokens} />
      {row.cached_tokens ? <span class="detail"> · {Math.round(cachedShare(row) * 100)}% cached</span> : null}
    </>
  );
}

function cachedShare(row: TrafficRow): number {
  return row.input_tokens ? Math.min(1, (row.cached_tokens ?? 0) / row.input_tokens) : 0;
}

/** The status with which the gateway logs a request whose client disconnected. */
const CLIENT_LEFT = 499;

function errorName({ error, status }: TrafficRow): string {
  return error.split(":")[0] || (status === CLIENT_LEFT ? "client left" : "");
}

export function Result({ row }: { row: TrafficRow }) {
  return (
    <>
      {row.state === "running" && <Badge tone="accent">running</Badge>}
      {row.state === "failed" && (
        <Badge tone="bad" title={row.error}>
          ✗ {row.status || ""} {errorName(row)}
        </Badge>
      )}
      {row.state === "done" && <span class="detail">{row.finish || row.status}</span>}
      {row.warnings.length > 0 && (
        <Badge tone="warning" title={row.warnings.join("\n")}>
          ⚠ {row.warnings.length}
        </Badge>
      )}
    </>
  );
}
