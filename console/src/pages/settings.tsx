import { EmptyState } from "../components/empty-state.tsx";

export default function SettingsPage() {
  return <EmptyState title="Settings" />;
}
