import { useSignal } from "@preact/signals";
import { Fragment } from "preact";
import { useEffect } from "preact/hooks";
import { Dialog } from "./components/dialog.tsx";

const KEYS = [
  ["/", "search the list of exchanges"],
  ["↑ ↓ Page Home End", "choose an exchange, or a span of a lane"],
  ["Enter", "open the exchange, or explain the span"],
  ["← →", "go to the same part in the next lane"],
  ["Esc", "end the choice, close a dialog"],
  ["?", "show these keys"],
] as const;

/** Shows the keys of the console on `?`. */
export function Shortcuts() {
  const isOpen = useSignal(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
      if (event.key !== "?" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      isOpen.value = true;
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [isOpen]);
  if (!isOpen.value) return null;
  return (
    <Dialog
      title="Keys"
      onClose={() => {
        isOpen.value = false;
      }}
    >
      <dl class="shortcuts">
        {KEYS.map(([key, effect]) => (
          <Fragment key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{effect}</dd>
          </Fragment>
        ))}
      </dl>
    </Dialog>
  );
}
