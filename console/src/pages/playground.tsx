import { EmptyState } from "../components/empty-state.tsx";

export default function PlaygroundPage() {
  return <EmptyState title="Playground" />;
}
