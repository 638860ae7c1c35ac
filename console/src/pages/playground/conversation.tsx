import { useEffect, useRef } from "preact/hooks";
import { Badge } from "../../components/badge.tsx";
import { indentJson } from "../../exchange/actions/json-text.ts";
import { formatExact } from "../numbers.ts";
import { TextFrame } from "../text-frame.tsx";
import type { Answer, ToolCall, Turn } from "./apis/api.ts";
import { APIS } from "./apis/index.ts";
import { activity, askAgain, runCalls, shownExchange, turns, waitingCalls } from "./session.ts";

/** The questions and answers. */
export function Conversation() {
  const frame = useRef<HTMLElement>(null);
  const isAtEnd = useRef(true);
  const shown = turns.value;
  const isAsked = shown.at(-2)?.kind === "question" && activity.value === "answering";
  // New text stays in sight, unless the user has scrolled up since the question.
  useEffect(() => {
    if (isAsked) isAtEnd.current = true;
  }, [isAsked]);
  useEffect(() => {
    const element = frame.current;
    if (element && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [shown]);
  return (
    <section
      class="conversation"
      aria-label="Conversation"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a frame that scrolls must be reachable by keyboard
      tabIndex={0}
      ref={frame}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < 40;
      }}
    >
      {shown.length === 0 && <p class="quiet">Ask the model something.</p>}
      {shown.map((turn, index) => (
        <TurnView key={index} turn={turn} isLast={index === shown.length - 1} />
      ))}
    </section>
  );
}

function TurnView({ turn, isLast }: { turn: Turn; isLast: boolean }) {
  if (turn.kind === "answer") return <AnswerView answer={turn} isLast={isLast} />;
  return (
    <article class="turn question" aria-label="You">
      <h3>You</h3>
      <p class="text">{turn.text}</p>
    </article>
  );
}

function AnswerView({ answer, isLast }: { answer: Answer; isLast: boolean }) {
  const isRunning = isLast && activity.value === "answering";
  const isIdle = isLast && activity.value === "";
  const waiting = waitingCalls(answer);
  return (
    <article class="turn answer" aria-label="Model" aria-busy={isRunning}>
      <h3>
        Model <span class="quiet">{APIS[answer.api].title}</span>
      </h3>
      {answer.reasoning && (
        <details open={isRunning && !answer.text}>
          <summary>Reasoning</summary>
          <p class="text quiet">{answer.reasoning}</p>
        </details>
      )}
      {answer.text && <p class="text">{answer.text}</p>}
      {answer.calls.map((call, index) => (
        <CallView key={call.id || index} call={call} canRun={isIdle && waiting.includes(call)} />
      ))}
      {isIdle && waiting.length > 1 && (
        <div class="controls">
          <button type="button" onClick={() => runCalls(waiting)}>
            Run all {waiting.length} calls
          </button>
        </div>
      )}
      {answer.error && <p class="problem">{answer.error}</p>}
      <footer>
        <span class="quiet">{describe(answer, isRunning)}</span>
        {answer.exchange && (
          <button
            type="button"
            aria-pressed={shownExchange.value === answer.exchange}
            onClick={() => (shownExchange.value = answer.exchange)}
          >
            Show exchange
          </button>
        )}
        {isIdle && (
          <button type="button" onClick={askAgain}>
            Ask again
          </button>
        )}
      </footer>
    </article>
  );
}

function describe(answer: Answer, isRunning: boolean): string {
  const { usage, finish } = answer;
  if (isRunning) return "…";
  const tokens =
    usage && `${formatExact(usage.input)} tokens in, ${formatExact(usage.cached)} cached, ${usage.output} out`;
  return [finish, tokens].filter(Boolean).join(" · ");
}

function CallView({ call, canRun }: { call: ToolCall; canRun: boolean }) {
  const { result } = call;
  return (
    <div class="call">
      <div class="call-head">
        <Badge tone="accent">call</Badge> <code>{call.name}</code>
        {canRun && (
          <button type="button" aria-label={`Run ${call.name}`} onClick={() => runCalls([call])}>
            Run
          </button>
        )}
      </div>
      <TextFrame label={`Arguments of ${call.name}`} text={indentJson(call.arguments)} />
      {result && (
        <>
          <Badge tone={result.isError ? "bad" : "good"}>{result.isError ? "error" : "result"}</Badge>
          {result.isCut && <Badge tone="warning">cut: the tool returned more</Badge>}
          <TextFrame label={`Result of ${call.name}`} text={result.text} />
          {result.images.map((url) => (
            <img key={url} src={url} alt={`In the result of ${call.name}`} />
          ))}
        </>
      )}
    </div>
  );
}
