// Making a cluster, joining one, letting others join, and moving pools between nodes.
import { useEffect, useState } from "react";
import { api, ask } from "../api/client";
import { useClusterPlace } from "../api/queries";
import type { ClusterMember, ClusterPool, ClusterToken } from "../api/types";
import { Choice, Field } from "../parts/controls";
import { Command, FormDialog, ReadDialog } from "../parts/dialog";
import { many, number, quote, time } from "../parts/format";
import { ProblemBox } from "../parts/problem";
import { Table } from "../parts/table";

const NAME = /^[\w.-]{1,64}$/;
const filled = (text: string) => text.trim() || undefined;
const option = (name: string, value: string) => (value.trim() ? ` ${name} ${quote(value.trim())}` : "");

/** Where this node is reached and what it is called, which init and join both ask for. */
function Here({ address, onAddress, name, onName }: { address: string; onAddress: (text: string) => void; name: string; onName: (text: string) => void }) {
  return (
    <div className="fields">
      <Field label="Address for other nodes" value={address} onChange={onAddress} placeholder="10.0.0.1" help="IP or IP:PORT; six ports from it on are used, 7400 without one. Needed where the machine has several addresses." />
      <Field label="Name of this node" value={name} onChange={onName} help="The machine’s name when empty." />
    </div>
  );
}

export function InitDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [address, setAddress] = useState("");
  const [node, setNode] = useState("");
  const wrong = NAME.test(name) ? null : "1 to 64 letters, digits, - _ and .";
  return (
    <FormDialog
      title="Make a cluster"
      button="Make it"
      onClose={onClose}
      wrong={wrong !== null}
      preview={(
        <ul>
          <li>This node runs etcd (Debian’s package etcd-server), and starts again once: clients wait for a second or two and go on.</li>
          <li>Pools, shares, targets and users stay as they are, and are the cluster’s.</li>
        </ul>
      )}
      command={wrong === null ? `holdfast cluster init --name ${quote(name)}${option("--address", address)}${option("--node-name", node)}` : undefined}
      submit={async () => {
        await ask(api.POST("/v1/cluster/init", { body: { name, address: filled(address), node_name: filled(node) } }));
        return "This node starts again as the first one of the cluster.";
      }}
    >
      <Field label="Name of the cluster" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
      <Here address={address} onAddress={setAddress} name={node} onName={setNode} />
    </FormDialog>
  );
}

export function JoinDialog({ onClose }: { onClose: () => void }) {
  const [token, setToken] = useState("");
  const [address, setAddress] = useState("");
  const [node, setNode] = useState("");
  return (
    <FormDialog
      title="Join a cluster"
      button="Join"
      onClose={onClose}
      wrong={!token.trim()}
      preview={<p>This node starts again as one of the cluster, with the cluster’s configuration and users in place of its own.</p>}
      command={`holdfast cluster join --token-file FILE${option("--address", address)}${option("--node-name", node)}`}
      submit={async () => {
        await ask(api.POST("/v1/cluster/join", { body: { token: token.trim(), address: filled(address), node_name: filled(node) } }));
        return "This node starts again as one of the cluster.";
      }}
    >
      <Field label="Token" value={token} onChange={setToken} type="password" help="The line that a node of the cluster has made; it counts once." required autoFocus />
      <Here address={address} onAddress={setAddress} name={node} onName={setNode} />
    </FormDialog>
  );
}

/** Makes a token, which `then` is given: it is shown once. */
export function TokenDialog({ onClose, then }: { onClose: () => void; then: (made: ClusterToken) => void }) {
  return (
    <FormDialog
      title="Let a node join"
      button="Make a token"
      onClose={onClose}
      wrong={false}
      preview={<p>A token lets one node in, within 24 hours. Whoever has it gets in: keep it secret.</p>}
      command="holdfast cluster token"
      submit={async () => {
        then(await ask(api.POST("/v1/cluster/tokens")));
        return "The token is made.";
      }}
    >
      <p>The node that is to join runs the same release of Holdfast, and has no pools, users or shares of its own.</p>
    </FormDialog>
  );
}

