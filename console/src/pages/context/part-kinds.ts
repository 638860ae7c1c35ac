import type { ContextGroup, PartKind } from "../types/context-use.ts";

/** Kinds of parts that charts show as one. */
interface KindGroup {
  name: string;
  kinds: PartKind[];
}

const GROUPS: KindGroup[] = [
  { name: "system prompt", kinds: ["system"] },
  { name: "tools and schema", kinds: ["tool", "schema"] },
  { name: "user", kinds: ["user"] },
  { name: "assistant", kinds: ["assistant"] },
  { name: "reasoning", kinds: ["reasoning"] },
  { name: "tool calls", kinds: ["call"] },
  { name: "tool results", kinds: ["result"] },
  { name: "images and files", kinds: ["image", "document", "audio"] },
  { name: "frame and other", kinds: ["frame", "other"] },
];

const TITLES: Record<PartKind, string> = {
  system: "system prompt",
  tool: "tool",
  schema: "response schema",
  user: "user",
  assistant: "assistant",
  reasoning: "reasoning",
  call: "tool call",
  result: "tool result",
  image: "image",
  document: "document",
  audio: "audio",
  frame: "frame",
  other: "other",
};

/** Returns the name of a kind of part. */
export function kindTitle(kind: PartKind): string {
  return TITLES[kind] ?? kind;
}

/** The tokens of each group, in the order of a prompt; `color` is the number of its colour. */
export function tokensByGroup(groups: ContextGroup[]): { name: string; color: number; value: number }[] {
  return GROUPS.map(({ name, kinds }, color) => {
    const members = groups.filter(({ kind }) => kinds.includes(kind));
    return { name, color, value: members.reduce((sum, { tokens }) => sum + tokens, 0) };
  });
}
