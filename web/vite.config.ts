// How the pages are built, and how they reach a node while they are worked on: `HOLDFAST_SOCKET=DIR/holdfast.sock npm run dev`
// forwards /v1 to the node's Unix socket, where whoever may open it is the administrator.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const socketPath = process.env.HOLDFAST_SOCKET ?? "../holdfast-demo/holdfast.sock";

/** Puts `NAME.br` and `NAME.gz` beside what was built: the node serves them as they are. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const entry of readdirSync("dist", { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue;
        const file = join(entry.parentPath ?? entry.path, entry.name);
        const body = readFileSync(file);
        writeFileSync(`${file}.br`, brotliCompressSync(body));
        writeFileSync(`${file}.gz`, gzipSync(body, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), compressed()],
  // Names relative to the page: the node may serve it below any path.
  base: "./",
  build: {
    target: "es2022",
    // A data: address would need its own permission in the node's content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/v1": { target: { host: "localhost", socketPath }, changeOrigin: false } } },
});
