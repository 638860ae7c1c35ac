/** What the modules of the page use of a browser: streams of events and responses that a test controls. */
export class FakeSource extends EventTarget {
  static readonly opened: FakeSource[] = [];
  onopen?: () => void;
  onerror?: () => void;
  readonly url: string;

  constructor(url: string) {
    super();
    this.url = url;
    FakeSource.opened.push(this);
  }

  close(): void {}

  send(name: string, value: unknown): void {
    this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(value) }));
  }
}

/** The responses, or their JSON, by path and query; a missing one is 404. Numbers are the status of an error. */
export const responses = new Map<string, unknown>();
/** The paths of the requests. */
export const asked: string[] = [];

export const fakeDocument = Object.assign(new EventTarget(), { hidden: false });
export const fakeLocation = { pathname: "/console", search: "?a=1", assign: (to: string) => asked.push(`page ${to}`) };

Object.assign(globalThis, {
  EventSource: FakeSource,
  document: fakeDocument,
  location: fakeLocation,
  window: globalThis,
  fetch: async (url: string) => {
    asked.push(url);
    const found = responses.get(url) ?? 404;
    if (found instanceof Response) return found;
    return typeof found === "number" ? new Response("{}", { status: found }) : Response.json(found);
  },
});

/** Waits until everything that needs no more events is done. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(() => setImmediate(() => setImmediate(resolve))));
}
