// Volumes, files, snapshots: made, changed and destroyed on the pages, and so on the node.
import { act, confirm, dialog, send } from "./steps.mjs";

export async function volumeFromBirthToDeath({ open, ask, until }) {
  const view = await open();
  const { page } = view;
  const there = async (name) => (await ask("GET", "/volumes")).items.find((volume) => volume.name === name);
  await view.go("volumes", "Volumes");
  await page.getByRole("button", { name: "Create volume" }).click();
  const form = dialog(page);
  const create = form.getByRole("button", { name: "Create", exact: true });
  // What is wrong is said before the node is asked.
  await form.getByLabel("Name").fill("vm");
  await form.getByText("There is already one called vm.").waitFor();
  await form.getByLabel("Name").fill("web test");
  await form.getByText("A name has no blanks and no slashes.").waitFor();
  await form.getByLabel("Name").fill("webtest");
  await form.getByLabel("Size").fill("10 fish");
  await form.getByText("This is no size.").waitFor();
  if (!(await create.isDisabled())) throw new Error("a form with faults can be sent");
  await form.getByLabel("Size").fill("4 GiB");
  await form.getByText("12.0 GiB of the pool").waitFor({ state: "detached" });
  await form.getByText("Full, it takes 8.00 GiB of the pool: 4.00 GiB in 2 copies.").waitFor();
  await form.getByText("Three-way mirror").click();
  await form.getByText("Full, it takes 12.0 GiB of the pool").waitFor();
  await form.getByText("holdfast volume create webtest --size 4GiB --pool demo --resiliency mirror3").waitFor();
  await view.clean("the form of a volume");
  await view.picture("light-volume-create");
  await send(page, "Create");
  await page.getByText("Volume webtest is there.").waitFor();
  const made = await there("webtest");
  if (made?.resiliency !== "mirror3" || made.size_bytes !== 4 * 2 ** 30) throw new Error(`made was ${JSON.stringify(made)}`);

  await page.getByRole("link", { name: "webtest" }).click();
  await act(page, "Actions for volume webtest", "Grow …");
  await dialog(page).getByLabel("New size").fill("1 GiB");
  await dialog(page).getByText("This is too small").waitFor();
  await dialog(page).getByLabel("New size").fill("6 GiB");
  await send(page, "Grow");
  await until("the volume has grown", async () => (await there("webtest")).size_bytes === 6 * 2 ** 30);
  await act(page, "Actions for volume webtest", "Read cache …");
  await dialog(page).getByText("Keep what is read in memory").click();
  await send(page, "Save");
  await until("it is cached", async () => (await there("webtest")).cache.read_cache === true);
  await act(page, "Actions for volume webtest", "Check structures …");
  await dialog(page).getByRole("button", { name: "Check now" }).click();
  await dialog(page).getByRole("region", { name: "Findings" }).or(dialog(page).getByRole("status")).first().waitFor();
  await view.picture("light-volume-check");
  await dialog(page).getByRole("button", { name: "Close" }).last().click();

  // Whoever cancels has destroyed nothing.
  await act(page, "Actions for volume webtest", "Destroy …");
  await dialog(page).getByLabel("Type webtest to confirm").waitFor();
  await view.picture("light-destroy");
  await dialog(page).getByRole("button", { name: "Cancel" }).click();
  if (!(await there("webtest"))) throw new Error("it was destroyed though it was cancelled");
  await act(page, "Actions for volume webtest", "Destroy …");
  await confirm(view, "Destroy", "webtest");
  await page.getByRole("heading", { level: 1, name: "Volumes" }).waitFor();
  if (await there("webtest")) throw new Error("it is still there");
}

