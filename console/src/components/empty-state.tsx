import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  children?: ComponentChildren;
}

/** Takes the place of content that is missing, with what the user can do about it. */
export function EmptyState({ title, children }: Props) {
  return (
    <div class="empty-state">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
