import { useSignal } from "@preact/signals";
import type { ExchangeView, LaneName } from "../types.ts";
import { DetailPanel } from "./detail-panel.tsx";
import { type Chosen, comparedColumns, distinctNotes, LANE_NAMES } from "./lane-columns.ts";
import { Lanes } from "./lanes.tsx";
import { Legend } from "./legend.tsx";

interface Props {
  views: { title: string; view: ExchangeView }[];
}

/** One lane of several exchanges, side by side. */
export function ComparedLanes({ views }: Props) {
  const lane = useSignal<LaneName>("reply");
  const chosen = useSignal<Chosen | undefined>(undefined);
  const columns = comparedColumns(lane.value, views);
  const lanes = views[0]?.view.lanes ?? [];
  return (
    <>
      <div class="lane-tools">
        <fieldset class="lane-choice">
          <legend class="visually-hidden">Compared lane</legend>
          {lanes.map(({ name }) => (
            <button
              key={name}
              type="button"
              aria-pressed={name === lane.value}
              onClick={() => {
                lane.value = name;
                chosen.value = undefined;
              }}
            >
              {LANE_NAMES[name]}
            </button>
          ))}
        </fieldset>
        <Legend columns={columns} />
      </div>
      <Lanes columns={columns} chosen={chosen} />
      <DetailPanel
        columns={columns}
        chosen={chosen}
        notes={distinctNotes(views.flatMap(({ view }) => view.notes))}
        diagnosis={null}
      />
    </>
  );
}
