/** `GET /exchanges/{id}/context`, as `src/dragoman/console/context_use/views.py` describes it. */

export type PartKind =
  | "system"
  | "tool"
  | "schema"
  | "user"
  | "assistant"
  | "reasoning"
  | "call"
  | "result"
  | "image"
  | "document"
  | "audio"
  | "frame"
  | "other";

export interface ContextPart {
  kind: PartKind;
  name: string;
  excerpt: string;
  link: string;
  message: number | null;
  tokens: number;
  chars: number;
  cached_tokens: number | null;
}

export interface ContextGroup {
  kind: PartKind;
  tokens: number;
  count: number;
}

export interface ReportedUsage {
  input_tokens: number | null;
  cached_tokens: number | null;
  output_tokens: number | null;
  reasoning_tokens: number | null;
  is_estimated: boolean;
}

export interface ContextTurn {
  id: string;
  number: number;
  began_s: number;
  is_current: boolean;
  tokens: number;
  growth: number;
  messages: number;
  messages_added: number;
  usage: ReportedUsage;
  groups: ContextGroup[];
  changed: string;
  changed_at_tokens: number | null;
}

export interface TrimmedPart {
  kind: PartKind;
  name: string;
  link: string;
  tokens_before: number;
  tokens_after: number;
}

export interface TrimPreview {
  level: string;
  meaning: string;
  tokens_before: number;
  tokens_after: number;
  parts: TrimmedPart[];
  is_used: boolean;
  is_applied: boolean;
  fits: boolean | null;
}

export interface ContextUse {
  id: string;
  is_captured: boolean;
  model: string;
  upstream: string;
  counting: "exact" | "reported" | "estimated";
  tokenizer: string;
  explanation: string;
  can_count: boolean;
  tokens: number;
  estimated_tokens: number;
  usage: ReportedUsage;
  context_window: number | null;
  groups: ContextGroup[];
  parts: ContextPart[];
  omitted_parts: number;
  omitted_tokens: number;
  largest: ContextPart[];
  session: string;
  turns_by: "session" | "conversation" | "";
  turns: ContextTurn[];
  has_all_turns: boolean;
  trims: TrimPreview[];
  trim_setting: string;
  budget_tokens: number | null;
}
