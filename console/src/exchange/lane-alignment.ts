import type { Chosen, Place } from "./lane-columns.ts";

/** Space above a counterpart that cannot be as low as the chosen span. */
const MARGIN_PX = 12;

/** Scrolls each lane so that its first counterpart is at the height of the chosen span. */
export function alignCounterparts(container: HTMLElement, chosen: Chosen): void {
  const element = placeElement(container, chosen);
  if (!element) return;
  scrollIntoLane(element);
  if (!chosen.link) return;
  const top = element.getBoundingClientRect().top;
  for (const scroller of container.querySelectorAll<HTMLElement>(".lane-scroller")) {
    const counterpart = scroller.contains(element) ? undefined : findLink(scroller, chosen.link);
    if (counterpart) scroller.scrollTop += counterpart.getBoundingClientRect().top - top;
  }
}

/** The first element of a column with a link. */
export function elementAt(container: HTMLElement, column: string, link: string): HTMLElement | undefined {
  const lane = container.querySelector<HTMLElement>(`[data-lane="${column}"]`);
  return lane ? findLink(lane, link) : undefined;
}

export function focusPlace(container: HTMLElement, place: Place): void {
  const focus = () => {
    const element = placeElement(container, place);
    element?.focus({ preventScroll: true });
    return element !== null;
  };
  // A span in a folded block appears with the choice.
  if (!focus()) requestAnimationFrame(focus);
}

function placeElement(container: HTMLElement, { column, block, segment }: Place): HTMLElement | null {
  return container.querySelector<HTMLElement>(`[data-place="${column}/${block}/${segment}"]`);
}

function findLink(lane: HTMLElement, link: string): HTMLElement | undefined {
  return [...lane.querySelectorAll<HTMLElement>("[data-link]")].find((element) => element.dataset.link === link);
}

function scrollIntoLane(element: HTMLElement): void {
  const scroller = element.closest(".lane-scroller");
  if (!scroller) return;
  // In narrow windows the page scrolls in place of the lane.
  if (getComputedStyle(scroller).overflowY === "visible") {
    element.scrollIntoView({ block: "nearest" });
    return;
  }
  const own = element.getBoundingClientRect();
  const frame = scroller.getBoundingClientRect();
  if (own.top < frame.top) scroller.scrollTop += own.top - frame.top - MARGIN_PX;
  else if (own.top > frame.bottom - MARGIN_PX) scroller.scrollTop += own.top - frame.top - frame.height / 2;
}
