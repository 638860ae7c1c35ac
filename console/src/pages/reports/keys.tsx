import { Badge, type Tone } from "../../components/badge.tsx";
import { ErrorNotice } from "../../components/error-notice.tsx";
import { Table } from "../../components/table.tsx";
import { Facts } from "../facts.tsx";
import { formatExact, formatUsd } from "../numbers.ts";
import type { KeyBudgetView, KeyLimitView, KeyPeriodView, KeysView, KeyView } from "../types/reports.ts";

const TONES: Record<string, Tone> = { valid: "good", expired: "warning", revoked: "bad" };

/** The keys with their budgets, limits and use. */
export function Keys({ view }: { view: KeysView }) {
  return (
    <>
      {!view.is_on && <p class="quiet">Requests need no key.</p>}
      {view.unnamed > 0 && (
        <p class="quiet">
          {view.unnamed} {view.unnamed === 1 ? "key has" : "keys have"} no name (setting server.api_keys): all rights,
          and their use is not counted.
        </p>
      )}
      {view.error && <ErrorNotice message={view.error} />}
      {view.keys.map((key) => (
        <Key key={key.name} value={key} />
      ))}
      {view.omitted > 0 && <p class="quiet">{formatExact(view.omitted)} more keys are not listed.</p>}
    </>
  );
}

function Key({ value }: { value: KeyView }) {
  const id = `key-${value.name}`;
  return (
    <article class="card" aria-labelledby={id}>
      <h3 id={id}>
        {value.name} <Badge tone={TONES[value.state] ?? "neutral"}>{value.state}</Badge>{" "}
        {value.is_admin && <Badge>admin</Badge>}
      </h3>
      <Facts facts={facts(value)} />
      {value.budgets.map((budget) => (
        <Budget key={budget.name} budget={budget} />
      ))}
      {value.limits.length > 0 && (
        <ul>
          {value.limits.map((limit) => (
            <li key={limit.name}>{describeLimit(limit)}</li>
          ))}
        </ul>
      )}
      {value.day && value.month && <Use day={value.day} month={value.month} />}
    </article>
  );
}

function facts(key: KeyView) {
  const all = [
    { name: "From", value: key.source },
    { name: "Expires", value: key.expires || "never" },
    { name: "Models", value: key.models.join(", ") || "all" },
    { name: "Upstreams", value: key.upstreams.join(", ") || "all" },
    { name: "Tools", value: key.tools.join(", ") || "all" },
  ];
  return all;
}

function Budget({ budget }: { budget: KeyBudgetView }) {
  const { name, unit, period, limit, used, reserved, resets_at } = budget;
  const format = unit === "usd" ? formatUsd : (value: number) => `${formatExact(value)} tokens`;
  return (
    <p>
      <meter aria-label={`Use of ${name}`} max={limit || 1} high={0.8 * limit} value={used + reserved} /> {format(used)}{" "}
      of {format(limit)} for each {period}
      {reserved > 0 && `, ${format(reserved)} reserved for running requests`}
      <span class="quiet">
        {" "}
        ({name}; begins again at {resets_at})
      </span>
    </p>
  );
}

function describeLimit({ name, limit, remaining, reset_s }: KeyLimitView): string {
  const left = remaining === null ? "" : `, ${formatExact(remaining)} left`;
  const reset = reset_s ? `, all of it in ${Math.ceil(reset_s)} s` : "";
  return `${name}: ${formatExact(limit)}${left}${reset}`;
}

interface PeriodUse extends KeyPeriodView {
  title: string;
}

function Use({ day, month }: { day: KeyPeriodView; month: KeyPeriodView }) {
  const rows: PeriodUse[] = [
    { title: "today", ...day },
    { title: "this month", ...month },
  ];
  return <Table caption="Use" columns={USE_COLUMNS} rows={rows} rowKey={({ title }) => title} />;
}

const USE_COLUMNS = [
  { title: "Period (UTC)", cell: ({ title }: PeriodUse) => title },
  { title: "Requests", cell: ({ requests }: PeriodUse) => formatExact(requests), isNumber: true },
  { title: "Input tokens", cell: ({ input_tokens }: PeriodUse) => formatExact(input_tokens), isNumber: true },
  { title: "Cached", cell: ({ cached_input_tokens }: PeriodUse) => formatExact(cached_input_tokens), isNumber: true },
  { title: "Output tokens", cell: ({ output_tokens }: PeriodUse) => formatExact(output_tokens), isNumber: true },
  { title: "Cost", cell: ({ cost_usd }: PeriodUse) => formatUsd(cost_usd), isNumber: true },
];
