// What people do on the pages, as steps of cases.

/** Opens the menu of something and takes a line of it. */
export async function act(page, label, title) {
  await page.getByRole("button", { name: label, exact: true }).click();
  await page.getByRole("menuitem", { name: title, exact: true }).click();
}

/** The dialog that is open. */
export const dialog = (page) => page.getByRole("dialog");

/** Chooses one of a list that opens. */
export async function choose(scope, page, label, option) {
  await scope.getByRole("button", { name: new RegExp(label) }).click();
  await page.getByRole("option", { name: option }).click();
}

/** Sends a form and waits until it is gone. */
export async function send(page, button) {
  await dialog(page).getByRole("button", { name: button, exact: true }).click();
  await dialog(page).waitFor({ state: "detached" });
}

/** Answers the question before something is destroyed: a wrong name does nothing, the right one does it. */
export async function confirm(view, button, name) {
  const { page } = view;
  const asked = dialog(page);
  const field = asked.getByLabel(`Type ${name} to confirm`);
  await field.waitFor();
  await view.clean(`the question before “${button}”`);
  const yes = asked.getByRole("button", { name: button, exact: true });
  if (!(await yes.isDisabled())) throw new Error(`“${button}” can be pressed before the name was typed`);
  await field.fill(`${name}x`);
  if (!(await yes.isDisabled())) throw new Error(`“${button}” can be pressed with another name`);
  await field.fill(name);
  await yes.click();
  await asked.waitFor({ state: "detached" });
}

/** Answers a question that asks for no name. */
export async function yes(page, button) {
  await dialog(page).getByRole("button", { name: button, exact: true }).click();
  await dialog(page).waitFor({ state: "detached" });
}
