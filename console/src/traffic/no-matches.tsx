import { EmptyState } from "../components/empty-state.tsx";
import { setQuery } from "../router.ts";
import { feed } from "./traffic-feed.ts";

const NO_FILTER = { search: "", agent: "", model: "", outcome: "", failed: "" };

/** Takes the place of the list if no loaded row passes the filter. */
export function NoMatches() {
  return (
    <EmptyState title="No exchange matches the filter">
      <button type="button" onClick={() => setQuery(NO_FILTER)}>
        Clear the filter
      </button>
      {feed.hasMore.value && (
        <button type="button" onClick={() => feed.fetchOlder()}>
          Load older exchanges
        </button>
      )}
    </EmptyState>
  );
}
