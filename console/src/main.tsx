import { render } from "preact";
import { App } from "./app.tsx";
import { followTabs, loadGateway } from "./gateway-state.ts";
import { startRouter } from "./router.ts";
import "./styles/base.css";
import "./styles/components.css";
import "./styles/shell.css";

startRouter();
followTabs();
void loadGateway();
const root = document.getElementById("app");
if (root) render(<App />, root);
