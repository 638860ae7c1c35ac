import { type Signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { alignCounterparts, elementAt, focusPlace } from "./lane-alignment.ts";
import { type Chosen, type LaneColumn, linkOf, neighbour, type Place, segmentAt } from "./lane-columns.ts";
import { LaneView } from "./lane-view.tsx";
import "./lanes.css";

interface Props {
  columns: LaneColumn[];
  /** Also changed from outside, for example by the panel with details. */
  chosen: Signal<Chosen | undefined>;
}

/** Columns side by side, of which narrow windows show one; a chosen span marks its counterparts in all of them. */
export function Lanes({ columns, chosen }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const first = columns[0]?.key ?? "";
  const active = useSignal("");
  const shown = columns.some((column) => column.key === active.value) ? active.value : first;
  const current = chosen.value;

  useLayoutEffect(() => {
    if (!current || !container.current) return;
    active.value = current.column;
    // Folded blocks open first, and narrow windows show another lane.
    requestAnimationFrame(() => container.current && alignCounterparts(container.current, current));
  }, [current, active]);

  function choose(place: Place | undefined): boolean {
    const found = place && segmentAt(columns, place);
    if (!place || !found) return false;
    chosen.value = { ...place, link: linkOf(found.block, found.segment) };
    return true;
  }

  function onClick(event: MouseEvent) {
    const element = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-place]") : null;
    if (element && !getSelection()?.toString()) choose(readPlace(element));
  }

  function onKeyDown(event: KeyboardEvent) {
    const { target } = event;
    if (!(target instanceof HTMLElement) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (handleKey(event.key, target)) event.preventDefault();
  }

  /** Returns whether the key does something here. */
  function handleKey(key: string, target: HTMLElement): boolean {
    if (key === "Escape") return clear();
    const index = columns.findIndex((column) => column.key === laneOf(target));
    const column = columns[index];
    if (!column || target.matches("button")) return false;
    if (key === "Enter" || key === " ") return target.dataset.place ? choose(readPlace(target)) : false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (step) return moveTo(nextPlace(column, target, step));
    const side = { ArrowRight: 1, ArrowLeft: -1 }[key];
    return side ? moveTo(placeIn(columns[index + side])) : false;
  }

  function clear(): boolean {
    const isChosen = chosen.value !== undefined;
    chosen.value = undefined;
    return isChosen;
  }

  function moveTo(place: Place | undefined): boolean {
    if (!place || !choose(place)) return false;
    if (container.current) focusPlace(container.current, place);
    return true;
  }

  function nextPlace(column: LaneColumn, target: HTMLElement, step: number): Place | undefined {
    const own = target.dataset.place ? readPlace(target) : undefined;
    return neighbour(column, own ?? (chosen.value?.column === column.key ? chosen.value : undefined), step);
  }

  /** The counterpart of the chosen span in a column, else its first span. */
  function placeIn(column: LaneColumn | undefined): Place | undefined {
    if (!column) return undefined;
    const link = chosen.value?.link;
    const element = link && container.current ? elementAt(container.current, column.key, link) : undefined;
    return element ? readPlace(element) : neighbour(column, undefined, 1);
  }

  return (
    <div class="lanes">
      <fieldset class="lane-tabs">
        <legend class="visually-hidden">Lane</legend>
        {columns.map((column) => (
          <button
            key={column.key}
            type="button"
            aria-pressed={column.key === shown}
            onClick={() => {
              active.value = column.key;
            }}
          >
            {column.title}
          </button>
        ))}
      </fieldset>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the spans inside are buttons; this only handles their events */}
      <div ref={container} class="lane-grid" data-count={columns.length} onClick={onClick} onKeyDown={onKeyDown}>
        {columns.map((column) => (
          <LaneView key={column.key} column={column} chosen={current} isActive={column.key === shown} />
        ))}
      </div>
    </div>
  );
}

function laneOf(element: HTMLElement): string | undefined {
  return element.closest<HTMLElement>("[data-lane]")?.dataset.lane;
}

function readPlace(element: HTMLElement): Place {
  const [column = "", block, segment] = element.dataset.place?.split("/") ?? [];
  return { column, block: Number(block), segment: Number(segment) };
}
