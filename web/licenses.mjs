// Writes the licenses of what the page bundles to the file named by the argument: those of the
// packages that package.json depends on, and of the packages that these depend on.
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const folderOf = (name) => new URL(`node_modules/${name}/`, import.meta.url);
const packageOf = (folder) => JSON.parse(readFileSync(new URL("package.json", folder), "utf8"));

// What KaTeX's own command line uses, and what the MCP SDK has for servers, for signing in and for
// its validator.
const notBundled = new Set([
  "commander", "@hono/node-server", "ajv", "ajv-formats", "cors", "cross-spawn", "eventsource", "express",
  "express-rate-limit", "hono", "jose", "json-schema-typed", "raw-body", "zod-to-json-schema",
]);

const found = new Map();
function add(name) {
  const folder = folderOf(name);
  // Types and optional peers are not installed, and not bundled.
  if (found.has(name) || notBundled.has(name) || name.startsWith("@types/") || !existsSync(folder)) {
    return;
  }
  const { version, license, dependencies = {} } = packageOf(folder);
  const file = readdirSync(folder).find((entry) => /^licen[sc]e(\.|$)/i.test(entry));
  if (!file) throw new Error(`${name} has no license file`);
  const text = readFileSync(new URL(file, folder), "utf8").trim();
  found.set(name, `${name} ${version} (${license})\n\n${text}\n`);
  Object.keys(dependencies).forEach(add);
}
Object.keys(packageOf(new URL("./", import.meta.url)).dependencies).forEach(add);

const parts = [...found.keys()].sort().map((name) => found.get(name));
const line = `\n${"-".repeat(78)}\n\n`;
writeFileSync(process.argv[2], `The page of Weft contains these works of others.\n${line}${parts.join(line)}`);
