import { EmptyState } from "../components/empty-state.tsx";

export default function UpstreamsPage() {
  return <EmptyState title="Upstreams" />;
}
