import { Component, type ComponentChildren } from "preact";
import { ErrorNotice } from "./error-notice.tsx";

interface State {
  message: string;
}

/** Shows an error in the place of content that fails to render, so that the rest of the page stays. */
export class ErrorBoundary extends Component<{ children: ComponentChildren }, State> {
  override state: State = { message: "" };

  static override getDerivedStateFromError(error: unknown): State {
    return { message: error instanceof Error ? error.message : String(error) };
  }

  override render({ children }: { children: ComponentChildren }, { message }: State) {
    if (!message) return children;
    return (
      <ErrorNotice
        message={`This part of the page failed: ${message}. Please report it.`}
        onRetry={() => this.setState({ message: "" })}
      />
    );
  }
}
