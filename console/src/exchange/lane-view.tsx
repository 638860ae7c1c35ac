import { useLayoutEffect, useRef } from "preact/hooks";
import type { Block, LaneName } from "../types.ts";
import { BlockView } from "./block-view.tsx";
import { type Chosen, type LaneColumn, linkOf } from "./lane-columns.ts";

interface Props {
  column: LaneColumn;
  chosen: Chosen | undefined;
  isActive: boolean;
}

const NEAR_END_PX = 24;

/** What was sent is long, and little of it explains a reply. */
const SHOWN_CHARS: Record<LaneName, number> = { client: 1500, sent: 1500, model: 20_000, reply: 20_000 };

export function LaneView({ column, chosen, isActive }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const { key, title, summary, lane, remark, isLive } = column;

  // While the exchange runs, what is appended stays visible, unless the user scrolled up.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element && isLive && isAtEnd.current && !chosen) element.scrollTop = element.scrollHeight;
  }, [lane, isLive, chosen]);

  return (
    <section class="lane" data-lane={key} data-active={isActive} aria-label={title}>
      <header class="lane-head">
        <h2>{title}</h2>
        <p class="detail">{summary}</p>
      </header>
      <div
        ref={scroller}
        class="lane-scroller"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: arrows move between the spans of a lane
        tabIndex={0}
        role="group"
        aria-label={`${title}: spans`}
        onScroll={({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => {
          isAtEnd.current = scrollTop + clientHeight > scrollHeight - NEAR_END_PX;
        }}
      >
        {remark && <p class="lane-remark">{remark}</p>}
        {lane.blocks.length === 0 && <p class="absent lane-remark">nothing</p>}
        {lane.blocks.map((block, index) => (
          <BlockView
            key={index}
            block={block}
            limit={SHOWN_CHARS[lane.name]}
            column={key}
            index={index}
            link={chosen && hasLink(block, chosen.link) ? chosen.link : ""}
            chosen={chosen?.column === key && chosen.block === index ? chosen.segment : -1}
          />
        ))}
      </div>
    </section>
  );
}

function hasLink(block: Block, link: string): boolean {
  return link !== "" && block.segments.some((segment) => linkOf(block, segment) === link);
}
