import { useSignal } from "@preact/signals";
import { Dialog } from "./components/dialog.tsx";
import { switchCapture } from "./gateway-state.ts";
import { feed } from "./traffic/traffic-feed.ts";
import type { CaptureState } from "./types.ts";

const STATES: Record<CaptureState["mode"], { label: string; title: string }> = {
  off: { label: "Capture off", title: "Exchanges are listed without their content. Switch on to keep it in memory." },
  memory: {
    label: "Capture in memory",
    title: "The content of the newest 200 exchanges is kept until the gateway ends. Switch off to forget it.",
  },
  disk: { label: "Capture on disk", title: "The setting capture.dir keeps the content of exchanges in files." },
};

/** Shows whether the content of exchanges is kept; captures in memory can be switched. */
export function CaptureSwitch({ capture }: { capture: CaptureState }) {
  const isAsking = useSignal(false);
  const { label, title } = STATES[capture.mode];
  if (capture.mode === "disk") {
    return (
      <span class="capture-switch" data-capture={capture.mode} title={title}>
        {label}
      </span>
    );
  }
  return (
    <>
      <button
        type="button"
        role="switch"
        aria-checked={capture.mode === "memory"}
        class="capture-switch"
        data-capture={capture.mode}
        title={title}
        onClick={() => {
          if (capture.mode === "memory" && feed.mayHaveCaptures) isAsking.value = true;
          else void switchCapture(capture.mode === "off");
        }}
      >
        {label}
      </button>
      {isAsking.value && (
        <ForgetDialog
          onClose={() => {
            isAsking.value = false;
          }}
        />
      )}
    </>
  );
}

function ForgetDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Delete the captures?" onClose={onClose}>
      <div class="form">
        <p>
          When captures are switched off, the content that is kept in memory is deleted. The list of exchanges stays.
        </p>
        <div class="form-row">
          <button
            type="button"
            class="primary"
            onClick={() => {
              onClose();
              void switchCapture(false);
            }}
          >
            Switch off and delete
          </button>
          <button type="button" autofocus onClick={onClose}>
            Keep capturing
          </button>
        </div>
      </div>
    </Dialog>
  );
}
