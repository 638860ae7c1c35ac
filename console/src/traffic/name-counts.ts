/** More choices than this are of no use in a filter; the search finds the rows of the other names. */
export const NAME_LIMIT = 200;

/** The names that occur in rows, each with the number of its rows. Clients choose them, so any number may occur. */
export class NameCounts {
  readonly #counts = new Map<string, number>();
  #list: readonly string[] | undefined = [];

  /** The most frequent names, sorted; the same array until names appear or disappear. */
  get list(): readonly string[] {
    this.#list ??= [...this.#counts]
      .sort(([, a], [, b]) => b - a)
      .slice(0, NAME_LIMIT)
      .map(([name]) => name)
      .sort((a, b) => a.localeCompare(b));
    return this.#list;
  }

  /** A row has another name than before; undefined or "" is none. */
  replace(before: string | undefined, after: string | undefined): void {
    if (before === after) return;
    if (before) this.#add(before, -1);
    if (after) this.#add(after, 1);
  }

  #add(name: string, change: number): void {
    const known = this.#counts.get(name) ?? 0;
    if (known + change > 0) this.#counts.set(name, known + change);
    else this.#counts.delete(name);
    if (known === 0 || known + change === 0) this.#list = undefined;
  }
}
