// A disk is lost and comes back, and clients put load on the node: the overview says so, as `holdfast status` does.
import { spawn } from "node:child_process";
import { act, dialog } from "./steps.mjs";

export async function diskIsLostAndReturns({ open, ask, until }) {
  const view = await open();
  const { page } = view;
  const disk = (await ask("GET", "/disks")).items.find((one) => one.pool === "demo" && one.slot === "1");
  const fault = (kind) => ask("PUT", `/disks/faults?disk=${encodeURIComponent(disk.id)}`, { rules: [{ kind }] });
  await view.go("", "Overview");
  await page.getByText("OK: all data is as redundant as promised.").waitFor();
  await fault("vanish");
  try {
    // Data that is written now has one copy only.
    await ask("POST", "/volumes/vm/files", { path: "/written-meanwhile", size_bytes: 8 * 2 ** 20, reserve: true });
    await page.getByText(/^REDUCED: /).waitFor();
    const status = await ask("GET", "/status");
    const health = page.getByRole("region", { name: "Health" });
    await health.getByText(status.summary).waitFor();
    await health.getByRole("listitem").first().waitFor();
    if ((await health.getByRole("listitem").count()) !== status.issues.length) throw new Error("not every issue is shown");
    await health.getByText("Bring it back, or replace it").first().waitFor();
    await view.clean("the overview of a reduced node");
    await view.picture("light-reduced");
    await view.go("pools/demo", "Pool demo");
    await page.getByText("missing", { exact: true }).first().waitFor();
    await page.getByRole("img", { name: /fewer copies than promised|being restored/ }).first().waitFor();
    await view.clean("a reduced pool");
    await view.picture("light-pool-reduced");
  } finally {
    await fault("return");
  }
  await view.go("", "Overview");
  await page.getByText("OK: all data is as redundant as promised.").waitFor();
  await ask("DELETE", "/volumes/vm/files?path=/written-meanwhile", { confirm: "/written-meanwhile" });
  await until("all is well", async () => (await ask("GET", "/status")).verdict === "fully-redundant");
}

/** Who hides a LUN is told which hosts use it, and confirms that, before anything is taken. */
export async function hidingNamesTheHostsThatUseIt({ open, ask, until, options }) {
  if (!options.load) {
    return "there is no --load";
  }
  const load = spawn(options.load, { shell: true, stdio: "ignore" });
  const ended = new Promise((resolve) => load.on("close", resolve));
  try {
    await until("a host is connected", async () => (await ask("GET", "/sessions")).items.some((one) => one.protocol === "iscsi"));
    const session = (await ask("GET", "/sessions")).items.find((one) => one.protocol === "iscsi");
    const lun = (await ask("GET", "/luns")).items.find((one) => one.map?.some((map) => map.target === session.target));
    const map = lun.map.find((one) => one.target === session.target);
    const view = await open();
    const { page } = view;
    const still = async () => (await ask("GET", `/luns/${lun.name}`)).map.some((one) => one.group === map.group);
    await view.go(`luns/${lun.name}`, `LUN ${lun.name}`);
    await act(page, `Actions for mapping ${map.number} of ${map.group}`, "Hide from it …");
    const hide = dialog(page).getByRole("button", { name: "Hide", exact: true });
    await hide.click();
    // Nothing is taken by the first answer: it says who would lose the disk.
    await dialog(page).getByText(`${session.initiator} is connected to it`).first().waitFor();
    await view.clean("the question which hosts lose a LUN");
    if (!(await still())) throw new Error("it was hidden before the hosts were named");
    if (!(await hide.isDisabled())) throw new Error("“Hide” can be pressed before the name was typed");
    await dialog(page).getByRole("button", { name: "Cancel", exact: true }).click();
    if (!(await still())) throw new Error("it was hidden though nobody confirmed it");
  } finally {
    await ended;
  }
}

/** What clients do shows as figures and in the charts a moment later. */
export async function loadShows({ open, until, options }) {
  if (!options.load) {
    return "there is no --load";
  }
  const view = await open();
  const { page } = view;
  await view.go("", "Overview");
  const load = spawn(options.load, { shell: true, stdio: "ignore" });
  const ended = new Promise((resolve) => load.on("close", resolve));
  const iops = page.getByRole("img", { name: /^IOPS/ });
  await until("the chart tells of writes", async () => Number(/write ([\d,.]+)/.exec((await iops.getAttribute("aria-label")) ?? "")?.[1]?.replaceAll(",", "") ?? 0) > 10);
  await page.waitForTimeout(3000);
  await view.picture("light-load");
  await view.go("performance", "Performance");
  const busiest = page.getByRole("region", { name: "Busiest" }).last();
  await until("the busiest comes first", async () => !/\s0\s*$/.test((await busiest.getByRole("row").nth(1).getByRole("cell").nth(3).innerText()) || "0"));
  await view.clean("performance under load");
  await view.picture("light-performance-load");
  await ended;
  // The hour before: what the node has kept, and it is there when the page is loaded anew.
  await view.go("", "Overview");
  await page.getByRole("radio", { name: "1 hour" }).check({ force: true });
  const kept = page.getByRole("img", { name: /^IOPS since \d\d:\d\d/ });
  await kept.waitFor();
  await page.getByText(/^The node has kept this since/).waitFor();
  await view.clean("the last hour");
  await view.picture("light-history");
}