export function TokenMade({ made, onClose }: { made: ClusterToken; onClose: () => void }) {
  return (
    <ReadDialog title="The token" onClose={onClose} wide>
      <p>It is shown here only, and counts once, until {time(made.expires)} UTC.</p>
      <Command text={made.token} label="Token" />
      <Command text="holdfast cluster join --token-file - --address ADDRESS-OF-THAT-NODE" label="On the node that joins, which reads the token from its standard input" />
    </ReadDialog>
  );
}

export function MoveDialog({ pool, nodes, onClose }: { pool: ClusterPool; nodes: readonly ClusterMember[]; onClose: () => void }) {
  const others = nodes.filter((node) => node.state === "up" && node.name !== pool.owner);
  const [to, setTo] = useState(others[0]?.name ?? "");
  return (
    <FormDialog
      title={`Move pool ${pool.name}`}
      button="Move"
      onClose={onClose}
      wrong={!to}
      preview={to && <p>Node {to} serves it within a second or two. Clients wait and go on; initiators without a path to node {to} lose their disk.</p>}
      command={to ? `holdfast pool move ${quote(pool.name)} ${quote(to)}` : undefined}
      submit={async (confirm) => {
        const done = await ask(api.POST("/v1/pools/{pool}/move", { params: { path: { pool: pool.name } }, body: { node: to, confirm } }));
        return done.message;
      }}
    >
      {others.length === 0
        ? <p>No other node takes pools now.</p>
        : <Choice label="To node" value={to} onChange={setTo} options={others.map((node) => ({ id: node.name, title: node.name, detail: many(node.pools, "pool") }))} />}
    </FormDialog>
  );
}

type Balance = Awaited<ReturnType<typeof balance>>;
const balance = () => ask(api.GET("/v1/cluster/balance"));

/** What would even out what nodes have to do, with the fewest moves; it does one after the other. */
export function BalanceDialog({ onClose }: { onClose: () => void }) {
  const place = useClusterPlace();
  const [told, setTold] = useState<Balance | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  useEffect(() => {
    balance().then(setTold, setProblem);
  }, []);
  // Where hosts lose something by it, each pool is asked about by itself.
  const moves = (told?.moves ?? []).filter((move) => !move.discards?.length);
  const asked = (told?.moves ?? []).filter((move) => move.discards?.length);
  return (
    <FormDialog
      title="Rebalance the cluster"
      button={moves.length ? `Move ${many(moves.length, "pool")}` : "Move"}
      onClose={onClose}
      wide
      wrong={moves.length === 0}
      preview={told && (moves.length === 0
        ? <p>There is nothing to move.</p>
        : <ul>{moves.map((move) => <li key={move.pool}>Pool {move.pool} goes from node {move.from} to {move.to}.</li>)}</ul>)}
      command="holdfast cluster rebalance"
      submit={async () => {
        for (const { pool, to } of moves) {
          await ask(api.POST("/v1/pools/{pool}/move", { params: { path: { pool } }, body: { node: to } }));
        }
        return `${many(moves.length, "pool")} moved in cluster ${place.data?.cluster ?? ""}.`;
      }}
    >
      {problem !== null && <ProblemBox error={problem} />}
      {!told && problem === null && <p role="status">Asking the node what would move …</p>}
      {told && (
        <Table
          label="Nodes before and after"
          rows={told.nodes}
          id={(node) => node.node}
          empty="No node takes pools."
          columns={[
            { title: "Node", value: (node) => node.node },
            { title: "Pools now", value: (node) => node.pools, end: true },
            { title: "Then", value: (node) => node.pools_then, end: true },
            { title: "I/O a second now", value: (node) => node.load, cell: (node) => number(node.load), end: true },
            { title: "Then", value: (node) => node.load_then, cell: (node) => number(node.load_then), end: true },
          ]}
        />
      )}
      {asked.length > 0 && <ul>{asked.map(({ pool, to, discards }) => <li key={pool}>Pool {pool} would go to node {to}, and is to be moved by itself: {discards?.join(" ")}</li>)}</ul>}
      {told && told.stay.length > 0 && <ul>{told.stay.map(({ pool, reason }) => <li key={pool}>Pool {pool} stays: {reason}</li>)}</ul>}
    </FormDialog>
  );
}
