/** `GET /reports` and `GET /keys`, as `src/dragoman/console/reports/views.py` describes them. */

/** Numbers of exchanges, one for each time. */
export interface ReportColumns {
  exchanges: number[];
  errors: number[];
  attempts: number[];
  input_tokens: number[];
  cached_tokens: number[];
  output_tokens: number[];
  reasoning_tokens: number[];
  cost_usd: number[];
  calls: number[];
  valid: number[];
  repaired: number[];
  reasked: number[];
  recovered: number[];
  unchecked: number[];
  invalid: number[];
  incomplete: number[];
  unknown: number[];
  failed: number[];
  first_p50_ms: (number | null)[];
  first_p95_ms: (number | null)[];
  total_p50_ms: (number | null)[];
  total_p95_ms: (number | null)[];
}

export interface ReportSeries {
  name: string;
  totals: ReportColumns;
  points: ReportColumns;
  is_rest: boolean;
}

export interface WorstGroup {
  kind: string;
  name: string;
  calls: number;
  failed: number;
  failed_share: number;
  failed_share_of_others: number;
  probability: number;
  text: string;
}

export interface ReportsView {
  begin_s: number;
  end_s: number;
  step_s: number;
  times: number[];
  by: string;
  labels: string[];
  total: ReportSeries;
  series: ReportSeries[];
  worst: WorstGroup[];
  rule: string;
  notes: string[];
}

export interface KeyPeriodView {
  requests: number;
  input_tokens: number;
  cached_input_tokens: number;
  output_tokens: number;
  cost_usd: number;
  resets_at: string;
}

export interface KeyBudgetView {
  name: string;
  unit: string;
  period: string;
  limit: number;
  used: number;
  reserved: number;
  remaining: number;
  resets_at: string;
}

export interface KeyLimitView {
  name: string;
  limit: number;
  remaining: number | null;
  reset_s: number | null;
}

export interface KeyView {
  name: string;
  state: string;
  source: string;
  is_admin: boolean;
  models: string[];
  upstreams: string[];
  tools: string[];
  expires: string;
  day: KeyPeriodView | null;
  month: KeyPeriodView | null;
  budgets: KeyBudgetView[];
  limits: KeyLimitView[];
}

export interface KeysView {
  is_on: boolean;
  unnamed: number;
  keys: KeyView[];
  omitted: number;
  error: string;
}
