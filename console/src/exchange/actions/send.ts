import { apiUrl, request } from "../../api.ts";

export interface Sending {
  path: string;
  /** JSON, which is sent as it is written: parsing changes large numbers. */
  body: string;
  model: string;
  upstream: string;
  /** The exchange whose headers for the upstream server are sent too. */
  like: string;
}

/** Sends a request through the gateway; returns the id of its exchange as soon as the response begins. */
export async function sendAgain({ body, ...order }: Sending): Promise<string> {
  const text = `${JSON.stringify(order).slice(0, -1)},"body":${body}}`;
  const response = await request(apiUrl("send"), { method: "POST", text });
  // The gateway stops the model when its client stops reading; the page shows the response by the exchange's stream.
  void drain(response);
  return response.headers.get("x-request-id") ?? "";
}

async function drain(response: Response): Promise<void> {
  const reader = response.body?.getReader();
  try {
    while (reader && !(await reader.read()).done);
  } catch {
    // The exchange itself shows a response that broke off.
  }
}
