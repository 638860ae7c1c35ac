const MEANINGS: Record<string, string> = {
  values: "the client's request, as it was parsed",
  request: "what a backend was asked",
  sent: "the bytes for the model",
  "events of a call": "what the model's output was read as",
  events: "what the gateway made of it",
  reply: "the bytes for the client",
};

/** What a stage of a replay compares: a name such as `sent 1, 2`, with the numbers of the call and of its request. */
export function stageMeaning(name: string): string {
  const [kind = "", number] = name.split(" ");
  return MEANINGS[kind === "events" && number ? "events of a call" : kind] ?? "";
}
