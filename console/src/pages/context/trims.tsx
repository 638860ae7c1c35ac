import { Badge } from "../../components/badge.tsx";
import { Table } from "../../components/table.tsx";
import { href } from "../../router.ts";
import { formatExact, formatShare } from "../numbers.ts";
import type { ContextUse, TrimmedPart, TrimPreview } from "../types/context-use.ts";
import { kindTitle } from "./part-kinds.ts";

/** What each level of prompt trimming would remove. */
export function Trims({ use }: { use: ContextUse }) {
  if (use.trims.length === 0) return <p class="quiet">There is nothing to trim.</p>;
  return (
    <>
      {use.trim_setting && (
        <p>
          The setting <a href={href(`/settings?q=${encodeURIComponent(use.trim_setting)}`)}>{use.trim_setting}</a>{" "}
          selects the level.
        </p>
      )}
      {use.budget_tokens !== null && (
        <p class="quiet">
          Tools and system prompt should have at most {formatExact(use.budget_tokens)} tokens, from the measured speed
          of the model.
        </p>
      )}
      {use.trims.map((trim) => (
        <Trim key={trim.level} trim={trim} />
      ))}
    </>
  );
}

function Trim({ trim }: { trim: TrimPreview }) {
  const saved = trim.tokens_before - trim.tokens_after;
  return (
    <article class="card">
      <h3>
        {trim.level} {trim.is_used && <Badge tone="accent">set</Badge>}{" "}
        {trim.is_applied && <Badge tone="good">applied to this exchange</Badge>}{" "}
        {trim.fits !== null && (
          <Badge tone={trim.fits ? "good" : "warning"}>{trim.fits ? "fits the budget" : "over the budget"}</Badge>
        )}
      </h3>
      <p>{trim.meaning}</p>
      <p>
        {formatExact(trim.tokens_before)} → <b>{formatExact(trim.tokens_after)} tokens</b>
        {saved > 0 && ` (${formatExact(saved)} fewer, ${formatShare(saved / trim.tokens_before)})`}
      </p>
      {trim.parts.length > 0 && (
        <details>
          <summary>What is removed</summary>
          <Table
            caption={`Removed by ${trim.level}`}
            columns={COLUMNS}
            rows={trim.parts}
            rowKey={(part) => `${part.link} ${part.name}`}
          />
        </details>
      )}
    </article>
  );
}

const COLUMNS = [
  { title: "Part", cell: ({ name }: TrimmedPart) => name },
  { title: "Kind", cell: ({ kind }: TrimmedPart) => kindTitle(kind) },
  { title: "Before", cell: ({ tokens_before }: TrimmedPart) => formatExact(tokens_before), isNumber: true },
  { title: "After", cell: ({ tokens_after }: TrimmedPart) => formatExact(tokens_after), isNumber: true },
];
