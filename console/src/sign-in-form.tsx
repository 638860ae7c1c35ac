import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { isSignedIn, request } from "./api.ts";
import { errorText } from "./errors.ts";
import { gateway, loadGateway } from "./gateway-state.ts";
import { nextPath } from "./next-address.ts";
import { navigate, path, query } from "./router.ts";

/** Asks for an API key of an administrator; the gateway answers with a session cookie. */
export function SignInForm() {
  const key = useSignal("");
  const error = useSignal("");

  // A link of another site opens this page although there is a session: the browser sends no cookie with it.
  const isNeeded = gateway.value === undefined || !isSignedIn.value;
  useEffect(() => {
    if (!isNeeded) leave();
  }, [isNeeded]);

  async function signIn(event: Event) {
    event.preventDefault();
    try {
      await request("/console/login", { method: "POST", body: { key: key.value } });
      isSignedIn.value = true;
      leave();
      await loadGateway();
    } catch (cause) {
      error.value = errorText(cause);
    }
  }

  return (
    <form class="sign-in" onSubmit={signIn}>
      <h1>Sign in</h1>
      <p>
        This gateway has API keys. Enter one with <code>admin = true</code>.
      </p>
      <label>
        API key
        <input
          type="password"
          autocomplete="current-password"
          required
          value={key.value}
          onInput={(event) => {
            key.value = event.currentTarget.value;
          }}
        />
      </label>
      {error.value && (
        <p class="field-error" role="alert">
          {error.value}
        </p>
      )}
      <button type="submit" class="primary">
        Sign in
      </button>
    </form>
  );
}

/** Goes to the page that was asked for, from the page of the sign-in. */
function leave() {
  if (path.value === "/login") navigate(nextPath(query.value, location.origin), { replace: true });
}
