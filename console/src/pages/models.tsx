import { EmptyState } from "../components/empty-state.tsx";

export default function ModelsPage() {
  return <EmptyState title="Models" />;
}
