// The way from empty disks to an attached LUN and an attached share; and pools with their disks.
import { open as openFile } from "node:fs/promises";
import path from "node:path";
import { act, choose, confirm, dialog, send, yes } from "./steps.mjs";

/** Makes an empty file that may become a disk; gives its path. */
async function disk(folder, name) {
  const file = path.resolve(folder, name);
  const handle = await openFile(file, "w");
  await handle.truncate(4 * 2 ** 30);
  await handle.close();
  return file;
}

export async function fromDisksToAttached({ open, ask, until, options }) {
  const view = await open();
  const { page } = view;
  const disks = [await disk(options.disks, "web1.img"), await disk(options.disks, "web2.img")];
  await view.go("setup", "Set up storage");
  await page.getByText("A new pool, of free disks").click();
  await page.getByLabel("Name of the pool").fill("webpool");
  const create = page.getByRole("button", { name: "Create pool" });
  await page.getByLabel("Another disk, by its path").fill("/nowhere/disk");
  await page.getByRole("button", { name: "Add to the list" }).click();
  await page.getByText("There is no disk /nowhere/disk.").waitFor();
  if (!(await create.isDisabled())) throw new Error("a pool without disks can be made");
  for (const file of disks) {
    await page.getByLabel("Another disk, by its path").fill(file);
    await page.getByRole("button", { name: "Add to the list" }).click();
    await page.getByRole("checkbox", { name: new RegExp(path.basename(file)) }).waitFor();
  }
  await page.getByText("2 disks with 8.00 GiB are taken over entirely").waitFor();
  await view.clean("the first step");
  await view.picture("light-setup-1");
  await create.click();
  await confirm(view, "Create", "webpool");
  // The volume.
  await page.getByLabel("Name of the volume").fill("webvol");
  await page.getByLabel("Size").fill("2G");
  await page.getByText("Full, it takes 4.00 GiB of the pool").waitFor();
  await view.clean("the second step");
  await view.picture("light-setup-2");
  await page.getByRole("button", { name: "Create volume" }).click();
  // A LUN.
  await page.getByLabel("Name of the LUN").fill("weblun2");
  await page.getByLabel("Size").fill("1G");
  await page.getByLabel("Initiators that see it").fill("iqn.1991-05.com.microsoft:host1");
  await page.getByText("The group weblun2 is made").waitFor();
  await view.clean("the third step");
  await view.picture("light-setup-3");
  await page.getByRole("button", { name: "Create LUN" }).click();
  await page.getByText("LUN weblun2 is ready").waitFor();
  await page.getByText("New-IscsiTargetPortal").first().waitFor();
  await view.clean("the fourth step");
  await view.picture("light-setup-4");
  const lun = (await ask("GET", "/luns")).items.find((one) => one.name === "weblun2");
  if (lun?.map?.[0]?.group !== "weblun2" || lun.volume !== "webvol") throw new Error(`made was ${JSON.stringify(lun)}`);
  // And a share with a user of its own.
  await page.getByRole("button", { name: "Another LUN or share" }).click();
  await page.getByText("A share: a folder, over SMB 3").click();
  await page.getByLabel("Name of the share").fill("webshare2");
  await page.getByText("A new user").click();
  await page.getByLabel("User", { exact: true }).fill("hyperv");
  await page.getByLabel("Password", { exact: true }).fill("secret of hyperv");
  await page.getByLabel("Password again").fill("secret of hyperv");
  await view.clean("the third step of a share");
  await page.getByRole("button", { name: "Create share" }).click();
  await page.getByText("Share webshare2 is ready").waitFor();
  await choose(page, page, "Attach it from", "KVM (libvirt, QEMU)");
  await page.getByText("/webshare2 /mnt/webshare2 -o username=hyperv").waitFor();
  await view.picture("light-setup-share");
  await page.getByRole("link", { name: "To the overview" }).click();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await until("the share serves", async () => (await ask("GET", "/shares")).items.some((one) => one.name === "webshare2" && one.online && one.encrypt));
}

