/**
 * The path below /console to which a sign-in leads, from the query `next` of its address: never one of another host,
 * of the API or of the sign-in itself.
 */
export function nextPath(query: URLSearchParams, origin: string): string {
  const next = query.get("next") ?? "";
  const address = URL.canParse(next, origin) ? new URL(next, origin) : undefined;
  const [, below] = /^\/console(|\/.*)$/.exec(address?.pathname ?? "") ?? [];
  if (!address || address.origin !== origin || below === undefined) return "/";
  if (/^\/(api|assets|login|logout)(\/|$)/.test(below)) return "/";
  return below + address.search || "/";
}
