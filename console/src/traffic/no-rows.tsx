import { EmptyState } from "../components/empty-state.tsx";
import { Loading } from "../components/loading.tsx";
import { gateway } from "../gateway-state.ts";
import { feed } from "./traffic-feed.ts";

/** Takes the place of an empty list, with a request to try. */
export function NoRows() {
  if (!feed.isLoaded.value) return feed.error.value ? null : <Loading />;
  const state = gateway.value;
  const key = state?.has_keys ? "-H 'authorization: Bearer YOUR-KEY' " : "";
  const body = JSON.stringify({
    model: state?.models[0] ?? "default",
    messages: [{ role: "user", content: "Hello" }],
  });
  return (
    <EmptyState title="No exchanges yet">
      <p>Start an agent on this gateway, and its requests appear here at once:</p>
      <pre class="code">dragoman run claude</pre>
      <p>Or send a request:</p>
      <pre class="code">{`curl ${location.origin}/v1/chat/completions ${key}-H 'content-type: application/json' \\\n  -d '${body}'`}</pre>
    </EmptyState>
  );
}
