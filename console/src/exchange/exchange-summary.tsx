import { Duration } from "../components/duration.tsx";
import { formatExactTime, formatTime } from "../format.ts";
import { CallBadge } from "../traffic/call-badge.tsx";
import { ModelPath, ReaskedBadge, Result, TokenCounts } from "../traffic/traffic-row.tsx";
import type { ExchangeView, SentCall } from "../types.ts";

/** What the list of the traffic shows of an exchange, in one line, and the calls of backends. */
export function ExchangeSummary({ view }: { view: ExchangeView }) {
  const { row } = view;
  return (
    <div class="summary">
      <h1>
        <code>{view.id}</code>
      </h1>
      <span title={formatExactTime(row.began_s)}>{formatTime(row.began_s)}</span>
      <span>
        {row.agent || "unknown agent"} {row.role}
      </span>
      <span>
        <ModelPath row={row} />{" "}
        {row.tool_mode && <span class="detail">({[row.tool_mode, row.format].join(" ").trim()})</span>}
      </span>
      <span>
        <span class="detail">tokens </span>
        <TokenCounts row={row} />
      </span>
      <span>
        <span class="detail">first </span>
        <Duration ms={row.first_ms} />
        <span class="detail"> total </span>
        <Duration ms={row.total_ms} />
      </span>
      <span class="summary-calls">
        {row.calls.map((call) => (
          <CallBadge key={call.tool + call.outcome + call.repairs} call={call} />
        ))}
        <ReaskedBadge row={row} />
        <Result row={row} />
      </span>
      {view.sent_calls.length > 1 && <SentCalls calls={view.sent_calls} />}
    </div>
  );
}

function SentCalls({ calls }: { calls: SentCall[] }) {
  return (
    <ol class="sent-calls" aria-label="Calls of backends">
      {calls.map(({ number, backend, model, mode, format, why, error }) => (
        <li key={number}>
          <span class="detail">
            {number} {why}
          </span>{" "}
          {backend} {model} <span class="detail">{`${mode} ${format}`.trim()}</span>
          {error && <span class="field-error"> ✗ {error}</span>}
        </li>
      ))}
    </ol>
  );
}
