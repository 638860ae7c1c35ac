import { EmptyState } from "../components/empty-state.tsx";

export default function ReportsPage() {
  return <EmptyState title="Reports" />;
}
