import { EmptyState } from "../components/empty-state.tsx";

export default function ContextPage() {
  return <EmptyState title="Context" />;
}
