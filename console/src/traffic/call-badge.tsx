import { Badge, type Tone } from "../components/badge.tsx";
import type { CallOutcome, RowCall } from "../types.ts";

interface OutcomeLook {
  sign: string;
  tone: Tone;
  meaning: string;
}

export const OUTCOMES: Record<CallOutcome, OutcomeLook> = {
  valid: { sign: "✓", tone: "good", meaning: "valid as the model wrote it" },
  repaired: { sign: "✎", tone: "warning", meaning: "changed so that it matches the schema of its tool" },
  reasked: { sign: "↻", tone: "warning", meaning: "valid after the model was shown its error" },
  recovered: { sign: "⤴", tone: "warning", meaning: "left in the text by the server, and recovered" },
  unchecked: { sign: "○", tone: "neutral", meaning: "passed on without validation" },
  invalid: { sign: "✗", tone: "bad", meaning: "violates the schema of its tool" },
  incomplete: { sign: "✂", tone: "bad", meaning: "never became complete JSON" },
  unknown: { sign: "?", tone: "bad", meaning: "names a tool that was not offered" },
};

/** What became of a call, as a sentence. */
export function callTitle({ tool, outcome, repairs }: RowCall, meaning: string): string {
  const steps = repairs.length > 0 ? ` (${repairs.join(", ")})` : "";
  return `${tool ? `${tool}: ` : ""}${outcome}${steps}, ${meaning}`;
}

/** A tool call of a response and what became of it. */
export function CallBadge({ call }: { call: RowCall }) {
  const { sign, tone, meaning } = OUTCOMES[call.outcome] ?? OUTCOMES.unknown;
  return (
    <Badge tone={tone} title={callTitle(call, meaning)}>
      {sign} {call.outcome !== "valid" && `${call.outcome} `}
      {call.tool}
      {call.count > 1 && ` ×${call.count}`}
    </Badge>
  );
}
