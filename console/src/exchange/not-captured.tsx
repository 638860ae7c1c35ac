import { EmptyState } from "../components/empty-state.tsx";
import { gateway, switchCapture } from "../gateway-state.ts";
import { href } from "../router.ts";
import { feed } from "../traffic/traffic-feed.ts";
import type { ExchangeView } from "../types.ts";
import { DiagnosisView } from "./diagnosis-view.tsx";
import { NoteView } from "./note-view.tsx";

/** Explains why the content of an exchange is not shown, and offers to capture the next ones. */
export function NotCaptured({ view: { id, diagnosis, notes } }: { view: ExchangeView }) {
  const isDeleted = feed.wasCaptured(id);
  const mode = gateway.value?.capture.mode ?? "off";
  return (
    <EmptyState title={`The content of this exchange is not captured${isDeleted ? " any more" : ""}`}>
      {diagnosis && <DiagnosisView diagnosis={diagnosis} />}
      <p>
        {isDeleted && "It was deleted: captures were switched off, or newer ones took its place. "}
        The list keeps names, numbers and times only. What the client, the gateway and the model wrote is kept if it is
        captured while the exchange runs.
      </p>
      {mode === "off" ? (
        <>
          <p>
            Captures in memory keep the newest 200 exchanges until the gateway ends, with secrets redacted. Then send
            the request again.
          </p>
          <button type="button" class="primary" onClick={() => switchCapture(true)}>
            Capture the next exchanges
          </button>
        </>
      ) : (
        <p>
          Captures are on now ({mode}). Send the request again, and open the new exchange in the{" "}
          <a href={href("/")}>list</a>.
        </p>
      )}
      {notes.length > 0 && <h3>Warnings</h3>}
      {notes.map((note) => (
        <NoteView key={note.message} note={note} />
      ))}
    </EmptyState>
  );
}
