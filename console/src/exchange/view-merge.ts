import type { ExchangeView, Lane } from "../types.ts";

/** Returns the view with the parts that an event of its stream changed; lanes are replaced by name. */
export function mergeView(view: ExchangeView, changed: Partial<ExchangeView>): ExchangeView {
  return { ...view, ...changed, lanes: changed.lanes ? mergeLanes(view.lanes, changed.lanes) : view.lanes };
}

function mergeLanes(lanes: Lane[], changed: Lane[]): Lane[] {
  const byName = new Map(changed.map((lane) => [lane.name, lane]));
  const kept = lanes.map((lane) => byName.get(lane.name) ?? lane);
  const known = new Set(lanes.map((lane) => lane.name));
  return [...kept, ...changed.filter((lane) => !known.has(lane.name))];
}
