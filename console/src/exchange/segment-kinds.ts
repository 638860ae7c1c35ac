import type { SegmentKind } from "../types.ts";

interface KindLook {
  label: string;
  meaning: string;
}

/** How each kind of text is called; `lanes.css` has its look, which differs by more than its colour. */
export const SEGMENT_KINDS: Record<SegmentKind, KindLook> = {
  text: { label: "text", meaning: "Text of the reply." },
  reasoning: { label: "reasoning", meaning: "What the model wrote before its reply." },
  markup: { label: "markup", meaning: "The notation around a tool call, or control tokens of the model." },
  name: { label: "name", meaning: "The name of a tool that is called, of a model, or of a status." },
  arguments: { label: "arguments", meaning: "The arguments of a tool call." },
  repair: { label: "repair", meaning: "Text that was added or changed to make a tool call valid." },
  broken: { label: "broken", meaning: "A part of a tool call that could not be read." },
  dropped: { label: "dropped", meaning: "Text that was left out of the reply." },
  unread: { label: "unread", meaning: "Text after the end of the reply, which was not read." },
  json: { label: "JSON", meaning: "JSON, as it was sent." },
  role: { label: "role", meaning: "Who wrote the message that follows." },
  plain: { label: "content", meaning: "Content that was passed on." },
};
