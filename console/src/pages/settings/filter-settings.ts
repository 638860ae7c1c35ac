import type { SettingView } from "../types/upstreams.ts";

/** Returns the settings that have all words of the text in their key, value, origin or description. */
export function filterSettings(settings: SettingView[], text: string, isChangedOnly: boolean): SettingView[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return settings.filter((setting) => {
    if (isChangedOnly && setting.is_default) return false;
    const { key, value, origin, description } = setting;
    const searched = `${key} ${value} ${origin} ${description}`.toLowerCase();
    return words.every((word) => searched.includes(word));
  });
}
