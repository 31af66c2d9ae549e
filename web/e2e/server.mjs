// Serves the built pages beside a node that is reached by its Unix socket: /v1 goes there, everything else is a file of dist.
// The headers are as strict as the pages allow, so that what the node may demand is tested here.
import { readFile } from "node:fs/promises";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";

const dist = fileURLToPath(new URL("../dist/", import.meta.url));
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/** Starts it on a free port; gives its address, and `close`. `answer` may answer a request of /v1 in the node's place. */
export async function serve(socketPath, answer = () => false) {
  const server = http.createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://localhost");
    if (url.pathname.startsWith("/v1/")) {
      if (answer(request, response, url)) return;
      const headers = { ...request.headers, host: "localhost" };
      const onward = http.request({ socketPath, path: request.url, method: request.method, headers }, (answered) => {
        response.writeHead(answered.statusCode ?? 502, answered.headers);
        answered.pipe(response);
      });
      onward.on("error", () => response.headersSent || response.writeHead(502).end());
      request.pipe(onward);
      return;
    }
    void file(url.pathname, response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    close: () => new Promise((resolve) => server.close(resolve).closeAllConnections()),
  };
}

async function file(pathname, response) {
  const name = path.join(dist, path.normalize(pathname === "/" ? "/index.html" : pathname));
  try {
    if (!name.startsWith(dist)) throw new Error("outside");
    const body = await readFile(name);
    response.writeHead(200, {
      "content-type": TYPES[path.extname(name)] ?? "application/octet-stream",
      "content-security-policy": POLICY,
      "x-content-type-options": "nosniff",
    });
    response.end(body);
  } catch {
    response.writeHead(404).end();
  }
}
