// The content policy forbids code made from text, so zod must not try it. Imported before all that
// makes schemas.
import { config } from "zod/v4/core";

config({ jitless: true });
