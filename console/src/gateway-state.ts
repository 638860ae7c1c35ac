import { signal } from "@preact/signals";
import { apiUrl, getJson, openSignIn, sendJson } from "./api.ts";
import { reportError } from "./errors.ts";
import type { CaptureState, GatewayState } from "./types.ts";

/** The state of the gateway; undefined until it was fetched. */
export const gateway = signal<GatewayState | undefined>(undefined);

/** How often captures were deleted: what a page shows of them is then fetched again, and so forgotten. */
export const forgotten = signal(0);

/** Fetches the state. Captures in memory are deleted by another page, or by the end of the gateway. */
export async function refreshGateway(): Promise<void> {
  const before = gateway.value?.capture.mode;
  gateway.value = await getJson<GatewayState>(apiUrl("state"));
  if (before === "memory" && gateway.value.capture.mode !== "memory") forgotten.value++;
}

export async function loadGateway(): Promise<void> {
  try {
    await refreshGateway();
  } catch (error) {
    reportError(error);
  }
}

/** What a tab reports to the other tabs of this browser. */
type TabMessage = "captures on" | "captures off" | "signed out";
let tabs: BroadcastChannel | undefined;

/** Begins to do what the other tabs of this browser do. */
export function followTabs(): void {
  tabs = new BroadcastChannel("dragoman-console");
  tabs.onmessage = ({ data }: MessageEvent<TabMessage>) => {
    if (data === "signed out") return openSignIn({ returns: false });
    if (data === "captures off") forgotten.value++;
    void loadGateway();
  };
}

function report(message: TabMessage): void {
  tabs?.postMessage(message);
}

/** Ends the session of this browser. */
export async function signOut(): Promise<void> {
  try {
    await sendJson("POST", "/console/logout");
    report("signed out");
    openSignIn({ returns: false });
  } catch (error) {
    reportError(error);
  }
}

/** Switches the captures in memory. */
export async function switchCapture(on: boolean): Promise<void> {
  try {
    const capture = await sendJson<CaptureState>("PUT", apiUrl("capture"), { on });
    if (gateway.value) gateway.value = { ...gateway.value, capture };
    if (!on) forgotten.value++;
    report(on ? "captures on" : "captures off");
  } catch (error) {
    reportError(error);
  }
}
