/** The result of reading the text of a JSON object. */
export type JsonText = { value: Record<string, unknown>; error: "" } | { value: undefined; error: string };

/** Reads an object; the error names the line, as editors do. */
export function readJsonObject(text: string): JsonText {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return { value: value as Record<string, unknown>, error: "" };
    }
    return { value: undefined, error: "Expected an object: { … }" };
  } catch (error) {
    return { value: undefined, error: withLine(text, error instanceof Error ? error.message : "invalid JSON") };
  }
}

function withLine(text: string, message: string): string {
  const position = /position (\d+)/.exec(message)?.[1];
  if (position === undefined || message.includes("line ")) return message;
  const before = text.slice(0, Number(position)).split("\n");
  return `${message} (line ${before.length} column ${(before.at(-1)?.length ?? 0) + 1})`;
}
