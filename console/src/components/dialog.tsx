import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog, open as long as it is rendered. */
export function Dialog({ title, onClose, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    // Closing returns the focus to where it was; only removing the element does not.
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} aria-label={title} onClose={onClose}>
      <header class="dialog-head">
        <h2>{title}</h2>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </header>
      {children}
    </dialog>
  );
}
