import { EmptyState } from "../../components/empty-state.tsx";
import { ErrorNotice } from "../../components/error-notice.tsx";
import { ExchangeLanes } from "../../exchange/exchange-lanes.tsx";
import { NotCaptured } from "../../exchange/not-captured.tsx";
import { useExchange } from "../../exchange/use-exchange.ts";
import { href } from "../../router.ts";

/** The lanes of the exchange of an answer, next to the conversation. */
export function Beside({ id }: { id: string }) {
  const { view, error } = useExchange(id);
  const shown = view.value;
  if (!id) {
    return (
      <EmptyState title="What happens to your message">
        <p>
          Here you see the request, what the model was sent, what it wrote, and the response. Choose a part to see where
          it comes from.
        </p>
      </EmptyState>
    );
  }
  return (
    <>
      <p class="beside-head">
        <a href={href(`/exchanges/${id}`)}>Exchange {id}</a> <a href={href(`/context/${id}`)}>Context</a>
      </p>
      {error.value && <ErrorNotice message={error.value} />}
      {shown && (shown.is_captured ? <ExchangeLanes key={id} view={shown} /> : <NotCaptured view={shown} />)}
    </>
  );
}
