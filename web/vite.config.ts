// How the pages are built, and how they reach a node while they are worked on: `HOLDFAST_SOCKET=DIR/holdfast.sock npm run dev`
// forwards /v1 to the node's Unix socket, where whoever may open it is the administrator.
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const socketPath = process.env.HOLDFAST_SOCKET ?? "../holdfast-demo/holdfast.sock";

export default defineConfig({
  plugins: [react()],
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
