import { defineConfig } from "vite";

declare const process: { env: Record<string, string | undefined> };

// `npm run dev` shows the page from its sources and asks this server for the rest.
const server = process.env.WEFT_URL ?? "http://127.0.0.1:8080";
const apis = ["/v1", "/health", "/metrics", "/props", "/slots", "/load"];

export default defineConfig({
  // Addresses relative to the page, so that it also works below a path of a proxy.
  base: "./",
  server: { proxy: Object.fromEntries(apis.map((path) => [path, server])) },
  resolve: {
    alias: [{ find: "../validation/ajv-provider.js", replacement: new URL("src/no_validator.ts", import.meta.url).pathname }],
  },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      // Names without a hash: the binary holds these files by name and tells browsers
      // when they have changed.
      output: {
        entryFileNames: "page/app.js",
        chunkFileNames: "page/[name].js",
        assetFileNames: ({ names }) => (names[0]?.startsWith("pdf.worker") ? "page/pdf_worker.js" : "page/app[extname]"),
      },
    },
  },
});
