import { useSignal } from "@preact/signals";
import { Duration } from "../components/duration.tsx";
import { formatCount } from "../format.ts";
import { memo } from "../memo.ts";
import type { Block, Change } from "../types.ts";
import { isChoosable, linkOf } from "./lane-columns.ts";
import { SegmentView } from "./segment-view.tsx";

const CHANGES: Record<Exclude<Change, "">, { sign: string; title: string }> = {
  added: { sign: "+", title: "not in the previous request of this conversation" },
  changed: { sign: "~", title: "differs from the previous request of this conversation" },
  removed: { sign: "−", title: "only in the previous request of this conversation" },
  same: { sign: "=", title: "as in the previous request of this conversation" },
};

/** Parts of this length or more are folded if they explain little: unchanged ones, headers, and raw data. */
const FOLDED_CHARS = 240;

function isBackground({ change, segments }: Block): boolean {
  return change === "same" || segments.every(({ kind }) => kind === "plain");
}

interface Props {
  block: Block;
  limit: number;
  column: string;
  index: number;
  /** The chosen link, if it occurs in this block; else "". */
  link: string;
  /** The chosen segment; -1 if it is not in this block. */
  chosen: number;
}

export const BlockView = memo(function BlockView({ block, limit, column, index, link, chosen }: Props) {
  const choice = useSignal<boolean | undefined>(undefined);
  const length = block.segments.reduce((sum, segment) => sum + segment.text.length, 0);
  const isFoldable = length >= FOLDED_CHARS && isBackground(block);
  const isOpen = link !== "" || chosen >= 0 || (choice.value ?? !isFoldable);
  const change = block.change ? CHANGES[block.change] : undefined;
  return (
    <section class="block" data-change={block.change || undefined}>
      <header class="block-head">
        {change && (
          <span class="change" title={change.title}>
            {change.sign} {block.change}
          </span>
        )}
        <h3>
          {isFoldable ? (
            <button
              type="button"
              class="fold"
              aria-expanded={isOpen}
              onClick={() => {
                choice.value = !isOpen;
              }}
            >
              {block.title}
            </button>
          ) : (
            block.title
          )}
        </h3>
        {isFoldable && !isOpen && <span class="detail">{formatCount(length)} characters</span>}
        {block.ms !== null && (
          <span class="detail" title="since the request arrived">
            <Duration ms={block.ms} />
          </span>
        )}
      </header>
      {isOpen && block.segments.length > 0 && (
        <pre class="block-text">
          {block.segments.map((segment, position) => {
            const own = linkOf(block, segment);
            return (
              <SegmentView
                key={position}
                segment={segment}
                limit={limit}
                link={own}
                place={`${column}/${index}/${position}`}
                isChoosable={isChoosable(block, segment)}
                isChosen={position === chosen}
                isLinked={link !== "" && own === link}
              />
            );
          })}
        </pre>
      )}
    </section>
  );
});
