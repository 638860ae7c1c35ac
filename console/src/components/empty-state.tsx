import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  /** Whether there is nothing else on the page. */
  isPage?: boolean;
  children?: ComponentChildren;
}

/** Takes the place of content that is missing, with what the user can do about it. */
export function EmptyState({ title, isPage = false, children }: Props) {
  return (
    <div class="empty-state">
      {isPage ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}
