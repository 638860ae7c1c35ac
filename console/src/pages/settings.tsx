import { apiUrl } from "../api.ts";
import { AsyncContent } from "../components/async-content.tsx";
import { Badge } from "../components/badge.tsx";
import { query, setQuery } from "../router.ts";
import { useData } from "../use-data.ts";
import { filterSettings } from "./settings/filter-settings.ts";
import type { SettingList, SettingView } from "./types/upstreams.ts";
import "./pages.css";

/** The effective settings, with their origin. */
export default function SettingsPage() {
  const data = useData<SettingList>(apiUrl("settings"));
  return (
    <div class="page">
      <h1>Settings</h1>
      <AsyncContent data={data}>{(list) => <Settings list={list} />}</AsyncContent>
    </div>
  );
}

function Settings({ list }: { list: SettingList }) {
  const text = query.value.get("q") ?? "";
  const isChangedOnly = query.value.get("changed") === "1";
  const shown = filterSettings(list.settings, text, isChangedOnly);
  const sections = [...Map.groupBy(shown, ({ section }) => section)];
  return (
    <>
      <p>{list.config_path ? <code>{list.config_path}</code> : "There is no settings file."}</p>
      <p class="quiet">{list.reload}</p>
      {list.problems.map((problem) => (
        <p key={problem} class="notice">
          {problem}
        </p>
      ))}
      <form class="controls" role="search" onSubmit={(event) => event.preventDefault()}>
        <label>
          Search{" "}
          <input
            type="search"
            value={text}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
            autocomplete="off"
          />
        </label>
        <label>
          <input
            type="checkbox"
            checked={isChangedOnly}
            onChange={(event) => setQuery({ changed: event.currentTarget.checked ? "1" : "" })}
          />{" "}
          Only settings that are not the default
        </label>
        <span role="status">
          {shown.length} of {list.settings.length}
        </span>
      </form>
      {sections.map(([section, settings]) => (
        <section key={section} aria-label={section || "general"}>
          <h2>{section || "general"}</h2>
          <dl class="settings">
            {settings.map((setting) => (
              <Setting key={setting.key} setting={setting} />
            ))}
          </dl>
        </section>
      ))}
    </>
  );
}

function Setting({ setting }: { setting: SettingView }) {
  return (
    <div>
      <dt>
        <code>{setting.key}</code>
      </dt>
      <dd>
        <code class="value">{setting.is_secret ? "(secret)" : setting.value}</code>{" "}
        <Badge tone={setting.is_default ? "neutral" : "accent"}>{setting.origin}</Badge>
        {setting.description && <p class="quiet">{setting.description}</p>}
      </dd>
    </div>
  );
}
