import { useSignal } from "@preact/signals";
import { ErrorNotice } from "../components/error-notice.tsx";
import { Loading } from "../components/loading.tsx";
import { href, query, setQuery } from "../router.ts";
import type { PageProps } from "../routes.ts";
import type { ExchangeView } from "../types.ts";
import { ActionBar } from "./actions/action-bar.tsx";
import type { NamedReplay } from "./actions/replay-dialog.tsx";
import { ComparedLanes } from "./compared-lanes.tsx";
import { ExchangeLanes } from "./exchange-lanes.tsx";
import { ExchangeSummary } from "./exchange-summary.tsx";
import { NotCaptured } from "./not-captured.tsx";
import { ReplayResult } from "./replay-result.tsx";
import { useExchange } from "./use-exchange.ts";
import "./exchange.css";

export default function ExchangePage({ id }: PageProps) {
  const otherId = query.value.get("with") ?? "";
  const { view, error } = useExchange(id);
  const other = useExchange(otherId);
  const message = error.value || other.error.value;
  return (
    <div class="exchange-page">
      {message && <ErrorNotice message={message} />}
      {view.value ? <Exchange key={id} view={view.value} other={other.view.value} /> : !message && <Loading />}
    </div>
  );
}

interface Props {
  view: ExchangeView;
  other: ExchangeView | undefined;
}

function Exchange({ view, other }: Props) {
  const replay = useSignal<NamedReplay | undefined>(undefined);
  return (
    <>
      <div class="exchange-head">
        <ExchangeSummary view={view} />
        {other && <ExchangeSummary view={other} />}
        {view.is_captured && (
          <div class="exchange-tools">
            <ActionBar view={view} replay={replay} />
            {view.previous_id && <a href={href(`/exchanges/${view.previous_id}`)}>← previous request</a>}
            {other && (
              <button type="button" onClick={() => setQuery({ with: "" })}>
                End comparison
              </button>
            )}
          </div>
        )}
        {replay.value && (
          <ReplayResult
            stages={replay.value.stages}
            pieces={replay.value.pieces}
            onClose={() => {
              replay.value = undefined;
            }}
          />
        )}
      </div>
      <Content view={view} other={other} replayed={replay.value?.view} />
    </>
  );
}

function Content({ view, other, replayed }: Props & { replayed: ExchangeView | undefined }) {
  if (!view.is_captured) return <NotCaptured view={view} />;
  if (replayed) {
    return (
      <ComparedLanes
        views={[
          { title: "Captured", view },
          { title: "Replayed", view: replayed },
        ]}
      />
    );
  }
  if (other)
    return (
      <ComparedLanes
        views={[view, other].map((each, index) => ({ title: `${index + 1}: ${nameOf(each)}`, view: each }))}
      />
    );
  return <ExchangeLanes view={view} />;
}

function nameOf({ row, id }: ExchangeView): string {
  return [row.model, row.upstream && `→ ${row.upstream}`].filter(Boolean).join(" ") || id;
}
