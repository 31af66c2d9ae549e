// The frame: keyboard, login, roles, and what is said when the node says no or nothing.

/** Sends what a node with users would answer. */
function json(response, status, body) {
  response.writeHead(status, { "content-type": status >= 400 ? "application/problem+json" : "application/json" });
  response.end(JSON.stringify(body));
  return true;
}

/** Everything is reached without a mouse: skip link, navigation, menu, dialog, and back to where one was. */
export async function keyboardWalk({ open, until }) {
  const view = await open();
  const { page } = view;
  await view.go("", "Overview");
  const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim() || document.activeElement?.id || document.activeElement?.getAttribute("aria-label"));
  await page.keyboard.press("Tab");
  if ((await focused()) !== "Skip to the page") throw new Error(`the first stop is ${await focused()}`);
  await page.keyboard.press("Enter");
  if ((await page.evaluate(() => document.activeElement?.id)) !== "main") throw new Error("the skip link leads elsewhere");
  // Each page of the navigation by Tab and Enter; its heading has the focus then.
  for (const title of ["Pools", "LUNs", "Settings"]) {
    await page.evaluate(() => document.querySelector(".brand").focus());
    for (let step = 0; step < 40 && (await focused()) !== title; step += 1) await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: title }).waitFor();
    const seen = await page.evaluate(() => {
      const style = getComputedStyle(document.activeElement);
      return document.activeElement.tagName === "H1" || style.outlineStyle !== "none";
    });
    if (!seen) throw new Error(`on ${title} nobody sees where the focus is`);
  }
  await view.go("pools/demo", "Pool demo");
  await page.getByRole("button", { name: "Actions for pool demo" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("menu").waitFor();
  await view.clean("an open menu");
  await page.keyboard.press("End");
  if (!(await focused())?.startsWith("Destroy")) throw new Error(`the end of the menu is ${await focused()}`);
  await page.keyboard.press("Escape");
  await page.getByRole("menu").waitFor({ state: "detached" });
  // A dialog keeps the focus, Escape closes it, and the focus is where it was.
  await view.go("pools", "Pools");
  const create = page.getByRole("button", { name: "Create pool" });
  await create.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await view.clean("the dialog that creates a pool");
  for (let step = 0; step < 15; step += 1) {
    await page.keyboard.press("Tab");
    if (!(await page.evaluate(() => document.querySelector("[role=dialog]")?.contains(document.activeElement)))) throw new Error("the focus has left the dialog");
  }
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await until("the focus is where it was", async () => (await focused()) === "Create pool");
}

/** A node that wants to know who it is: login, a wrong password, the role viewer without changes, logout. */
export async function loginAndRoles({ open }) {
  let session = null;
  const header = [];
  const view = await open({
    answer(request, response, url) {
      if (url.pathname === "/v1/login") {
        header.push(request.headers["x-holdfast-request"]);
        let text = "";
        request.on("data", (chunk) => (text += chunk));
        request.on("end", () => {
          const { user, password } = JSON.parse(text);
          if (password !== "right") {
            json(response, 401, { type: "urn:holdfast:problem:unauthorized", title: "Wrong user or password", status: 401, code: "unauthorized", detail: `${user} is not let in with this password.`, todo: "Four more attempts are left." });
            return;
          }
          session = { user, role: user === "eve" ? "viewer" : "administrator", proof: "session" };
          json(response, 200, session);
        });
        return true;
      }
      if (url.pathname === "/v1/logout") {
        session = null;
        return json(response, 200, {});
      }
      if (!session) return json(response, 401, { type: "urn:holdfast:problem:unauthorized", title: "Log in", status: 401, code: "unauthorized", detail: "There is no session." });
      if (url.pathname === "/v1/me") return json(response, 200, session);
      return false;
    },
  });
  const { page } = view;
  await page.goto(`${view.url}#/volumes/vm`);
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  await view.clean("the login");
  await view.picture("light-login");
  const login = async (user, password) => {
    await page.getByLabel("User").fill(user);
    await page.getByLabel("Password").fill(password);
    await page.keyboard.press("Enter");
  };
  await login("eve", "wrong");
  await page.getByText("eve is not let in with this password.").waitFor();
  await page.getByText("Four more attempts are left.").waitFor();
  await login("eve", "right");
  // It leads to where one wanted to go.
  await page.getByRole("heading", { level: 1, name: "Volume vm" }).waitFor();
  await page.getByText("all copies counted").first().waitFor();
  if (await page.getByRole("button", { name: "Actions for volume vm" }).count()) throw new Error("a viewer is offered actions");
  for (const [place, button] of [["pools", "Create pool"], ["luns", "Create LUN"], ["shares", "Create share"], ["users", "Create user"]]) {
    await page.goto(`${view.url}#/${place}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    if (await page.getByRole("button", { name: button }).count()) throw new Error(`a viewer is offered “${button}”`);
  }
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  await login("adam", "right");
  await page.getByRole("button", { name: "Create user" }).waitFor();
  // A session that ends meanwhile leads to the login by itself.
  session = null;
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  if (!header.every((value) => value === "1")) throw new Error("a login was sent without the header that other sites cannot send");
}

/** A node that falls silent is said to be silent, what was shown stays, and it goes on by itself. */
export async function silentNode({ open, ask }) {
  let silent = false;
  const view = await open({
    answer(request) {
      if (silent) request.socket.destroy();
      return silent;
    },
  });
  const { page } = view;
  await view.go("", "Overview");
  const { summary } = await ask("GET", "/status");
  await page.getByText(summary).waitFor();
  silent = true;
  await page.getByText("No answer came from this node.").first().waitFor();
  await page.getByText("See whether it runs").first().waitFor();
  await view.clean("the overview of a silent node");
  await view.picture("light-silent");
  silent = false;
  await page.getByText("No answer came from this node.").first().waitFor({ state: "detached" });
}

/** A problem says what, where, what to do; names that look like markup are names. */
export async function problemsAreShown({ open }) {
  const name = "<img src=x onerror=alert(1)>";
  const view = await open({
    answer(request, response, url) {
      if (url.pathname === "/v1/users" && request.method === "GET") {
        return json(response, 200, { items: [{ name, sid: "S-1", full_name: "<b>x</b>", comment: "", disabled: false, password_set: 1, groups: [], sessions: 0, locked_seconds: 50 }] });
      }
      if (url.pathname.endsWith("/unlock")) {
        return json(response, 409, { type: "urn:holdfast:problem:wrong-state", title: "This can't be done in this state", status: 409, code: "wrong-state", detail: "The users' file is damaged.", todo: "See `holdfast status`." });
      }
      return false;
    },
  });
  const { page } = view;
  await view.go("users", "Users and groups");
  await page.getByRole("rowheader", { name, exact: true }).waitFor();
  await page.getByRole("button", { name: `Actions for user ${name}` }).click();
  await page.getByRole("menuitem", { name: "Let in again" }).click();
  const said = page.getByRole("alert");
  await said.getByText("This can't be done in this state").waitFor();
  await said.getByText("The users' file is damaged.").waitFor();
  await said.locator("code", { hasText: "holdfast status" }).waitFor();
  await view.clean("a problem in a toast");
  await view.picture("light-problem");
  await said.getByRole("button", { name: "Put away" }).click();
  await said.getByText("The users' file is damaged.").waitFor({ state: "detached" });
}
