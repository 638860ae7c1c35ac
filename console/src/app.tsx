import { isSignedIn } from "./api.ts";
import { ErrorNotice } from "./components/error-notice.tsx";
import { shownError } from "./errors.ts";
import { PageView } from "./page-view.tsx";
import { path } from "./router.ts";
import { matchRoute } from "./routes.ts";
import { ShellHeader } from "./shell-header.tsx";
import { Shortcuts } from "./shortcuts.tsx";
import { SignInForm } from "./sign-in-form.tsx";

export function App() {
  const match = matchRoute(path.value);
  return (
    <>
      <a class="skip-link" href="#content">
        Skip to content
      </a>
      <Shortcuts />
      <ShellHeader current={match?.route.name ?? "?"} />
      {shownError.value && (
        <ErrorNotice
          message={shownError.value}
          onDismiss={() => {
            shownError.value = "";
          }}
        />
      )}
      <main id="content" tabIndex={-1}>
        {isSignedIn.value ? <PageView match={match} /> : <SignInForm />}
      </main>
    </>
  );
}
