import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { apiUrl, getText } from "../../api.ts";
import { Dialog } from "../../components/dialog.tsx";
import { errorText } from "../../errors.ts";
import type { CodeLanguage } from "../../types.ts";

const LANGUAGES: Record<CodeLanguage, string> = {
  curl: "curl",
  "python-openai": "Python, openai",
  "python-anthropic": "Python, anthropic",
  typescript: "TypeScript",
};

interface Props {
  id: string;
  onClose: () => void;
}

/** Shows the request as a command or program, to copy. */
export function CodeDialog({ id, onClose }: Props) {
  const language = useSignal<CodeLanguage>("curl");
  const code = useSignal("");
  const error = useSignal("");
  const isCopied = useSignal(false);
  const chosen = language.value;

  useEffect(() => {
    const controller = new AbortController();
    isCopied.value = false;
    code.value = "";
    getText(`${apiUrl("exchanges", id, "code")}?language=${chosen}`, controller.signal).then(
      (text) => {
        code.value = text;
        error.value = "";
      },
      (cause: unknown) => {
        if (!controller.signal.aborted) error.value = errorText(cause);
      },
    );
    return () => controller.abort();
  }, [id, chosen, code, error, isCopied]);

  async function copy() {
    try {
      await navigator.clipboard.writeText(code.value);
      isCopied.value = true;
    } catch {
      error.value = "The browser does not allow to copy here. Select the text, and copy it.";
    }
  }

  return (
    <Dialog title="Copy as code" onClose={onClose}>
      <div class="form">
        <div class="form-row">
          <label>
            Language
            <select
              value={chosen}
              onChange={(event) => {
                language.value = event.currentTarget.value as CodeLanguage;
              }}
            >
              {(Object.keys(LANGUAGES) as CodeLanguage[]).map((name) => (
                <option key={name} value={name}>
                  {LANGUAGES[name]}
                </option>
              ))}
            </select>
          </label>
          <button type="button" class="primary" disabled={!code.value} onClick={copy}>
            {isCopied.value ? "Copied" : "Copy"}
          </button>
        </div>
        {error.value && (
          <p class="field-error" role="alert">
            {error.value}
          </p>
        )}
        <pre class="code">{code.value}</pre>
      </div>
    </Dialog>
  );
}
