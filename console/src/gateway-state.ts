import { signal } from "@preact/signals";
import { apiUrl, getJson, sendJson } from "./api.ts";
import { reportError } from "./errors.ts";
import type { CaptureState, GatewayState } from "./types.ts";

/** The state of the gateway; undefined until it was fetched. */
export const gateway = signal<GatewayState | undefined>(undefined);

export async function loadGateway(): Promise<void> {
  try {
    gateway.value = await getJson<GatewayState>(apiUrl("state"));
  } catch (error) {
    reportError(error);
  }
}

/** Ends the session of this browser, and loads the page anew, so that nothing that was shown stays in memory. */
export async function signOut(): Promise<void> {
  try {
    await sendJson("POST", "/console/logout");
    location.assign("/console/login");
  } catch (error) {
    reportError(error);
  }
}

/** How often captures were switched off: what a page shows of them is then fetched again, and so forgotten. */
export const forgotten = signal(0);

/** Switches the captures in memory. */
export async function switchCapture(on: boolean): Promise<void> {
  try {
    const capture = await sendJson<CaptureState>("PUT", apiUrl("capture"), { on });
    if (gateway.value) gateway.value = { ...gateway.value, capture };
    if (!on) forgotten.value++;
  } catch (error) {
    reportError(error);
  }
}
