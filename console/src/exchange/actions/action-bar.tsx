import { type Signal, useSignal } from "@preact/signals";
import { apiUrl, request } from "../../api.ts";
import { reportError } from "../../errors.ts";
import { href } from "../../router.ts";
import type { ExchangeView } from "../../types.ts";
import { CodeDialog } from "./code-dialog.tsx";
import { saveText } from "./download.ts";
import { type NamedReplay, ReplayDialog } from "./replay-dialog.tsx";
import { SendDialog } from "./send-dialog.tsx";

type OpenDialog = "" | "replay" | "edit" | "send" | "code";

interface Props {
  view: ExchangeView;
  replay: Signal<NamedReplay | undefined>;
}

/** What can be done with an exchange. */
export function ActionBar({ view, replay }: Props) {
  const dialog = useSignal<OpenDialog>("");
  const saved = useSignal("");
  const close = () => {
    dialog.value = "";
  };

  async function saveCase() {
    try {
      const response = await request(apiUrl("exchanges", view.id, "case"), { method: "POST" });
      const named = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "");
      const name = named?.[1] ?? `${view.id}.txt`;
      saveText(name, await response.text());
      saved.value = name;
    } catch (error) {
      reportError(error);
    }
  }

  const { is_running } = view;
  const opener = (name: OpenDialog, title: string, disabled = false) => (
    <button
      type="button"
      disabled={disabled}
      onClick={() => {
        dialog.value = name;
      }}
    >
      {title}
    </button>
  );
  return (
    <div class="actions" role="toolbar" aria-label="Actions">
      {opener("replay", "Replay", is_running)}
      {opener("edit", "Edit and resend")}
      {opener("send", "Send to another model")}
      {opener("code", "Copy as code")}
      <button type="button" disabled={is_running} onClick={saveCase}>
        Save as test case
      </button>
      <span role="status" class="detail">
        {saved.value && `saved ${saved.value}`}
      </span>
      {!is_running && (
        <a class="button" href={apiUrl("exchanges", view.id, "bundle")} download={`${view.id}.zip`}>
          Download bundle
        </a>
      )}
      <a class="button" href={href(`/context/${view.id}`)}>
        Context
      </a>
      {dialog.value === "replay" && <ReplayDialog id={view.id} replay={replay} onClose={close} />}
      {dialog.value === "edit" && <SendDialog view={view} title="Edit and resend" first="body" onClose={close} />}
      {dialog.value === "send" && (
        <SendDialog view={view} title="Send to another model" first="model" onClose={close} />
      )}
      {dialog.value === "code" && <CodeDialog id={view.id} onClose={close} />}
    </div>
  );
}
