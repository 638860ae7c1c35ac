export default function ExchangePage() {
  return <p>TODO</p>;
}
