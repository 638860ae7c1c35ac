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

/** The same JSON with each member on a line; numbers and strings stay as they are written, which parsing changes. */
export function indentJson(text: string): string {
  if (!isJson(text)) return text;
  const parts: string[] = [];
  let depth = 0;
  let last = "";
  for (const token of jsonTokens(text)) {
    const isEnd = token === "}" || token === "]";
    if (isEnd) depth--;
    // An empty object or array stays on its line.
    const isOnNewLine = isEnd ? !isStart(last) : isStart(last) || last === ",";
    const space = last === ":" ? " " : "";
    parts.push(isOnNewLine ? `\n${"  ".repeat(depth)}` : space, token);
    if (isStart(token)) depth++;
    last = token;
  }
  return parts.join("");
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function isStart(token: string): boolean {
  return token === "{" || token === "[";
}

/** Yields the tokens of valid JSON without the white space between them. */
function* jsonTokens(text: string): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const end = tokenEnd(text, at);
    const token = text.slice(at, end);
    if (!WHITE_SPACE.test(token)) yield token;
    at = end;
  }
}

const WHITE_SPACE = /^\s/;
/** What ends a number or name. */
const DELIMITER = /[\s{}[\],:"]/g;

function tokenEnd(text: string, start: number): number {
  if (text[start] === '"') return stringEnd(text, start);
  DELIMITER.lastIndex = start;
  const end = DELIMITER.exec(text)?.index ?? text.length;
  return Math.max(end, start + 1);
}

function stringEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

function withLine(text: string, message: string): string {
  const position = /position (\d+)/.exec(message)?.[1];
  if (position === undefined || message.includes("line ")) return message;
  const before = text.slice(0, Number(position)).split("\n");
  return `${message} (line ${before.length} column ${(before.at(-1)?.length ?? 0) + 1})`;
}