/** The pool that the way has made: disks join and leave, and it is destroyed. */
export async function poolAndItsDisks({ open, ask, until, options }) {
  const view = await open();
  const { page } = view;
  const third = await disk(options.disks, "web3.img");
  const pool = () => ask("GET", "/pools/webpool");
  await view.go("pools/webpool", "Pool webpool");
  await act(page, "Actions for pool webpool", "Add disks …");
  await dialog(page).getByLabel("Another disk, by its path").fill(third);
  await dialog(page).getByRole("button", { name: "Add to the list" }).click();
  await dialog(page).getByText("1 disk with 4.00 GiB are taken").or(dialog(page).getByText("4.00 GiB")).first().waitFor();
  await dialog(page).getByLabel("Type webpool to confirm").fill("webpool");
  await view.clean("the form that adds disks");
  await send(page, "Add");
  await until("it has three", async () => (await pool()).disks === 3);
  await act(page, "Actions for pool webpool", "Rebalance …");
  await dialog(page).getByText(/move between disks|nothing to move/).waitFor();
  await view.clean("the plan of a rebalance");
  await view.picture("light-rebalance");
  await dialog(page).getByRole("button", { name: "Cancel" }).click();
  await act(page, "Actions for pool webpool", "Scrub: read everything, heal damage");
  await page.getByRole("status").getByRole("button", { name: "Put away" }).first().waitFor();
  // The disk's own dialog: describe it, retire it, keep it, take it out.
  const tile = page.getByRole("button", { name: /web3\.img/ });
  await tile.click();
  await view.clean("the dialog of a disk");
  await view.picture("light-disk");
  await dialog(page).getByRole("button", { name: "Describe …" }).click();
  await dialog(page).getByLabel("Enclosure").fill("shelf-w");
  await dialog(page).getByLabel("Slot").fill("3");
  await send(page, "Save");
  await page.getByRole("region", { name: "Enclosure shelf-w" }).waitFor();
  await tile.click();
  await dialog(page).getByRole("button", { name: "Retire" }).click();
  await yes(page, "Retire");
  await tile.getByText("retiring").waitFor();
  await tile.click();
  await dialog(page).getByRole("button", { name: "Keep" }).click();
  await yes(page, "Keep");
  await tile.getByText("online").waitFor();
  await tile.click();
  await dialog(page).getByRole("button", { name: "Take out …" }).click();
  await confirm(view, "Take out", third);
  await until("it is out", async () => (await pool()).disks === 2);
  await page.goto(`${view.url}#/jobs`);
  await page.getByRole("rowheader", { name: /drain/ }).first().waitFor();
  await view.clean("jobs");
  await view.picture("light-jobs-done");
  await view.go("pools/webpool", "Pool webpool");
  await act(page, "Actions for pool webpool", "Destroy …");
  await dialog(page).getByLabel("Type webpool to confirm").or(dialog(page).getByRole("alert")).first().waitFor();
  await view.picture("light-pool-destroy");
  if (await dialog(page).getByRole("alert").count()) {
    // What uses it has to go first; the node says so, and the pages show it.
    await dialog(page).getByRole("button", { name: "Close" }).last().click();
    for (const [kind, list, name, title] of [["luns", "LUN", "weblun2", "LUNs"], ["shares", "share", "webshare2", "Shares"]]) {
      await view.go(`${kind}/${name}`);
      await act(page, `Actions for ${list} ${name}`, "Delete …");
      await confirm(view, "Delete", name);
      await page.getByRole("heading", { level: 1, name: title }).waitFor();
    }
    await view.go("volumes/webvol", "Volume webvol");
    await act(page, "Actions for volume webvol", "Destroy …");
    await confirm(view, "Destroy", "webvol");
    await page.getByRole("heading", { level: 1, name: "Volumes" }).waitFor();
    await view.go("pools/webpool", "Pool webpool");
    await act(page, "Actions for pool webpool", "Destroy …");
  }
  await confirm(view, "Destroy", "webpool");
  await page.getByRole("heading", { level: 1, name: "Pools" }).waitFor();
  await until("it is gone", async () => !(await ask("GET", "/pools")).items.some((one) => one.name === "webpool"));
}
