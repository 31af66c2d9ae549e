// Charts of policies and flows: what was done, with the limits that held drawn over it.
import { spawn } from "node:child_process";

const MINIMUM = 100;
const MAXIMUM = 300;
const RAISED = 600;

/** What a chart says of itself: the value after a word, in its last step. */
async function said(chart, word) {
  const label = (await chart.getAttribute("aria-label")) ?? "";
  const found = new RegExp(`${word} ([\\d,.]+)`).exec(label);
  return found ? Number(found[1].replaceAll(",", "")) : null;
}

/** How many points of a chart have the colour of a kind of line. */
const drawn = (chart, color) =>
  chart.evaluate((place, name) => {
    const canvas = place.querySelector("canvas");
    const hex = getComputedStyle(place).getPropertyValue(`--${name}`).trim();
    const wanted = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
      if (wanted.every((value, part) => Math.abs(data[at + part] - value) < 12) && data[at + 3] > 200) count += 1;
    }
    return count;
  }, color);

/** A limited load's charts show its minimum and maximum as lines, for the policy and for the flow, now and of the past. */
export async function limitsAreDrawn({ open, ask, until, options }) {
  if (!options.load) {
    return "there is no --load";
  }
  await ask("POST", "/qos/policies", { name: "drawn", min_iops: MINIMUM, max_iops: MAXIMUM });
  await ask("POST", "/qos/assignments", { lun: "disk1", policy: "drawn" });
  const view = await open();
  await view.go("performance", "Performance");
  // Again and again: the machine may be busy, and what is looked for takes longer than one load.
  let goesOn = true;
  const ended = (async () => {
    while (goesOn) await new Promise((resolve) => spawn(options.load, { shell: true, stdio: "ignore" }).on("close", resolve));
  })();
  try {
    await whileItLasts(view, { ask, until });
  } finally {
    goesOn = false;
    await ended;
  }
  await afterwards({ open, ask, until });
}

async function whileItLasts(view, { ask, until }) {
  const { page } = view;
  // By keyboard: what is opened has the focus.
  await page.getByRole("link", { name: "drawn, charts" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Policy drawn" }).waitFor();
  const iops = page.getByRole("img", { name: /^Normalised IOPS/ });
  await until("the chart shows the load at its limit", async () => (await said(iops, "done")) > MAXIMUM / 2);
  if ((await said(iops, "maximum")) !== MAXIMUM || (await said(iops, "minimum")) !== MINIMUM) throw new Error(`it says ${await iops.getAttribute("aria-label")}`);
  await until("both limits are drawn", async () => (await drawn(iops, "most")) > 10 && (await drawn(iops, "least")) > 10);
  const held = page.getByRole("img", { name: /^Time of a request/ });
  await until("what is held back takes time", async () => (await said(held, "held back")) > 1);
  await view.clean("the charts of a policy");
  await ask("PATCH", "/qos/policies/drawn", { max_iops: RAISED });
  await until("the line is where the limit is now", async () => (await said(iops, "maximum")) === RAISED);
  await page.waitForTimeout(3000);
  await view.picture("light-policy-chart");

  await page.getByRole("link", { name: /^disk1, charts of / }).first().click();
  await page.getByRole("heading", { name: /^Flow disk1 / }).waitFor();
  await until("the flow's chart has the limit", async () => (await said(iops, "maximum")) === RAISED && (await drawn(iops, "most")) > 10);
  await page.waitForTimeout(2000);
  await view.picture("light-flow-chart");
  await page.getByRole("link", { name: "All clients" }).click();
  await page.getByRole("heading", { name: "What clients do now" }).waitFor();
}

async function afterwards({ open, ask, until }) {
  // The hour before has both limits, as they were; and so it stays when the policy is gone.
  await ask("DELETE", "/qos/assignments?lun=disk1");
  await ask("DELETE", "/qos/policies/drawn", { confirm: "drawn" });
  const kept = await ask("GET", "/history?kind=qos-policy&name=drawn");
  const limits = new Set(kept.steps.flatMap((step) => step.items.map((item) => item.qos.max_iops)));
  if (!limits.has(MAXIMUM) || !limits.has(RAISED)) throw new Error(`the history has the limits ${[...limits].join(", ")}`);
  for (const [mode, how] of [["light", {}], ["dark", { colorScheme: "dark" }], ["phone", { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }]]) {
    const later = await open(how);
    await later.go("performance?policy=drawn", "Performance");
    await later.page.getByRole("radio", { name: "1 hour" }).check({ force: true });
    const past = later.page.getByRole("img", { name: /^Normalised IOPS since/ });
    await past.waitFor();
    await until(`the limit is drawn (${mode})`, async () => (await drawn(past, "most")) > 4);
    const wide = await later.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) throw new Error(`the charts are ${wide} pixels wider than the window (${mode})`);
    await later.clean(`the last hour of a policy (${mode})`);
    await later.picture(`${mode}-policy-history`);
  }
}
