import { apiUrl } from "../../api.ts";
import { AsyncContent } from "../../components/async-content.tsx";
import { useData } from "../../use-data.ts";
import type { PlaygroundTool, PlaygroundToolsView } from "../types/playground.ts";
import { isAutomatic, options } from "./session.ts";

/** Which tools the model gets. */
export function ToolChoice() {
  const data = useData<PlaygroundToolsView>(apiUrl("playground", "tools"));
  return (
    <details class="tools">
      <summary>Tools ({options.value.tools.length} offered)</summary>
      <AsyncContent data={data}>
        {({ tools, problems }) => (
          <>
            <label>
              <input
                type="checkbox"
                checked={isAutomatic.value}
                onChange={(event) => (isAutomatic.value = event.currentTarget.checked)}
              />{" "}
              Run calls without a click
            </label>
            {[...Map.groupBy(tools, ({ server }) => server)].map(([server, group]) => (
              <ToolGroup key={server} title={server ? `MCP server ${server}` : "Demonstration"} tools={group} />
            ))}
            {problems.map(({ server, message }) => (
              <p key={server} class="notice">
                {server}: {message}
              </p>
            ))}
          </>
        )}
      </AsyncContent>
    </details>
  );
}

function ToolGroup({ title, tools }: { title: string; tools: PlaygroundTool[] }) {
  const offered = options.value.tools;
  const isOffered = (tool: PlaygroundTool) => offered.some(({ name }) => name === tool.name);
  const isAll = tools.every(isOffered);
  return (
    <fieldset>
      <legend>
        <label>
          <input type="checkbox" checked={isAll} onChange={() => offer(tools, !isAll)} /> {title}
        </label>
      </legend>
      {tools.map((tool) => (
        <label key={tool.name} title={tool.description}>
          <input type="checkbox" checked={isOffered(tool)} onChange={() => offer([tool], !isOffered(tool))} />{" "}
          <code>{tool.signature}</code>
        </label>
      ))}
    </fieldset>
  );
}

function offer(tools: PlaygroundTool[], isOffered: boolean): void {
  const others = options.value.tools.filter(({ name }) => !tools.some((tool) => tool.name === name));
  const added = tools.map(({ name, description, parameters }) => ({ name, description, parameters }));
  options.value = { ...options.value, tools: isOffered ? [...others, ...added] : others };
}
