import { href } from "../router.ts";

/** The key of a setting; leads to it on the page of the settings. */
export function SettingLink({ name }: { name: string }) {
  return (
    <a class="setting" href={href(`/settings?q=${encodeURIComponent(name)}`)}>
      <code>{name}</code>
    </a>
  );
}
