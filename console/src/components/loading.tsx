/** Shown while a page or its data is fetched. */
export function Loading() {
  return (
    <p class="loading" role="status">
      Loading …
    </p>
  );
}
