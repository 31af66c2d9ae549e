// Lists of what two nodes have, as a cluster answers them: what is done to a row is asked for as that row's, never as what the node
// that is asked calls the same. The answers are made here; what a real cluster answers, tests of the node look at.
import { act, confirm, dialog, send, yes } from "./steps.mjs";

const GUID = "6f3e5bd2-4a0e-4f0b-9a55-0d5f9be1c2b7";
const traffic = { commands: 1, read_bytes: 0, written_bytes: 0, connections: 1, address: "192.0.2.1:50000" };
const session = (node) => ({ id: 7, node, protocol: "iscsi", initiator: "iqn.2026-01.org.example:vmhost", target: "iqn.2026-01.org.example:t", ...traffic });
const openFile = (node) => ({ id: 7, node, session: 1, share: "vmstore", path: "\\vm.vhdx", user: "vmhost", address: "192.0.2.1:50000", access: "0x1", caching: "none", lasting: "persistent", directory: false });
const job = (node) => ({ id: 7, node, kind: "scrub", subject: `pool of ${node}`, state: "running", done_bytes: 1, total_bytes: 2, bytes_per_second: 1, started: 1 });
const disk = (id, node, more) => ({ id, node, path: "/dev/sdb", state: "free", size_bytes: 2 ** 30, media: "ssd", ...more });
const volume = (pool, node, redundancy) => ({
  name: "vm", pool, node, online: true, resiliency: "mirror2", redundancy, provisioning: "thin", columns: 1, interleave_bytes: 65536, size_bytes: 2 ** 30, used_bytes: 0, allocated_bytes: 0,
});
const POOL = {
  name: "twin", guid: "9d0b0a53-8dbb-4d1f-a1d8-0e4f6b2f2f11", state: "online", redundancy: "full", capacity_bytes: 2 ** 31, allocated_bytes: 0, free_bytes: 2 ** 31, disks: 1, disks_missing: 0,
  volumes: 0, repair_bytes: 0, slab_bytes: 2 ** 26, epoch: 1,
};

/** Answers as node n1 of a cluster does; `asked` gets what is asked for to be changed. A change that is in `lists`, as `POST /path`, is
 * answered by what is there, which is given its body. */
function answers(lists, asked = []) {
  return (request, response, url) => {
    const path = url.pathname.slice("/v1".length);
    const say = (status, body) => response.writeHead(status, { "content-type": status < 400 ? "application/json" : "application/problem+json" }).end(JSON.stringify(body));
    if (request.method === "GET") {
      const list = lists[path];
      if (!list) return false;
      say(200, Array.isArray(list) ? { items: list } : list);
      return true;
    }
    let text = "";
    request.on("data", (chunk) => (text += chunk));
    request.on("end", () => {
      const body = text ? JSON.parse(text) : {};
      const what = `${request.method} ${decodeURIComponent(path)}${decodeURIComponent(url.search)}`;
      asked.push(what);
      if (lists[what]) return say(200, lists[what](body));
      if (request.method === "DELETE" && !body.confirm) say(428, { type: "about:blank", title: "Confirm it", status: 428, code: "confirmation-required", detail: "It ends.", destroys: ["It ends."], confirm: "7" });
      else say(200, { message: "It is done." });
    });
    return true;
  };
}

