// A finding is acknowledged and that is taken back; a webhook is set, tried and taken away again.
import http from "node:http";
import { act, choose, confirm, dialog, send } from "./steps.mjs";

export async function findingIsAcknowledged({ open, ask, until }) {
  const view = await open();
  const { page } = view;
  const disk = (await ask("GET", "/disks")).items.find((one) => one.pool === "demo" && one.slot === "1");
  const fault = (kind) => ask("PUT", `/disks/faults?disk=${encodeURIComponent(disk.id)}`, { rules: [{ kind }] });
  await view.go("", "Overview");
  const health = page.getByRole("region", { name: "Health" });
  await fault("vanish");
  try {
    const line = health.getByRole("listitem").filter({ hasText: disk.id });
    await line.getByRole("button", { name: /^Acknowledge: disk / }).click();
    const asked = dialog(page);
    await asked.getByLabel("Note for others").fill("a new one is ordered");
    await view.clean("the question who knows of a finding");
    await view.picture("light-acknowledge");
    await send(page, "Acknowledge");
    await line.getByText(/acknowledged by .*: a new one is ordered/).waitFor();
    const status = await ask("GET", "/status");
    if (status.verdict === "fully-redundant") throw new Error("an acknowledgement mends nothing");
    if (!status.issues.some((issue) => issue.acknowledged?.note === "a new one is ordered")) throw new Error("the node does not know of it");
    await view.clean("the overview with an acknowledged finding");
    await view.picture("light-acknowledged");
    await page.setViewportSize({ width: 390, height: 800 });
    await view.picture("phone-acknowledged");
    if (await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth)) throw new Error("the lines are wider than a phone");
    await page.setViewportSize({ width: 1360, height: 850 });
    await line.getByRole("button", { name: /^Take back the acknowledgement: / }).click();
    await line.getByRole("button", { name: /^Acknowledge: disk / }).waitFor();
  } finally {
    await fault("return");
  }
  await until("all is well", async () => (await ask("GET", "/status")).verdict === "fully-redundant");
}

export async function webhookIsSetTriedAndRemoved({ open, ask, until }) {
  const told = [];
  const hook = http.createServer((request, response) => {
    let text = "";
    request.on("data", (chunk) => (text += chunk));
    request.on("end", () => {
      told.push(JSON.parse(text));
      response.writeHead(204).end();
    });
  });
  await new Promise((resolve) => hook.listen(0, "127.0.0.1", resolve));
  try {
    const view = await open();
    const { page } = view;
    await view.go("settings", "Settings");
    const card = page.getByRole("region", { name: "Notifications" });
    await card.getByText("Nobody is told when something goes wrong.").waitFor();
    await card.getByRole("button", { name: "Add webhook" }).click();
    const form = dialog(page);
    await form.getByLabel("Name").fill("Pager!");
    if (!(await form.getByRole("button", { name: "Add", exact: true }).isDisabled())) throw new Error("a name that the node refuses can be sent");
    await form.getByLabel("Name").fill("pager");
    await form.getByLabel("URL").fill(`http://127.0.0.1:${hook.address().port}/hook`);
    await choose(form, page, "Tell it of", /^Errors and worse/);
    await view.clean("the form of a webhook");
    await view.picture("light-webhook");
    // What the node's own machine answers is meant only when that was said.
    await form.getByRole("button", { name: "Add", exact: true }).click();
    await form.getByText(/Nothing would be sent to 127\.0\.0\.1/).waitFor();
    await form.getByText("It may be on the node’s machine or its link").click();
    await send(page, "Add");
    await act(page, "Actions for notifier pager", "Send a test");
    await until("the test has come", async () => told.some((message) => message.event === "test"));
    await page.getByText("pager has taken the test.").first().waitFor();
    const [kept] = (await ask("GET", "/notifiers")).items;
    if (kept.severity !== "error" || !kept.allow_local) throw new Error(`it was changed to ${JSON.stringify(kept)}`);
    await view.clean("settings with a webhook");
    await view.picture("light-settings-webhook");
    await act(page, "Actions for notifier pager", "Remove …");
    await confirm(view, "Remove", "pager");
    await card.getByText("Nobody is told when something goes wrong.").waitFor();
  } finally {
    hook.close();
  }
}

/** Sign, colour and word are those of the sentence: never better than the worst line that nobody has acknowledged. */
export async function overviewLooksAsItIs({ open, ask }) {
  const real = await ask("GET", "/status");
  const who = { by: "a", time: 1, note: "" };
  for (const [verdict, severity, acknowledged, tone, word] of [
    ["fully-redundant", "error", undefined, "bad", "fault"],
    ["fully-redundant", "warning", undefined, "warn", "warning"],
    ["fully-redundant", "info", undefined, "good", "fully redundant"],
    ["fully-redundant", "error", who, "good", "fully redundant"],
    ["fully-redundant", "critical", who, "bad", "fault"],
    ["reduced", "error", undefined, "warn", "reduced"],
    ["unavailable", "critical", who, "bad", "unavailable"],
  ]) {
    const issues = [{ code: "pool-space", id: "1", severity, subject: "pool p", detail: "it is full", todo: "", since: 1, acknowledged }];
    const view = await open({
      answer(request, response, url) {
        if (url.pathname !== "/v1/status") return false;
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ ...real, verdict, issues }));
        return true;
      },
    });
    await view.go("", "Overview");
    await view.page.locator(`.bar .verdict.${tone}`, { hasText: word }).waitFor();
    await view.page.locator(`.card.health.${tone}`).waitFor();
  }
}
