/** One server-sent event. */
export interface ServerEvent {
  event: string;
  data: string;
}

/** Parses server-sent events that arrive in any pieces. */
export class SseParser {
  #rest = "";

  /** Returns the events that the text completes. */
  feed(text: string): ServerEvent[] {
    const parts = (this.#rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = parts.pop() ?? "";
    return parts.map(parseEvent).filter((event) => event !== undefined);
  }
}

function parseEvent(block: string): ServerEvent | undefined {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (field === "event") event = value ?? "";
    else if (field === "data") data.push(value ?? "");
  }
  return data.length > 0 ? { event, data: data.join("\n") } : undefined;
}

/** Yields the events of a response that is not an EventSource's, such as that of a POST. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const parser = new SseParser();
  // Not all browsers can iterate over a stream.
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield* parser.feed(part.value);
  } finally {
    // Ends the request if the caller wants no more; a stream that failed rejects this too.
    reader.cancel().catch(() => undefined);
  }
}
