import type { ComponentType } from "preact";
import { SignInForm } from "./sign-in-form.tsx";

export interface PageProps {
  /** The last part of the address, such as the id of an exchange; "" if the page has none. */
  id: string;
}

export interface Route {
  /** The first part of the path. */
  name: string;
  title: string;
  /** Whether the navigation lists the page. */
  isListed: boolean;
  load: () => Promise<{ default: ComponentType<PageProps> }>;
}

/** The pages of the console; each is loaded when it is first visited. */
export const ROUTES: Route[] = [
  { name: "", title: "Traffic", isListed: true, load: () => import("./traffic/traffic-page.tsx") },
  { name: "exchanges", title: "Exchange", isListed: false, load: () => import("./exchange/exchange-page.tsx") },
  { name: "context", title: "Context", isListed: false, load: () => import("./pages/context.tsx") },
  { name: "upstreams", title: "Upstreams", isListed: true, load: () => import("./pages/upstreams.tsx") },
  { name: "models", title: "Models", isListed: true, load: () => import("./pages/models.tsx") },
  { name: "reports", title: "Reports", isListed: true, load: () => import("./pages/reports.tsx") },
  { name: "playground", title: "Playground", isListed: true, load: () => import("./pages/playground.tsx") },
  { name: "login", title: "Sign in", isListed: false, load: async () => ({ default: SignInForm }) },
  { name: "settings", title: "Settings", isListed: true, load: () => import("./pages/settings.tsx") },
];

/** The route of a path, and the id in it. */
export function matchRoute(path: string): { route: Route; id: string } | undefined {
  const [name = "", id = "", ...rest] = path.slice(1).split("/");
  const route = rest.length === 0 ? ROUTES.find((candidate) => candidate.name === name) : undefined;
  return route && { route, id: decoded(id) };
}

/** The text of a part of an address; one that is not valid stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
