import { render } from "preact";

import { App } from "./app";
import { loadAll } from "./conversations";
import "./style.css";
import { takeUpAll } from "./turns";

loadAll();
void takeUpAll();
render(<App />, document.getElementById("app")!);
