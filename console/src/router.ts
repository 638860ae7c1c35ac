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
    const address = isPlain && !event.defaultPrevented && link ? insideAddress(link) : undefined;
    if (!address) return;
    event.preventDefault();
    navigate(address.pathname.slice(BASE.length) + address.search || "/");
  });
}

/** The address of a link to a page of the console; the links of charts are elements of SVG, which lack a pathname. */
function insideAddress(link: Element): URL | undefined {
  const target = link.getAttribute("href");
  if (target === null || target.startsWith("#") || link.hasAttribute("target") || link.hasAttribute("download"))
    return undefined;
  const address = new URL(target, document.baseURI);
  const isPage = address.pathname === BASE || address.pathname.startsWith(`${BASE}/`);
  const isData = address.pathname.startsWith(`${BASE}/api/`);
  return address.origin === location.origin && isPage && !isData ? address : undefined;
}

function update(): void {
  path.value = currentPath();
  query.value = new URLSearchParams(location.search);
  window.scrollTo(0, 0);
  requestAnimationFrame(keepFocus);
}

/** The focus of an element that the old page had is lost: the keyboard would begin at the top of the document again. */
function keepFocus(): void {
  const { activeElement } = document;
  if (!activeElement || activeElement === document.body) {
    document.getElementById("content")?.focus({ preventScroll: true });
  }
}

function currentPath(): string {
  const below = location.pathname.slice(BASE.length);
  return below.replace(/\/+$/, "") || "/";
}
