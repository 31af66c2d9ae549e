// Every page, in light, in the dark and on a phone: it comes up, axe finds nothing, nothing sticks out at the side.
const PAGES = [
  ["", "Overview"],
  ["performance", "Performance"],
  ["jobs", "Jobs"],
  ["cluster", "Cluster"],
  ["pools", "Pools"],
  ["pools/demo", "Pool demo"],
  ["disks", "Disks"],
  ["volumes", "Volumes"],
  ["volumes/vm", "Volume vm"],
  ["volumes/vm/files", "Volume vm"],
  ["volumes/vm/snapshots", "Volume vm"],
  ["snapshots", "Snapshots"],
  ["luns", "LUNs"],
  ["luns/disk1", "LUN disk1"],
  ["targets", "Targets and initiators"],
  ["shares", "Shares"],
  ["shares/vmstore", "Share vmstore"],
  ["users", "Users and groups"],
  ["sessions", "Sessions and opens"],
  ["setup", "Set up storage"],
  ["settings", "Settings"],
  ["changes", "Changes"],
  ["nowhere", "There is no such page"],
];

const MODES = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true },
};

async function all(open, mode) {
  const view = await open(MODES[mode]);
  for (const [place, heading] of PAGES) {
    await view.go(place, heading);
    await view.page.getByText("Asking the node …").first().waitFor({ state: "detached" });
    await view.page.getByText("The first rates come").first().waitFor({ state: "detached" });
    const wide = await view.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) throw new Error(`/${place} is ${wide} pixels wider than the window`);
    await view.clean(`/${place} (${mode})`);
    await view.picture(`${mode}-${place.replaceAll("/", "-") || "overview"}`);
  }
}

export const everyPageInLight = ({ open }) => all(open, "light");
export const everyPageInTheDark = ({ open }) => all(open, "dark");
export const everyPageOnAPhone = ({ open }) => all(open, "phone");

/** On a phone the navigation is behind a button, and gone again after it led somewhere. */
export async function navigationOnAPhone({ open }) {
  const view = await open(MODES.phone);
  await view.go("", "Overview");
  const menu = view.page.getByRole("button", { name: "Navigation" });
  await menu.click();
  await view.clean("the navigation on a phone");
  await view.picture("phone-navigation");
  await view.page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Volumes" }).click();
  await view.page.getByRole("heading", { level: 1, name: "Volumes" }).waitFor();
  await view.page.getByRole("navigation", { name: "Pages" }).waitFor({ state: "hidden" });
}

/** What is chosen stays chosen in this browser, whatever the system says. */
export async function darkModeIsChosen({ open }) {
  const view = await open(MODES.light);
  await view.go("", "Overview");
  await view.page.getByRole("button", { name: "Use dark colours" }).click();
  await view.page.reload();
  await view.page.getByRole("button", { name: "Use light colours" }).waitFor();
  const theme = await view.page.evaluate(() => document.documentElement.dataset.theme);
  if (theme !== "dark") throw new Error(`the page is ${theme}`);
}
