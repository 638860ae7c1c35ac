import type { ComponentChildren } from "preact";

export type Tone = "neutral" | "good" | "warning" | "bad" | "accent";

interface Props {
  tone?: Tone;
  title?: string | undefined;
  children: ComponentChildren;
}

/** A short state in a frame; its text states what its colour only emphasizes. */
export function Badge({ tone = "neutral", title, children }: Props) {
  return (
    <span class={`badge badge-${tone}`} title={title}>
      {children}
    </span>
  );
}
