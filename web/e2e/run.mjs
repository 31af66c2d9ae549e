// End-to-end tests of the pages, in headless Chromium against a real node.
//
//   node e2e/run.mjs --socket DIR/holdfast.sock --disks DIR [--url URL --user NAME --password WORD] [--load "COMMAND"]
//                    [--work DIR] [--chromium PATH] [NAME ...]
//
// Most cases serve web/dist beside the node's socket; those with --url look at what the node itself serves over TLS. --disks is a folder where free file disks may be made. --load is a command that puts load on a LUN or share of the node for some
// seconds. --work gets a picture of every page. The node is changed: give it one of its own. Prints a line for each case and the
// sum; ends with 1 when a case failed.
import { mkdir, readFile } from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { serve } from "./server.mjs";
import * as access from "./cases/access.mjs";
import * as cluster from "./cases/cluster.mjs";
import * as faults from "./cases/faults.mjs";
import * as findings from "./cases/findings.mjs";
import * as frame from "./cases/frame.mjs";
import * as looks from "./cases/looks.mjs";
import * as qos from "./cases/qos.mjs";
import * as setup from "./cases/setup.mjs";
import * as sizes from "./cases/sizes.mjs";
import * as served from "./cases/served.mjs";
import * as storage from "./cases/storage.mjs";

const { values: options, positionals: wanted } = parseArgs({
  allowPositionals: true,
  options: {
    socket: { type: "string" },
    disks: { type: "string" },
    load: { type: "string" },
    url: { type: "string" },
    user: { type: "string" },
    password: { type: "string" },
    work: { type: "string", default: "e2e-pictures" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
if (!options.socket || !options.disks) {
  console.error("run.mjs: --socket and --disks are needed; the head of the file says what they are");
  process.exit(2);
}

/** Milliseconds until something that a case waits for must be there; the machine may be busy. */
const PATIENCE = 90_000;
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
await mkdir(options.work, { recursive: true });

/** Asks the node beside the pages: what was changed there must be so here. */
function ask(method, path, body) {
  const sent = body === undefined ? "" : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const request = http.request(
      { socketPath: options.socket, path: `/v1${path}`, method, headers: { "content-type": "application/json", "content-length": Buffer.byteLength(sent) } },
      (response) => {
        let text = "";
        response.on("data", (chunk) => (text += chunk));
        response.on("end", () => {
          const answer = JSON.parse(text);
          if (response.statusCode >= 400) reject(new Error(`${method} ${path}: ${answer.detail}`));
          else resolve(answer);
        });
      },
    );
    request.on("error", reject);
    request.end(sent);
  });
}

const browser = await chromium.launch({ executablePath: options.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** A page of a browser of its own, with what it must not do watched. */
async function open({ answer, url, ...how } = {}) {
  const server = url ? { url, close: async () => {} } : await serve(options.socket, answer);
  const context = await browser.newContext({ viewport: { width: 1360, height: 850 }, ...how });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const faultsSeen = [];
  page.on("pageerror", (error) => faultsSeen.push(`error in the page: ${error.message}`));
  page.on("console", (message) => {
    // Chromium logs each answer of 400 and more; the pages show those that matter, and cases look for them.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) faultsSeen.push(`in the console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(server.url) && !url.startsWith("blob:")) faultsSeen.push(`a request to elsewhere: ${url}`);
  });
  return {
    page,
    url: server.url,
    /** Goes to a page and waits for its heading. */
    async go(place, heading) {
      // The heading says when it is there; to wait for everything else as well would be to wait for a busy machine.
      await page.goto(`${server.url}#/${place}`, { waitUntil: "commit" });
      const title = page.getByRole("heading", { level: 1 });
      await (heading ? page.getByRole("heading", { level: 1, name: heading, exact: true }) : title).waitFor();
    },
    /** What axe finds wrong now. */
    async clean(where) {
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const said = violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(" | ")}`);
      if (said.length) throw new Error(`axe on ${where}: ${said.join("\n     ")}`);
    },
    picture: (name) => page.screenshot({ path: `${options.work}/${name}.png`, fullPage: true }),
    async close() {
      await context.close();
      await server.close();
      if (faultsSeen.length) throw new Error(faultsSeen.join("\n     "));
    },
  };
}

/** Repeats a look until it holds: what the pages show follows the node a moment later. */
async function until(what, look) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const last = await look().catch((error) => error);
    if (last === true) return;
    if (Date.now() > end) throw new Error(`waited in vain until ${what}${last instanceof Error ? `: ${last.message}` : ""}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const tools = { open, ask, until, options };
let passed = 0;
let failed = 0;
for (const [name, run] of [served, looks, frame, access, storage, setup, cluster, faults, findings, qos, sizes].flatMap((cases) => Object.entries(cases))) {
  if (wanted.length && !wanted.some((word) => name.toLowerCase().includes(word.toLowerCase()))) continue;
  const began = Date.now();
  const pages = [];
  let wrong = null;
  let skipped;
  try {
    skipped = await run({ ...tools, open: async (how) => (pages.push(await open(how)), pages.at(-1)) });
  } catch (error) {
    wrong = error;
    await pages.at(-1)?.picture(`failed-${name}`).catch(() => {});
  }
  for (const page of pages) await page.close().catch((error) => (wrong ??= error));
  const took = `${((Date.now() - began) / 1000).toFixed(1)} s`;
  if (wrong) {
    failed += 1;
    console.log(`FAIL ${name} (${took}): ${wrong.stack ?? wrong}`);
  } else if (skipped) {
    console.log(`skip ${name}: ${skipped}`);
  } else {
    passed += 1;
    console.log(`ok   ${name} (${took})`);
  }
}
await browser.close();
console.log(`pages: ${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
