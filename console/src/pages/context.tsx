import { useSignal } from "@preact/signals";
import { apiUrl } from "../api.ts";
import { AsyncContent } from "../components/async-content.tsx";
import { EmptyState } from "../components/empty-state.tsx";
import { Table } from "../components/table.tsx";
import { href } from "../router.ts";
import type { PageProps } from "../routes.ts";
import { useData } from "../use-data.ts";
import { ShareBar } from "./charts/share-bar.tsx";
import { kindTitle, tokensByGroup } from "./context/part-kinds.ts";
import { Trims } from "./context/trims.tsx";
import { formatCached, Turns } from "./context/turns.tsx";
import { Facts } from "./facts.tsx";
import { formatExact, formatShare } from "./numbers.ts";
import type { ContextPart, ContextUse } from "./types/context-use.ts";
import "./pages.css";

/** What fills the context of one exchange and of its session. */
export default function ContextPage({ id }: PageProps) {
  if (!id) {
    return (
      <EmptyState title="Choose an exchange">
        <p>
          Open an exchange of the <a href={href("/")}>traffic</a>, and there its context.
        </p>
      </EmptyState>
    );
  }
  return <ContextOf key={id} id={id} />;
}

function ContextOf({ id }: { id: string }) {
  const isExact = useSignal(false);
  const data = useData<ContextUse>(`${apiUrl("exchanges", id, "context")}${isExact.value ? "?count=exact" : ""}`);
  return (
    <div class="page">
      <h1>Context</h1>
      <p>
        Of the exchange{" "}
        <a href={href(`/exchanges/${id}`)}>
          <code>{id}</code>
        </a>
      </p>
      <AsyncContent data={data}>
        {(use) =>
          use.is_captured ? (
            <Context use={use} onCount={() => (isExact.value = true)} />
          ) : (
            <EmptyState title="This exchange was not captured">
              <p>Switch capture on, at the top of the page, and send the request again.</p>
            </EmptyState>
          )
        }
      </AsyncContent>
    </div>
  );
}

function Context({ use, onCount }: { use: ContextUse; onCount: () => void }) {
  return (
    <>
      <Facts facts={facts(use)} />
      <p class="quiet">{use.explanation}</p>
      {use.can_count && use.counting !== "exact" && (
        <div class="controls">
          <button type="button" onClick={onCount}>
            Count with the model's tokenizer
          </button>
        </div>
      )}
      <CacheBreak use={use} />
      <section aria-labelledby="parts">
        <h2 id="parts">Parts</h2>
        <ShareBar
          label="Tokens by part; the list has the numbers"
          shares={tokensByGroup(use.groups).filter(({ value }) => value > 0)}
          format={(value) => `${formatExact(value)} (${formatShare(use.tokens ? value / use.tokens : 0)})`}
        />
        <Table caption="Largest parts" columns={partColumns(use)} rows={numbered(use.largest)} rowKey={rowNumber} />
        <details>
          <summary>All parts, in the order of the prompt</summary>
          {use.omitted_parts > 0 && (
            <p class="quiet">
              {formatExact(use.omitted_parts)} parts in the middle, with {formatExact(use.omitted_tokens)} tokens, are
              not listed.
            </p>
          )}
          <Table caption="All parts" columns={partColumns(use)} rows={numbered(use.parts)} rowKey={rowNumber} />
        </details>
      </section>
      <section aria-labelledby="turns">
        <h2 id="turns">Turns</h2>
        <Turns use={use} />
      </section>
      <section aria-labelledby="trims">
        <h2 id="trims">Prompt trimming</h2>
        <Trims use={use} />
      </section>
    </>
  );
}

function facts(use: ContextUse) {
  const { usage, context_window } = use;
  return [
    { name: "Input tokens", value: formatExact(use.tokens) },
    ...(context_window
      ? [{ name: "Context window", value: <Window tokens={use.tokens} size={context_window} /> }]
      : []),
    { name: "Cached", value: formatCached(usage.cached_tokens, usage.input_tokens) },
    { name: "Output tokens", value: usage.output_tokens === null ? "–" : formatExact(usage.output_tokens) },
    { name: "Model", value: use.model || "–" },
    { name: "Upstream", value: use.upstream || "–" },
  ];
}

function Window({ tokens, size }: { tokens: number; size: number }) {
  return (
    <>
      {formatExact(size)}{" "}
      <meter aria-label="Used share of the context window" max={size} high={0.9 * size} value={tokens} />{" "}
      {formatShare(tokens / size)}
    </>
  );
}

/** States where the prompt differs from that of the turn before. */
function CacheBreak({ use }: { use: ContextUse }) {
  const turn = use.turns.find(({ is_current }) => is_current);
  if (!turn?.changed) return null;
  const at = turn.changed_at_tokens === null ? "" : ` ${formatExact(turn.changed_at_tokens)} tokens from the start`;
  return (
    <p class="notice">
      This prompt differs from that of turn {turn.number - 1} at <b>{turn.changed}</b>
      {at}: a prompt cache cannot hold what follows.
    </p>
  );
}

function partColumns(use: ContextUse) {
  return [
    { title: "Part", cell: (part: ContextPart) => <PartName part={part} /> },
    { title: "Kind", cell: ({ kind }: ContextPart) => kindTitle(kind) },
    { title: "Tokens", cell: ({ tokens }: ContextPart) => formatExact(tokens), isNumber: true },
    {
      title: "Share",
      cell: ({ tokens }: ContextPart) => formatShare(use.tokens ? tokens / use.tokens : 0),
      isNumber: true,
    },
    {
      title: "Cached",
      cell: ({ tokens, cached_tokens }: ContextPart) => formatCached(cached_tokens, tokens),
      isNumber: true,
    },
    { title: "Characters", cell: ({ chars }: ContextPart) => formatExact(chars), isNumber: true },
  ];
}

function PartName({ part }: { part: ContextPart }) {
  return (
    <>
      {part.name}
      {part.excerpt && <div class="quiet excerpt">{part.excerpt}</div>}
    </>
  );
}

type NumberedPart = ContextPart & { row: number };

/** Two parts of a message can have the same name. */
function numbered(parts: ContextPart[]): NumberedPart[] {
  return parts.map((part, row) => ({ ...part, row }));
}

function rowNumber({ row }: NumberedPart): number {
  return row;
}
