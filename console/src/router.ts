import { signal } from "@preact/signals";

const BASE = "/console";

/** The path below /console, without query; "/" is the list of the traffic. */
export const path = signal(currentPath());
/** The query of the address. */
export const query = signal(new URLSearchParams(location.search));

/** The address of a path below /console. */
export function href(to: string): string {
  return to === "/" ? BASE : BASE + to;
}

export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, "", href(to));
  else history.pushState(null, "", href(to));
  update();
}

/** Changes the query of the current page without a step in the history. */
export function setQuery(values: Record<string, string>): void {
  const next = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString();
  history.replaceState(null, "", location.pathname + (text && `?${text}`));
  query.value = next;
}

/** Follows links inside the console without loading the page again. */
export function startRouter(): void {
  window.addEventListener("popstate", update);
  document.addEventListener("click", (event) => {
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!isPlain || event.defaultPrevented || !link || !isInside(link)) return;
    event.preventDefault();
    navigate(link.pathname.slice(BASE.length) + link.search || "/");
  });
}

function isInside(link: HTMLAnchorElement): boolean {
  const isPage = link.pathname === BASE || link.pathname.startsWith(`${BASE}/`);
  const isData = link.pathname.startsWith(`${BASE}/api/`);
  return link.origin === location.origin && isPage && !isData && !link.target && !link.hasAttribute("download");
}

function update(): void {
  path.value = currentPath();
  query.value = new URLSearchParams(location.search);
  window.scrollTo(0, 0);
}

function currentPath(): string {
  const below = location.pathname.slice(BASE.length);
  return below.replace(/\/+$/, "") || "/";
}
