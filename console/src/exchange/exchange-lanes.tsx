import { useSignal } from "@preact/signals";
import type { ExchangeView } from "../types.ts";
import { DetailPanel } from "./detail-panel.tsx";
import { type Chosen, exchangeColumns } from "./lane-columns.ts";
import { Lanes } from "./lanes.tsx";
import { Legend } from "./legend.tsx";

/** The four lanes of an exchange, with what explains them. */
export function ExchangeLanes({ view }: { view: ExchangeView }) {
  const chosen = useSignal<Chosen | undefined>(undefined);
  const columns = exchangeColumns(view);
  return (
    <>
      <div class="lane-tools">
        <Legend columns={columns} />
      </div>
      <Lanes columns={columns} chosen={chosen} />
      <DetailPanel columns={columns} chosen={chosen} notes={view.notes} diagnosis={view.diagnosis} />
    </>
  );
}
