import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { EmptyState } from "./components/empty-state.tsx";
import { ErrorBoundary } from "./components/error-boundary.tsx";
import { ErrorNotice } from "./components/error-notice.tsx";
import { Loading } from "./components/loading.tsx";
import type { PageProps, Route } from "./routes.ts";

const UNLOADABLE = "This page cannot be loaded: the gateway was changed or stopped. Reload the browser's page.";

interface Props {
  match: { route: Route; id: string } | undefined;
}

/** Loads and shows the page of the address. */
export function PageView({ match }: Props) {
  const loaded = useSignal<{ route: Route; Page: ComponentType<PageProps> } | undefined>(undefined);
  const error = useSignal("");
  const route = match?.route;
  useEffect(() => {
    document.title = route ? `${route.title} · Dragoman` : "Dragoman";
    error.value = "";
    let isWanted = true;
    route?.load().then(
      (module) => {
        if (isWanted) loaded.value = { route, Page: module.default };
      },
      () => {
        if (isWanted) error.value = UNLOADABLE;
      },
    );
    return () => {
      isWanted = false;
    };
  }, [route]);

  if (!match) {
    return (
      <EmptyState title="There is no such page" isPage>
        <p>
          The <a href="/console">traffic</a> lists the exchanges of this gateway.
        </p>
      </EmptyState>
    );
  }
  if (error.value) return <ErrorNotice message={error.value} />;
  if (loaded.value?.route !== match.route) return <Loading />;
  const { Page } = loaded.value;
  return (
    <ErrorBoundary key={`${match.route.name}/${match.id}`}>
      <Page id={match.id} />
    </ErrorBoundary>
  );
}
