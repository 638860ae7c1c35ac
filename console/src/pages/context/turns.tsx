import { Table } from "../../components/table.tsx";
import { Tokens } from "../../components/tokens.tsx";
import { formatCount, formatTime } from "../../format.ts";
import { href } from "../../router.ts";
import { Chart, type ChartSeries } from "../charts/chart.tsx";
import { formatExact, formatShare } from "../numbers.ts";
import type { ContextTurn, ContextUse } from "../types/context-use.ts";
import { tokensByGroup } from "./part-kinds.ts";

const FOUND_BY = {
  session: "The turns are the captured exchanges with the client's id of the session.",
  conversation: "The turns are captured exchanges whose messages continue each other.",
  "": "",
};

/** The tokens of each turn of the session. */
export function Turns({ use }: { use: ContextUse }) {
  if (use.turns.length < 2) {
    return <p class="quiet">No other captured exchange belongs to the same conversation.</p>;
  }
  const turns = use.turns.map((turn) => ({ turn, groups: tokensByGroup(turn.groups) }));
  const series: ChartSeries[] = tokensByGroup([]).map(({ name, color }) => ({
    name,
    color,
    values: turns.map(({ groups }) => groups[color]?.value ?? 0),
  }));
  return (
    <>
      <p class="quiet">
        {FOUND_BY[use.turns_by]} Choose a bar to see its turn.
        {use.has_all_turns ? "" : " Older captures were not read."}
      </p>
      <Chart
        title="Input tokens by turn"
        kind="bars"
        series={series}
        labels={use.turns.map(({ number }) => String(number))}
        longLabels={use.turns.map(({ number }) => `Turn ${number}`)}
        labelTitle="Turn"
        format={formatCount}
        links={use.turns.map(({ id }) => href(`/context/${id}`))}
        current={use.turns.findIndex(({ is_current }) => is_current)}
      />
      <Table caption="Turns of the conversation" columns={COLUMNS} rows={use.turns} rowKey={({ id }) => id} />
    </>
  );
}

const COLUMNS = [
  { title: "Turn", cell: (turn: ContextTurn) => <TurnLink turn={turn} /> },
  { title: "Began", cell: ({ began_s }: ContextTurn) => (began_s ? formatTime(began_s) : "–") },
  { title: "Input", cell: ({ tokens }: ContextTurn) => <Tokens count={tokens} />, isNumber: true },
  {
    title: "Growth",
    cell: ({ growth }: ContextTurn) => `${growth > 0 ? "+" : ""}${formatExact(growth)}`,
    isNumber: true,
  },
  {
    title: "Messages",
    cell: ({ messages, messages_added }: ContextTurn) => `${messages} (+${messages_added})`,
    isNumber: true,
  },
  {
    title: "Cached",
    cell: ({ usage }: ContextTurn) => formatCached(usage.cached_tokens, usage.input_tokens),
    isNumber: true,
  },
  { title: "Output", cell: ({ usage }: ContextTurn) => <Tokens count={usage.output_tokens} />, isNumber: true },
  { title: "First change", cell: (turn: ContextTurn) => formatChange(turn) },
];

function TurnLink({ turn }: { turn: ContextTurn }) {
  return (
    <a href={href(`/context/${turn.id}`)} aria-current={turn.is_current ? "true" : undefined}>
      {turn.number}
    </a>
  );
}

function formatChange({ changed, changed_at_tokens }: ContextTurn): string {
  if (!changed) return "–";
  return changed_at_tokens === null ? changed : `${changed}, after ${formatExact(changed_at_tokens)} tokens`;
}

/** The share of the input that the upstream read from its prompt cache; a dash if it reported none. */
export function formatCached(cached: number | null, input: number | null): string {
  return cached === null || !input ? "–" : formatShare(cached / input);
}
