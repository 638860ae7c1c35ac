/** A text in which names are between backticks, as in the documentation. */
export function Prose({ text }: { text: string }) {
  return (
    <>{text.split(/`([^`]+)`/).map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>
  );
}
