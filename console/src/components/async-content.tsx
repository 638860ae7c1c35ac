import type { ComponentChildren } from "preact";
import type { Data } from "../use-data.ts";
import { ErrorNotice } from "./error-notice.tsx";
import { Loading } from "./loading.tsx";

interface Props<T> {
  data: Data<T>;
  children: (value: T) => ComponentChildren;
}

/** Shows fetched data, or that it is loading, or why it failed. */
export function AsyncContent<T>({ data, children }: Props<T>) {
  const { value, error, reload } = data;
  return (
    <>
      {error.value && <ErrorNotice message={error.value} onRetry={reload} />}
      {value.value === undefined ? !error.value && <Loading /> : children(value.value)}
    </>
  );
}
