import { useEffect, useRef } from "preact/hooks";
import { memo } from "../memo.ts";
import { setQuery } from "../router.ts";
import { OUTCOMES } from "./call-badge.tsx";
import type { RowFilter } from "./row-filter.ts";

interface Props {
  agents: readonly string[];
  models: readonly string[];
  filter: RowFilter;
}

/** The filter is part of the address, so that going back and links keep it. */
export const FilterBar = memo(function FilterBar({ agents, models, filter }: Props) {
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focusSearch = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      search.current?.focus();
    };
    document.addEventListener("keydown", focusSearch);
    return () => document.removeEventListener("keydown", focusSearch);
  }, []);

  return (
    <search class="filter-bar">
      <input
        ref={search}
        type="search"
        class="filter-search"
        data-testid="filter"
        placeholder="Search: tool, agent, model, error, id …  ( / )"
        aria-label="Search exchanges"
        value={filter.search}
        onInput={(event) => setQuery({ search: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      <Choice label="Agent" name="agent" value={filter.agent} values={agents} />
      <Choice label="Model" name="model" value={filter.model} values={models} />
      <Choice label="Calls" name="outcome" value={filter.outcome} values={Object.keys(OUTCOMES)} />
      <label class="filter-failed">
        <input
          type="checkbox"
          checked={filter.isFailedOnly}
          onChange={(event) => setQuery({ failed: event.currentTarget.checked ? "1" : "" })}
        />
        Failed only
      </label>
    </search>
  );
});

interface ChoiceProps {
  label: string;
  name: string;
  value: string;
  values: readonly string[];
}

function Choice({ label, name, value, values }: ChoiceProps) {
  const known = value && !values.includes(value) ? [value, ...values] : values;
  return (
    <label>
      <span class="visually-hidden">{label}</span>
      <select value={value} onChange={(event) => setQuery({ [name]: event.currentTarget.value })}>
        <option value="">{label}: all</option>
        {known.map((choice) => (
          <option key={choice} value={choice}>
            {choice}
          </option>
        ))}
      </select>
    </label>
  );
}