const same = (what, found, wanted) => {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${what}: ${JSON.stringify(found)} in place of ${JSON.stringify(wanted)}`);
};

/** Session 7 and open 7 are there twice; those of n2 are ended on n2. */
export async function endsWhatIsOnAnotherNode({ open }) {
  const asked = [];
  const view = await open({ answer: answers({ "/sessions": [session("n1"), session("n2")], "/opens": [openFile("n1"), openFile("n2")], "/jobs": [job("n1"), job("n2")] }, asked) });
  const { page } = view;
  await view.go("sessions", "Sessions and opens");
  const nodes = (table) => page.getByRole("region", { name: `${table}, table` }).locator("tbody td:nth-child(2)").allInnerTexts();
  await page.getByRole("columnheader", { name: "Node" }).nth(1).waitFor();
  same("nodes of the sessions", await nodes("Sessions"), ["n1", "n2"]);
  same("nodes of the opens", await nodes("Opens"), ["n1", "n2"]);
  await view.clean("sessions of two nodes");
  await view.picture("light-sessions-cluster");
  await act(page, "Actions for the session of iqn.2026-01.org.example:vmhost on node n2", "End …");
  await dialog(page).getByRole("heading", { name: "on node n2?" }).waitFor();
  await confirm(view, "End", "7");
  await act(page, "Actions for \\vm.vhdx on node n2", "Close …");
  await confirm(view, "Close it", "7");
  same("what was asked for", asked, ["DELETE /sessions/n2:7", "DELETE /sessions/n2:7", "DELETE /opens/n2:7", "DELETE /opens/n2:7"]);
  await view.go("jobs", "Jobs");
  await page.getByRole("progressbar", { name: "scrub of pool of n2 on node n2" }).waitFor();
  same("nodes of the jobs", (await nodes("Jobs")).sort(), ["n1", "n2"]);
}

/** A node alone says no node: there is no column for it, and numbers are sent as they are. */
export async function aNodeAloneHasNumbersOnly({ open }) {
  const asked = [];
  const view = await open({ answer: answers({ "/sessions": [session()], "/opens": [] }, asked) });
  await view.go("sessions", "Sessions and opens");
  await act(view.page, "Actions for the session of iqn.2026-01.org.example:vmhost", "End …");
  await confirm(view, "End", "7");
  same("what was asked for", asked, ["DELETE /sessions/7", "DELETE /sessions/7"]);
  same("columns for nodes", await view.page.getByRole("columnheader", { name: "Node" }).count(), 0);
}

/** Which nodes have not answered is said above each list, also above one that has nothing else. */
export async function silentNodesAreSaid({ open }) {
  const unanswered = [{ node: "n3", detail: "it does not answer; what it has is not shown." }];
  const paths = ["/sessions", "/opens", "/jobs", "/pools", "/disks", "/volumes", "/luns", "/shares", "/qos/flows"];
  const view = await open({ answer: answers(Object.fromEntries(paths.map((path) => [path, { items: [], unanswered }]))) });
  for (const [place, heading, lists] of [["sessions", "Sessions and opens", 2], ["jobs", "Jobs", 1], ["pools", "Pools", 1], ["disks", "Disks", 1], ["volumes", "Volumes", 1], ["luns", "LUNs", 1], ["shares", "Shares", 1], ["performance", "Performance", 1]]) {
    await view.go(place, heading);
    const said = view.page.getByText("Node n3: it does not answer; what it has is not shown.");
    await said.nth(lists - 1).waitFor();
    same(`how often /${place} says it`, await said.count(), lists);
    await view.clean(`/${place} with a silent node`);
  }
  await view.picture("light-silent-node");
}

/** The pool's node n2 calls its disk /dev/sdb, and so does n1 another one: the pool's is retired. */
export async function retiresTheDiskOfTheOtherNode({ open }) {
  const asked = [];
  const ours = { state: "online", guid: GUID, pool: "twin" };
  const lists = {
    "/disks": [disk("/dev/sdb", "n1"), disk("n2:/dev/sdb", "n2", ours)],
    "/pools": [{ ...POOL, node: "n2" }],
    "/pools/twin": { ...POOL, spaces: [], members: [{ guid: GUID, disk: "/dev/sdb", node: "n2", state: "online", size_bytes: 2 ** 30, allocated_bytes: 0, media: "ssd" }] },
    "/volumes": [],
  };
  const view = await open({ answer: answers(lists, asked) });
  const { page } = view;
  const retire = async () => {
    await page.getByRole("button", { name: /n2:sdb/ }).first().click();
    await dialog(page).getByRole("button", { name: "Retire" }).click();
    await page.getByRole("dialog", { name: "Retire disk n2:sdb?" }).waitFor();
    await yes(page, "Retire");
  };
  await view.go("pools", "Pools");
  await page.getByText("on node n2").waitFor();
  await view.go("pools/twin", "Pool twin");
  await retire();
  await view.go("disks", "Disks");
  await page.getByRole("heading", { name: "Node n1: no enclosure known" }).waitFor();
  await page.getByRole("heading", { name: "Node n2: no enclosure known" }).waitFor();
  await retire();
  await view.clean("disks of two nodes");
  await view.picture("light-disks-cluster");
  same("what was asked for", asked, ["POST /pools/twin/retire?disk=n2:/dev/sdb", "POST /pools/twin/retire?disk=n2:/dev/sdb"]);
}

/** Two pools have a volume of one name: each has its page, and only what says the pool is offered. */
export async function volumesOfOneName({ open }) {
  const asked = [];
  const view = await open({ answer: answers({ "/volumes": [volume("p1", "n1", "full"), volume("p2", "n2", "reduced")], "/luns": [], "/shares": [] }, asked) });
  const { page } = view;
  await view.go("volumes", "Volumes");
  await page.getByRole("link", { name: "vm", exact: true }).nth(1).click();
  await page.getByRole("heading", { level: 1, name: "Volume vm" }).waitFor();
  await page.getByText("reduced", { exact: true }).waitFor();
  await page.getByText("has a volume of this name, too").waitFor();
  await view.clean("a volume of a name that there is twice");
  await page.getByRole("button", { name: "Actions for volume vm" }).click();
  same("what is offered", await page.getByRole("menuitem").allInnerTexts(), ["Destroy …"]);
  await page.getByRole("menuitem", { name: "Destroy …" }).click();
  await confirm(view, "Destroy", "7");
  same("what was asked for", asked, ["DELETE /volumes/vm?pool=p2", "DELETE /volumes/vm?pool=p2"]);
}

const member = (number, state, more) => ({ name: `n${number}`, number, state, beat_age_ms: 20, pools: 1, addresses: [`10.0.0.${number}:7400`], api: "", release: "0.1.0", ...more });
const owned = (name, owner, state) => ({ name, guid: GUID.replace("6f3e5bd2", `0000000${name.slice(1)}`), owner, epoch: 3, state, reason: null, address: null });
const etcdOf = (number, more) => ({ url: `https://10.0.0.${number}:7402`, bytes: 2 ** 20, quota_bytes: 2 ** 30, state: "serving", ...more });
const CLUSTER = {
  "/cluster/place": { cluster: "store1", node: "n1", number: 1, address: "10.0.0.1:7401", changing: false },
  "/cluster": {
    cluster: "store1", node: "n1", takes_part: true,
    summary: ["Node n1 is up and has p1, p3.", "Node n2 is up and has p2.", "Node n3 is away.", "If a further node is lost, etcd has no majority."],
    nodes: [member(1, "up", { pools: 2 }), member(2, "up"), member(3, "away", { beat_age_ms: null, pools: 0, addresses: [], release: "" })],
    pools: [owned("p1", "n1", "online"), owned("p2", "n2", "online"), owned("p3", "n1", "moving")],
    etcd: [etcdOf(1), etcdOf(2), etcdOf(3, { bytes: null, state: "away", trouble: "Connection refused" })],
  },
};

/** Nodes, pools and etcd at a glance; nodes are drained and removed, a pool is moved, a node is let in. */
export async function showsTheClusterAndChangesIt({ open }) {
  const asked = [];
  const bodies = [];
  const kept = (answer) => (body) => {
    bodies.push(body);
    return answer;
  };
  const done = kept({ message: "It is done." });
  const view = await open({
    answer: answers({
      ...CLUSTER,
      "/cluster/balance": { moves: [{ pool: "p3", from: "n1", to: "n2", reason: "load" }], nodes: [{ node: "n1", pools: 2, load: 9000, pools_then: 1, load_then: 5000 }], stay: [{ pool: "p2", node: "n2", reason: "it is being repaired" }] },
      "POST /cluster/nodes/n2/pause": done,
      "POST /pools/p1/move": done,
      "POST /pools/p3/move": done,
      "POST /cluster/tokens": kept({ token: "hf1:a-secret", address: "10.0.0.1:7401", expires: 1_800_000_000 }),
    }, asked),
  });
  const { page } = view;
  await view.go("cluster", "Cluster store1");
  await page.getByText("If a further node is lost").waitFor();
  await page.getByRole("row", { name: "https://10.0.0.3:7402" }).getByText("no answer").waitFor();
  await view.clean("the page of a cluster");
  await view.picture("light-cluster");
  await act(page, "Actions for node n2", "Drain: give its pools away");
  await page.getByText("It is done.").first().waitFor();
  await act(page, "Actions for node n3", "Remove from the cluster …");
  await confirm(view, "Remove", "7");
  await act(page, "Actions for pool p1", "Move to another node …");
  await view.clean("moving a pool");
  await send(page, "Move");
  await page.getByRole("button", { name: "Rebalance …" }).click();
  await dialog(page).getByText("Pool p2 stays: it is being repaired").waitFor();
  await view.clean("rebalancing the cluster");
  await send(page, "Move 1 pool");
  await page.getByRole("button", { name: "Let a node join" }).click();
  await dialog(page).getByRole("button", { name: "Make a token" }).click();
  await dialog(page).getByText("hf1:a-secret", { exact: true }).waitFor();
  await view.clean("the token");
  same("what was asked for", asked, [
    "POST /cluster/nodes/n2/pause", "DELETE /cluster/nodes/n3", "DELETE /cluster/nodes/n3", "POST /pools/p1/move", "POST /pools/p3/move", "POST /cluster/tokens",
  ]);
  same("with what", bodies.slice(0, 3), [{ drain: true }, { node: "n2" }, { node: "n2" }]);
}

/** A node on its own begins a cluster, or joins one; what became of that is said. */
export async function aNodeAloneBeginsACluster({ open }) {
  const bodies = [];
  const lists = {
    "/cluster/place": { cluster: null, failed: "The token does not count." },
    "POST /cluster/init": (body) => {
      bodies.push(body);
      lists["/cluster/place"] = { cluster: null, changing: true };
      return lists["/cluster/place"];
    },
  };
  const view = await open({ answer: answers(lists) });
  const { page } = view;
  await view.go("cluster", "Cluster");
  await page.getByText("The token does not count.").waitFor();
  await view.clean("the page of a node on its own");
  await view.picture("light-cluster-none");
  await page.getByRole("button", { name: "Make a cluster …" }).click();
  await dialog(page).getByLabel("Name of the cluster").fill("store 1");
  if (!(await dialog(page).getByRole("button", { name: "Make it" }).isDisabled())) throw new Error("a name with a blank can be sent");
  await dialog(page).getByLabel("Name of the cluster").fill("store1");
  await dialog(page).getByLabel("Address for other nodes").fill("10.0.0.1");
  await view.clean("making a cluster");
  await send(page, "Make it");
  await page.getByText("This node is about to start again").waitFor();
  same("what was asked for", bodies, [{ name: "store1", address: "10.0.0.1" }]);
}
