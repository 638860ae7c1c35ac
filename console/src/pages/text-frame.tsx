interface Props {
  label: string;
  text: string;
}

/** Text as it is, in a frame that scrolls. */
export function TextFrame({ label, text }: Props) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a frame that scrolls must be reachable by keyboard
    <section class="text-frame" aria-label={label} tabIndex={0}>
      <pre>{text}</pre>
    </section>
  );
}
