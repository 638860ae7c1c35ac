import { isSignedIn } from "./api.ts";
import { CaptureSwitch } from "./capture-switch.tsx";
import { gateway, signOut } from "./gateway-state.ts";
import { href } from "./router.ts";
import { ROUTES } from "./routes.ts";

export function ShellHeader({ current }: { current: string }) {
  const state = gateway.value;
  return (
    <header class="shell-header">
      <a class="brand" href={href("/")} title={state && `Dragoman ${state.version}`}>
        Dragoman
      </a>
      <nav aria-label="Pages">
        {ROUTES.filter((route) => route.isListed).map((route) => (
          <a key={route.name} href={href(`/${route.name}`)} aria-current={route.name === current ? "page" : undefined}>
            {route.title}
          </a>
        ))}
      </nav>
      {state && <CaptureSwitch capture={state.capture} />}
      {state?.has_keys && isSignedIn.value && (
        <button type="button" title={state.key && `Signed in with the key ${state.key}`} onClick={signOut}>
          Sign out
        </button>
      )}
    </header>
  );
}
