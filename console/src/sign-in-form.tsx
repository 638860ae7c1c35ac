import { useSignal } from "@preact/signals";
import { isSignedIn, request } from "./api.ts";
import { errorText } from "./errors.ts";
import { loadGateway } from "./gateway-state.ts";
import { navigate, path } from "./router.ts";

/** Asks for an API key of an administrator; the gateway answers with a session cookie. */
export function SignInForm() {
  const key = useSignal("");
  const error = useSignal("");

  async function signIn(event: Event) {
    event.preventDefault();
    try {
      await request("/console/login", { method: "POST", body: { key: key.value } });
      isSignedIn.value = true;
      if (path.value === "/login") navigate("/", { replace: true });
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
