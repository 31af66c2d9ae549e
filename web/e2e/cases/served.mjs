// The pages as the node itself serves them, over TLS with its own certificate: login by password, a change, logout.
import { dialog, send } from "./steps.mjs";

export async function servedByTheNode({ open, ask, options }) {
  if (!options.url) {
    return "there is no --url";
  }
  const view = await open({ url: options.url, ignoreHTTPSErrors: true });
  const { page } = view;
  const response = await page.goto(`${options.url}#/users`);
  const policy = response.headers()["content-security-policy"] ?? "";
  if (!policy.includes("script-src 'self'") || policy.includes("unsafe")) throw new Error(`the content security policy is “${policy}”`);
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  await view.clean("the login over TLS");
  const login = async (password) => {
    await page.getByLabel("User").fill(options.user);
    await page.getByLabel("Password").fill(password);
    await page.keyboard.press("Enter");
  };
  await login(`${options.password}x`);
  await page.getByRole("alert").getByRole("strong").or(page.getByRole("alert").locator("strong")).first().waitFor();
  await view.picture("light-login-refused");
  await login(options.password);
  await page.getByRole("heading", { level: 1, name: "Users and groups" }).waitFor();
  // A change with the cookie of the session, and its line in the record of changes.
  await page.getByRole("button", { name: "Create group" }).click();
  await dialog(page).getByLabel("Name", { exact: true }).fill("night-shift");
  await send(page, "Create");
  await page.getByRole("rowheader", { name: "night-shift" }).waitFor();
  await page.goto(`${options.url}#/changes`);
  await page.getByRole("row").filter({ hasText: options.user }).filter({ hasText: "night-shift" }).or(page.getByRole("row").filter({ hasText: options.user }).filter({ hasText: "group" })).first().waitFor();
  await view.clean("the record of changes");
  await view.picture("light-changes");
  // A token is shown once, and works.
  await page.goto(`${options.url}#/settings`);
  await page.getByRole("button", { name: "Create token" }).click();
  await dialog(page).getByLabel("What it is for").fill("monitoring");
  await view.clean("the form of a token");
  await dialog(page).getByRole("button", { name: "Create", exact: true }).click();
  await dialog(page).getByText("It is shown this once").waitFor();
  const secret = (await dialog(page).locator("pre").innerText()).trim();
  if (secret.length < 20) throw new Error(`the token is ${secret.length} characters long`);
  await dialog(page).getByRole("button", { name: "Close" }).last().click();
  await page.getByRole("rowheader", { name: "monitoring" }).waitFor();
  await view.clean("the settings over TLS");
  await view.picture("light-settings-tls");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  if ((await page.content()).includes("night-shift")) throw new Error("what was shown before is still in the page");
  await ask("DELETE", "/user-groups/night-shift", { confirm: "night-shift" });
}
