import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { apiUrl, getText } from "../../api.ts";
import { Dialog } from "../../components/dialog.tsx";
import { errorText } from "../../errors.ts";
import { gateway } from "../../gateway-state.ts";
import type { UpstreamList } from "../../pages/types/upstreams.ts";
import { navigate } from "../../router.ts";
import type { ExchangeView } from "../../types.ts";
import { useData } from "../../use-data.ts";
import { indentJson, readJsonObject } from "./json-text.ts";
import { sendAgain } from "./send.ts";

const PATHS: Record<string, string> = {
  openai_chat: "/v1/chat/completions",
  openai_responses: "/v1/responses",
  anthropic_messages: "/v1/messages",
};

interface Props {
  view: ExchangeView;
  title: string;
  /** The field that has the focus first. */
  first: "body" | "model";
  onClose: () => void;
}

/** Sends the request again: changed, or to another model or upstream. Both exchanges are then shown side by side. */
export function SendDialog({ view, title, first, onClose }: Props) {
  const path = PATHS[view.row.dialect] ?? "/v1/chat/completions";
  const model = useSignal("");
  const upstream = useSignal("");
  const text = useSignal("");
  const isEdited = useRef(false);
  const error = useSignal("");
  const isSending = useSignal(false);
  const { value: upstreams } = useData<UpstreamList>(apiUrl("upstreams"));
  const parsed = readJsonObject(text.value);

  useEffect(() => {
    const controller = new AbortController();
    getText(apiUrl("exchanges", view.id, "body"), controller.signal).then(
      (body) => {
        if (!isEdited.current) text.value = indentJson(body);
      },
      (cause: unknown) => {
        if (!controller.signal.aborted) error.value = errorText(cause);
      },
    );
    return () => controller.abort();
  }, [view.id, text, error]);

  async function send(event: Event) {
    event.preventDefault();
    if (!parsed.value) return;
    isSending.value = true;
    try {
      const id = await sendAgain({
        path,
        body: text.value,
        model: model.value,
        upstream: upstream.value,
        like: view.id,
      });
      onClose();
      navigate(`/exchanges/${view.id}?with=${encodeURIComponent(id)}`);
    } catch (cause) {
      error.value = errorText(cause);
    } finally {
      isSending.value = false;
    }
  }

  return (
    <Dialog title={title} onClose={onClose}>
      <form class="form" onSubmit={send}>
        <div class="form-row">
          <label>
            API
            <select disabled title="The body is in this API. To send it in another one, use Copy as code.">
              <option>{path}</option>
            </select>
          </label>
          <label>
            Model
            <input
              list="send-models"
              autofocus={first === "model"}
              placeholder="as in the body"
              value={model.value}
              onInput={(event) => {
                model.value = event.currentTarget.value;
              }}
            />
          </label>
          <datalist id="send-models">
            {gateway.value?.models.map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
          <datalist id="send-upstreams">
            {upstreams.value?.upstreams.map(({ name }) => (
              <option key={name} value={name} />
            ))}
          </datalist>
          <label>
            Upstream
            <input
              list="send-upstreams"
              placeholder="as the gateway routes"
              value={upstream.value}
              onInput={(event) => {
                upstream.value = event.currentTarget.value;
              }}
            />
          </label>
        </div>
        <label>
          Body
          <textarea
            rows={18}
            spellcheck={false}
            autofocus={first === "body"}
            aria-invalid={text.value !== "" && !parsed.value}
            aria-describedby="send-error"
            value={text.value}
            onInput={(event) => {
              isEdited.current = true;
              text.value = event.currentTarget.value;
            }}
          />
        </label>
        <p id="send-error" class="field-error" role="status">
          {error.value || (text.value && parsed.error)}
        </p>
        <button type="submit" class="primary" disabled={isSending.value || !parsed.value}>
          {isSending.value ? "Waiting for the response …" : "Send"}
        </button>
      </form>
    </Dialog>
  );
}
