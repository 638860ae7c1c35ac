import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { gateway, loadGateway } from "../gateway-state.ts";
import type { Options } from "./playground/apis/api.ts";
import { APIS } from "./playground/apis/index.ts";
import { Beside } from "./playground/beside.tsx";
import { Conversation } from "./playground/conversation.tsx";
import { activity, api, ask, clear, options, shownExchange, stop, turns } from "./playground/session.ts";
import { ToolChoice } from "./playground/tool-choice.tsx";
import "./pages.css";
import "./playground/playground.css";

/** A chat with any model in any API, next to the lanes of its exchanges. */
export default function PlaygroundPage() {
  const models = gateway.value?.models ?? [];
  useEffect(() => void loadGateway(), []);
  useEffect(() => {
    if (models.length > 0 && !models.includes(options.value.model)) change({ model: models[0] ?? "" });
  }, [models]);
  return (
    <div class="playground">
      <section class="chat" aria-label="Chat">
        <h1>Playground</h1>
        <Choices models={models} />
        <Conversation />
        <Composer />
      </section>
      <section class="beside" aria-label="Exchange of the answer">
        <Beside id={shownExchange.value} />
      </section>
    </div>
  );
}

function change(values: Partial<Options>): void {
  options.value = { ...options.value, ...values };
}

function Choices({ models }: { models: string[] }) {
  const { model, system, maxTokens, temperature } = options.value;
  return (
    <div class="choices">
      <label>
        Model{" "}
        <select value={model} onChange={(event) => change({ model: event.currentTarget.value })}>
          {models.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label>
        API{" "}
        <select value={api.value} onChange={(event) => (api.value = event.currentTarget.value as typeof api.value)}>
          {Object.values(APIS).map(({ name, title }) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <ToolChoice />
      <details>
        <summary>More</summary>
        <label>
          System prompt
          <textarea rows={3} value={system} onInput={(event) => change({ system: event.currentTarget.value })} />
        </label>
        <label>
          Maximum tokens of an answer{" "}
          <input
            type="number"
            min={1}
            value={maxTokens}
            onChange={(event) => change({ maxTokens: Math.max(1, event.currentTarget.valueAsNumber || 1024) })}
          />
        </label>
        <label>
          Temperature{" "}
          <input
            type="number"
            min={0}
            max={2}
            step={0.1}
            placeholder="default"
            value={temperature ?? ""}
            onChange={({ currentTarget: { valueAsNumber } }) =>
              change({ temperature: Number.isNaN(valueAsNumber) ? null : valueAsNumber })
            }
          />
        </label>
      </details>
    </div>
  );
}

function Composer() {
  const text = useSignal("");
  const isBusy = activity.value !== "";

  function send(): void {
    const question = text.value.trim();
    if (!question || isBusy || !options.value.model) return;
    text.value = "";
    void ask(question);
  }

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label="Message"
        placeholder="Message (Enter sends, Shift+Enter begins a line)"
        rows={3}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      <div class="controls">
        {isBusy ? (
          <button type="button" onClick={stop}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary" disabled={!options.value.model}>
            Send
          </button>
        )}
        <button type="button" onClick={clear} disabled={turns.value.length === 0}>
          New conversation
        </button>
        <span class="quiet" role="status">
          {{ "": "", answering: "The model answers …", running: "A tool runs …" }[activity.value]}
        </span>
      </div>
    </form>
  );
}