export async function filesOfAVolume({ open, ask }) {
  const view = await open();
  const { page } = view;
  const list = async (path) => (await ask("GET", `/volumes/vm/files?path=${encodeURIComponent(path)}`)).items.map((entry) => entry.name).sort();
  await view.go("volumes/vm/files", "Volume vm");
  await page.getByRole("button", { name: "New folder" }).click();
  await dialog(page).getByLabel("Name").fill("täglich & neu");
  await send(page, "Create");
  await page.getByRole("link", { name: /^täglich & neu/ }).click();
  await page.getByText("This folder is empty.").waitFor();
  await page.getByRole("button", { name: "New file" }).click();
  await dialog(page).getByLabel("Name").fill("zeros.img");
  await dialog(page).getByLabel("Size").fill("1 MiB");
  await send(page, "Create");
  await page.getByRole("rowheader", { name: "zeros.img" }).waitFor();
  // A file of two pieces goes up and comes down the same.
  const body = Buffer.alloc(5 * 1024 * 1024 + 17, "Holdfast ");
  await page.locator("input[type=file]").setInputFiles({ name: "sent.bin", mimeType: "application/octet-stream", buffer: body });
  await page.getByText("sent.bin is at vm:/täglich & neu/sent.bin, durably.").waitFor();
  const coming = page.waitForEvent("download");
  await act(page, "Actions for sent.bin", "Download");
  const stream = await (await coming).createReadStream();
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  if (!Buffer.concat(pieces).equals(body)) throw new Error("what came down is not what went up");
  await act(page, "Actions for sent.bin", "Clone …");
  await send(page, "Clone");
  await page.getByRole("rowheader", { name: "sent.bin-clone" }).waitFor();
  await act(page, "Actions for sent.bin-clone", "Rename or move …");
  await dialog(page).getByLabel("New path").fill("/täglich & neu/moved.bin");
  await send(page, "Rename");
  await page.getByRole("rowheader", { name: "moved.bin" }).waitFor();
  await act(page, "Actions for moved.bin", "What it takes …");
  await dialog(page).getByRole("button", { name: "Count" }).click();
  await dialog(page).getByText("Shared with others").waitFor();
  await dialog(page).getByRole("button", { name: "Close" }).last().click();
  await view.clean("a folder");
  await view.picture("light-files");
  const names = await list("/täglich & neu");
  if (names.join() !== "moved.bin,sent.bin,zeros.img") throw new Error(`in the folder are ${names}`);
  for (const name of names) {
    await act(page, `Actions for ${name}`, "Delete …");
    await confirm(view, "Delete", `/täglich & neu/${name}`);
    await page.getByRole("rowheader", { name, exact: true }).waitFor({ state: "detached" });
  }
  await page.getByRole("link", { name: "vm:/" }).click();
  await act(page, "Actions for täglich & neu", "Delete …");
  await confirm(view, "Delete", "/täglich & neu");
  if ((await list("/")).includes("täglich & neu")) throw new Error("the folder is still there");
}

export async function snapshotsAndSchedules({ open, ask, until }) {
  const view = await open();
  const { page } = view;
  const snapshots = async () => (await ask("GET", "/volumes/vm/snapshots")).items.map((one) => one.name);
  const schedules = async () => (await ask("GET", "/volumes/vm/snapshot-schedules")).items;
  await view.go("volumes/vm/snapshots", "Volume vm");
  await page.getByRole("button", { name: "Take snapshot" }).click();
  await dialog(page).getByLabel("Name").fill("before-update");
  await dialog(page).getByText("holdfast snapshot create vm:/ before-update").waitFor();
  await view.clean("the form of a snapshot");
  await send(page, "Take");
  await page.getByRole("rowheader", { name: "before-update" }).waitFor();
  await page.getByRole("button", { name: "New schedule" }).click();
  await dialog(page).getByLabel("Name").fill("nightly");
  for (const [label, count] of [["Hours kept", "0"], ["Days kept", "0"], ["Weeks kept", "0"]]) await dialog(page).getByLabel(label).fill(count);
  await dialog(page).getByText("It would keep nothing").waitFor();
  await dialog(page).getByLabel("Days kept").fill("7");
  await dialog(page).getByText("the last 7 days").waitFor();
  await send(page, "Create");
  await until("the schedule is there", async () => (await schedules()).some((one) => one.name === "nightly" && one.daily === 7));
  await act(page, "Actions for schedule nightly", "Change …");
  await dialog(page).getByLabel("Weeks kept").fill("4");
  await send(page, "Save");
  await until("it is changed", async () => (await schedules()).some((one) => one.weekly === 4));
  await view.go("snapshots", "Snapshots");
  await page.getByRole("rowheader", { name: "before-update" }).waitFor();
  await view.clean("snapshots");
  await view.picture("light-snapshots-taken");
  await act(page, "Actions for snapshot before-update", "Delete …");
  await confirm(view, "Delete", "before-update");
  await until("it is deleted", async () => !(await snapshots()).includes("before-update"));
  await view.go("volumes/vm/snapshots", "Volume vm");
  await act(page, "Actions for schedule nightly", "Delete …");
  await confirm(view, "Delete", "nightly");
  await until("the schedule is deleted", async () => (await schedules()).length === 0);
}
