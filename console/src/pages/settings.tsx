import { apiUrl } from "../api.ts";
import { AsyncContent } from "../components/async-content.tsx";
import { Badge } from "../components/badge.tsx";
import { Prose } from "../components/prose.tsx";
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
      <SettingsFile list={list} />
      {list.config_path && <p class="quiet">{list.reload}</p>}
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
            class="setting-search"
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

function SettingsFile({ list }: { list: SettingList }) {
  if (list.config_path || !list.default_path) {
    return <p>{list.config_path ? <code>{list.config_path}</code> : "There is no settings file."}</p>;
  }
  return (
    <>
      <p>
        There is no settings file. The gateway reads <code>{list.default_path}</code> at its next start if it exists.
      </p>
      {list.file_content && (
        <details>
          <summary>Content for it: the settings in force that are not the default</summary>
          <pre class="code">{list.file_content}</pre>
        </details>
      )}
    </>
  );
}

const SHOWN_CHOICES = 6;

function Choices({ values }: { values: string[] }) {
  const list = values.map((value) => <code key={value}>{JSON.stringify(value)} </code>);
  if (values.length <= SHOWN_CHOICES) return <p class="quiet">Allowed: {list}</p>;
  return (
    <details class="quiet">
      <summary>{values.length} allowed values</summary>
      {list}
    </details>
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
        {setting.description && (
          <p class="quiet">
            <Prose text={setting.description} />
          </p>
        )}
        {setting.choices.length > 0 && <Choices values={setting.choices} />}
      </dd>
    </div>
  );
}
