// Ten thousand things, and what a browser has to load.
import { readFile, readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const MANY = 10_000;
/** Bytes, compressed, that all pages together may have. */
const BUDGET = 500 * 1024;

/** With 10,000 LUNs only the rows in sight are on the page; all are found, sorted and scrolled to. */
export async function tenThousandRows({ open }) {
  const items = Array.from({ length: MANY }, (_, index) => ({
    name: `lun-${index}`, volume: "vm", path: `/luns/lun-${index}`, serving: index % 100 === 99 ? "offline" : "online", size_bytes: (index + 1) * 2 ** 30, allocated_bytes: index * 4096,
    map: [{ target: "iqn.2026-01.io.holdfast:demo", group: "everyone", number: index }],
  }));
  const body = JSON.stringify({ items });
  const view = await open({
    answer(_request, response, url) {
      if (url.pathname !== "/v1/luns") return false;
      response.writeHead(200, { "content-type": "application/json" });
      response.end(body);
      return true;
    },
  });
  const { page } = view;
  await page.addInitScript(() => {
    window.slow = [];
    new PerformanceObserver((list) => window.slow.push(...list.getEntries().map((entry) => Math.round(entry.duration)))).observe({ type: "longtask", buffered: true });
  });
  await view.go("luns", "LUNs");
  const table = page.getByRole("region", { name: "LUNs" });
  await table.getByRole("rowheader", { name: "lun-0", exact: true }).waitFor();
  const rows = () => page.locator("tbody tr").count();
  if ((await rows()) > 100) throw new Error(`${await rows()} rows are on the page`);
  if ((await page.getByRole("table").getAttribute("aria-rowcount")) !== String(MANY + 1)) throw new Error("the table does not say how many rows it has");
  await table.evaluate((box) => box.scrollTo(0, box.scrollHeight));
  await table.getByRole("rowheader", { name: `lun-${MANY - 1}`, exact: true }).waitFor();
  await page.getByRole("button", { name: "Size" }).click();
  await table.evaluate((box) => box.scrollTo(0, 0));
  await table.getByRole("rowheader", { name: `lun-${MANY - 1}`, exact: true }).waitFor();
  await page.getByRole("searchbox").fill("lun-77 offline");
  await table.getByRole("rowheader", { name: "lun-7799", exact: true }).waitFor();
  const slow = await page.evaluate(() => window.slow);
  console.log(`     10,000 rows: the main thread was held up for ${slow.length ? `at most ${Math.max(...slow)} ms, ${slow.length} times over 50 ms` : "never over 50 ms"}`);
  await view.clean("a table of 10,000 rows");
  await view.picture("light-10000");
}

/** All files together are within the budget, and the overview comes up; how fast is printed, not judged. */
export async function weightAndSpeed({ open }) {
  const dist = fileURLToPath(new URL("../../dist/", import.meta.url));
  let sum = 0;
  for (const name of await readdir(dist, { recursive: true })) {
    if (name.endsWith(".gz")) sum += (await readFile(dist + name)).length;
  }
  if (sum > BUDGET) throw new Error(`the pages have ${sum} bytes, compressed; ${BUDGET} are allowed`);
  const view = await open();
  const began = Date.now();
  await view.page.goto(view.url);
  await view.page.getByRole("region", { name: "Health" }).waitFor();
  console.log(`     all pages: ${(sum / 1024).toFixed(0)} KiB compressed; health sentence after ${Date.now() - began} ms`);
}
