import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { navigate } from "../router.ts";
import type { TrafficRow } from "../types.ts";
import { indexOf, useKeptPosition } from "./kept-position.ts";
import { useRowHeight } from "./row-height.ts";
import { rowElementId, TrafficRowView } from "./traffic-row.tsx";
import { scrollToRow, virtualWindow } from "./virtual-window.ts";

const COLUMNS = [
  { title: "Time", isNumber: false },
  { title: "Agent", isNumber: false },
  { title: "Model → upstream", isNumber: false },
  { title: "Tool mode", isNumber: false },
  { title: "Tokens in → out", isNumber: false },
  { title: "First byte", isNumber: true },
  { title: "Total", isNumber: true },
  { title: "Tool calls", isNumber: false },
  { title: "Result", isNumber: false },
];

/** The exchange that was opened last, to which going back returns; "" after a reload. */
let openedId = "";

function open(id: string) {
  openedId = id;
  navigate(`/exchanges/${id}`);
}

interface Props {
  rows: readonly TrafficRow[];
  onEnd: () => void;
}

/** The rows that are visible, of any number; arrows choose one, Enter opens it. */
export function RowList({ rows, onEnd }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const rowHeight = useRowHeight();
  const scrollTop = useSignal(0);
  const viewHeight = useSignal(600);
  const activeId = useSignal("");

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const observer = new ResizeObserver(() => {
      viewHeight.value = element.clientHeight;
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [viewHeight]);
  useKeptPosition({ scroller, rows, rowHeight, scrollTop: scrollTop.value, activeId: activeId.value });

  useEffect(() => {
    const index = indexOf(rows, openedId);
    openedId = "";
    if (index < 0) return;
    choose(index);
    scroller.current?.focus({ preventScroll: true });
  }, []);

  const visible = virtualWindow(rows.length, rowHeight, scrollTop.value, viewHeight.value);
  const isAtEnd = visible.end === rows.length;
  useEffect(() => {
    if (isAtEnd) onEnd();
  }, [isAtEnd, rows.length]);

  function choose(index: number) {
    const row = rows[Math.max(0, Math.min(index, rows.length - 1))];
    const element = scroller.current;
    if (!row || !element) return;
    activeId.value = row.id;
    element.scrollTop = scrollToRow(rows.indexOf(row), rowHeight, element.scrollTop, element.clientHeight - rowHeight);
  }

  /** A focus on the list would otherwise show no row. */
  function chooseFirst({ currentTarget }: { currentTarget: Element }) {
    if (!currentTarget.matches(":focus-visible") || rows.some((row) => row.id === activeId.value)) return;
    activeId.value = rows[Math.ceil(scrollTop.value / rowHeight)]?.id ?? "";
  }

  function onKeyDown(event: KeyboardEvent) {
    const index = indexOf(rows, activeId.value);
    const page = Math.max(1, Math.floor(viewHeight.value / rowHeight) - 2);
    const target = { ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page };
    const ends = { Home: 0, End: rows.length - 1 };
    const next = { ...target, ...ends }[event.key as keyof typeof target | keyof typeof ends];
    if (next !== undefined) choose(next);
    else if (event.key === "Enter" && index >= 0) open(activeId.value);
    else if (event.key === "Escape") activeId.value = "";
    else return;
    event.preventDefault();
  }

  function onClick(event: MouseEvent) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-id]") : null;
    if (!row || getSelection()?.toString()) return;
    // The router would follow the link of the row too.
    event.preventDefault();
    open(row.dataset.id ?? "");
  }

  const shown = rows.slice(visible.first, visible.end);
  const active = shown.find((row) => row.id === activeId.value);
  return (
    <div
      ref={scroller}
      role="grid"
      class="row-list"
      aria-label="Exchanges"
      aria-rowcount={rows.length + 1}
      aria-activedescendant={active && rowElementId(active)}
      tabIndex={0}
      onFocus={chooseFirst}
      onKeyDown={onKeyDown}
      onClick={onClick}
      onScroll={(event) => {
        scrollTop.value = event.currentTarget.scrollTop;
      }}
    >
      <div role="row" class="traffic-row traffic-head" aria-rowindex={1}>
        {COLUMNS.map(({ title, isNumber }) => (
          <span key={title} role="columnheader" class={isNumber ? "cell-duration" : ""}>
            {title}
          </span>
        ))}
      </div>
      <div role="rowgroup" class="row-canvas" style={{ height: `${visible.height}px` }}>
        <div role="presentation" class="row-window" style={{ transform: `translateY(${visible.offset}px)` }}>
          {shown.map((row, index) => (
            <TrafficRowView key={row.id} row={row} index={visible.first + index} isActive={row.id === activeId.value} />
          ))}
        </div>
      </div>
    </div>
  );
}
