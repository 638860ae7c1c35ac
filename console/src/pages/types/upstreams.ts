/** Upstreams, models and settings, as `src/dragoman/console/upstreams/views.py` describes them. */

export interface NamedValue {
  name: string;
  value: string;
}

export interface QuotaView {
  model: string;
  seconds: number;
}

export interface FailureView {
  ended_s: number;
  id: string;
  model: string;
  reason: string;
  answered: boolean;
}

export interface ModeView {
  model: string;
  tool_mode: string;
  call_format: string;
  endpoint: string;
  constrain: string[];
  why: string;
  is_auto: boolean;
}

export interface FindingView {
  what: string;
  verdict: "yes" | "partly" | "no" | "unknown";
  text: string;
  facts: NamedValue[];
}

export interface QuirkView {
  description: string;
  source: string;
}

export interface ProbeView {
  model: string;
  api: string;
  provider: string;
  title: string;
  version: string;
  probed_s: number;
  seconds: number;
  tool_mode: string;
  call_format: string;
  constrain: string[];
  why: string;
  findings: FindingView[];
  quirks: QuirkView[];
  settings: string;
}

export interface ProbeProgress {
  what: string;
  number: number;
  count: number;
}

export interface UpstreamView {
  name: string;
  kind: "http" | "embedded" | "claude_cli" | "other";
  url: string;
  provider: string;
  title: string;
  api: string;
  state: "ready" | "limited" | "trying" | "failing" | "unavailable";
  explanation: string;
  breaker: "closed" | "open" | "trying" | "";
  active: number | null;
  waiting: number | null;
  max_concurrency: number | null;
  max_queue: number | null;
  quota: QuotaView[];
  models: string[];
  model_count: number;
  modes: ModeView[];
  facts: NamedValue[];
  failures: FailureView[];
  can_probe: boolean;
  probes: ProbeView[];
}

export interface UpstreamList {
  upstreams: UpstreamView[];
  has_records: boolean;
  process: number;
  workers: number;
}

export interface LocalModelView {
  name: string;
  aliases: string[];
  kind: "text" | "embeddings" | "rerank";
  origin: string;
  path: string;
  size_bytes: number;
  context_window: number;
  trained_context: number;
  call_format: string;
  vision: boolean;
  audio: boolean;
  memory_bytes: number;
  is_default: boolean;
  is_pinned: boolean;
  state: "" | "waiting" | "loading" | "ready" | "unloading";
  active: number;
  waiting: number;
  restarts: number;
  expires_s: number | null;
  facts: NamedValue[];
}

export interface ServedModelView {
  id: string;
  display_name: string;
  upstream: string;
  context_window: number | null;
  aliases: string[];
}

export interface CatalogueModelView {
  name: string;
  aliases: string[];
  is_default: boolean;
  size_bytes: number;
  licence: string;
  is_downloaded: boolean;
  description: string;
  note: string;
}

export interface MemoryView {
  total_bytes: number | null;
  free_bytes: number | null;
  limit_bytes: number | null;
  used_bytes: number;
}

export interface PullView {
  model: string;
  progress: PullProgress;
}

export interface ModelList {
  local: LocalModelView[];
  served: ServedModelView[];
  served_count: number;
  catalogue: CatalogueModelView[];
  memory: MemoryView;
  pulls: PullView[];
  can_load: boolean;
  note: string;
}

export interface ModelDetail {
  model: LocalModelView;
  facts: NamedValue[];
}

export interface LoadResult {
  model: string;
  state: LocalModelView["state"];
  message: string;
}

export interface PullProgress {
  step: string;
  done_bytes: number;
  total_bytes: number;
  bytes_per_s: number;
  seconds_left: number | null;
}

export interface PullResult {
  model: string;
  path: string;
  projector: string;
}

export interface PullStop {
  model: string;
  stopped: boolean;
}

export interface SettingView {
  key: string;
  section: string;
  value: string;
  is_secret: boolean;
  origin: string;
  is_default: boolean;
  description: string;
  /** The allowed values; empty: any of its type. */
  choices: string[];
}

export interface SettingList {
  config_path: string;
  /** The file that would be read if it existed; "" if there is one. */
  default_path: string;
  /** The settings that are not the default, as a settings file. */
  file_content: string;
  reload: string;
  settings: SettingView[];
  problems: string[];
}
