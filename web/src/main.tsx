import { render } from "preact";

import { App } from "./app";
import { loadAll } from "./conversations";
import "./style.css";
import "./lists.css";

loadAll();
render(<App />, document.getElementById("app")!);
