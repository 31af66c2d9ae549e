// The cluster: who owns what, who is away, what a further loss would do; and for a node on its own, the way into one.
import { useState } from "react";
import { api, ask } from "../api/client";
import { useCluster, useClusterPlace } from "../api/queries";
import type { ClusterMember, ClusterPlace, ClusterPool, ClusterStatus, ClusterToken, EtcdMember } from "../api/types";
import { Button, type Action } from "../parts/controls";
import { destroy, perform } from "../parts/dialog";
import { bytes, percent } from "../parts/format";
import { Icon } from "../parts/icons";
import { Card, Empty, Page, Wait } from "../parts/page";
import { Badge, type Tone } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { to } from "../router";
import { BalanceDialog, InitDialog, JoinDialog, MoveDialog, TokenDialog, TokenMade } from "./cluster-dialogs";

const NODE: Record<ClusterMember["state"], Tone> = { up: "good", paused: "calm", draining: "busy", silent: "bad", away: "bad" };
const POOL: Record<ClusterPool["state"], Tone> = { online: "good", unknown: "warn", moving: "busy", silent: "bad", unowned: "bad" };

export default function Cluster() {
  const place = useClusterPlace();
  return (
    <Wait of={place}>
      {(now) => (now.cluster ? <Member place={now} /> : <Alone place={now} />)}
    </Wait>
  );
}

/** What became of the last change of the place, or that one is under way. */
function Change({ place }: { place: ClusterPlace }) {
  const said = place.changing ? "This node is about to start again with another place; the pages go on by themselves." : place.failed;
  if (!said) return null;
  return <div className="notice" role="status"><Icon name={place.changing ? "progress" : "warning"} /><div><p>{said}</p></div></div>;
}

function Alone({ place }: { place: ClusterPlace }) {
  const [open, setOpen] = useState<"init" | "join" | null>(null);
  return (
    <Page title="Cluster" lead="Several nodes serve one set of pools: when one dies, hangs or is taken down, another one takes its pools over.">
      <Change place={place} />
      <div className="two">
        <Card title="Begin a cluster with this node">
          <p>Nothing moves: its pools, shares and users are the cluster’s from then on. Then let other nodes join.</p>
          <p><Button needs="POST /v1/cluster/init" look="primary" isDisabled={place.changing ?? false} onPress={() => setOpen("init")}>Make a cluster …</Button></p>
        </Card>
        <Card title="Join a cluster">
          <p>This node must have no pools, users or shares of its own. A node of the cluster makes a token for it, which counts once.</p>
          <p><Button needs="POST /v1/cluster/join" isDisabled={place.changing ?? false} onPress={() => setOpen("join")}>Join with a token …</Button></p>
        </Card>
      </div>
      {open === "init" && <InitDialog onClose={() => setOpen(null)} />}
      {open === "join" && <JoinDialog onClose={() => setOpen(null)} />}
    </Page>
  );
}

type Open = { what: "token" | "balance" } | { what: "move"; pool: ClusterPool } | null;

function Member({ place }: { place: ClusterPlace }) {
  const cluster = useCluster();
  const [open, setOpen] = useState<Open>(null);
  const [token, setToken] = useState<ClusterToken | null>(null);
  const close = () => setOpen(null);
  return (
    <Page
      title={`Cluster ${place.cluster}`}
      lead={`As node ${place.node} sees it.`}
      actions={(
        <>
          <Button needs="POST /v1/pools/{pool}/move" onPress={() => setOpen({ what: "balance" })}>Rebalance …</Button>
          <Button needs="POST /v1/cluster/tokens" look="primary" icon="add" onPress={() => setOpen({ what: "token" })}>Let a node join</Button>
        </>
      )}
    >
      <Change place={place} />
      <Wait of={cluster}>
        {(now) => (
          <>
            <Summary cluster={now} />
            <Card title="Nodes"><Nodes cluster={now} /></Card>
            <Card title="Pools"><Pools cluster={now} onMove={(pool) => setOpen({ what: "move", pool })} /></Card>
            {(now.etcd ?? []).length > 0 && (
              <Card title="etcd" aside={<span className="help">keeps what the nodes share; more than half of its members must answer</span>}>
                <Table label="Members of etcd" rows={now.etcd ?? []} columns={ETCD} id={(row) => row.url} empty={<Empty title="No member is known." />} />
              </Card>
            )}
            {open?.what === "move" && <MoveDialog pool={open.pool} nodes={now.nodes} onClose={close} />}
          </>
        )}
      </Wait>
      {open?.what === "token" && <TokenDialog onClose={close} then={setToken} />}
      {token && <TokenMade made={token} onClose={() => setToken(null)} />}
      {open?.what === "balance" && <BalanceDialog onClose={close} />}
    </Page>
  );
}

function Summary({ cluster }: { cluster: ClusterStatus }) {
  // The sentence on what a further loss would do is the last one, and matters most; the others say in words what the tables show.
  const [loss, ...rest] = [...cluster.summary].reverse();
  return (
    <Card title="At a glance">
      {cluster.trouble && <p className="warn-text">This node takes no part: {cluster.trouble}.</p>}
      {cluster.store_went_back && <p className="warn-text">What the nodes share has gone back in time: {cluster.store_went_back}.</p>}
      <p><strong>{loss}</strong></p>
      <p className="help">{rest.reverse().join(" ")}</p>
    </Card>
  );
}

/** Who has given all its pools away drains no more: it waits for whoever works at it. */
function NodeState({ node }: { node: ClusterMember }) {
  if (node.state === "draining" && node.pools === 0) return <Badge tone="calm">drained</Badge>;
  return <Badge tone={NODE[node.state]}>{node.state}</Badge>;
}

const NODES: Column<ClusterMember>[] = [
  { title: "Node", value: (row) => row.name },
  { title: "State", value: (row) => row.state, cell: (row) => <NodeState node={row} /> },
  { title: "Last beat", value: (row) => row.beat_age_ms ?? Infinity, cell: (row) => (row.beat_age_ms == null ? "–" : `${row.beat_age_ms.toLocaleString("en")} ms ago`), end: true },
  { title: "Pools", value: (row) => row.pools, end: true },
  { title: "Address", value: (row) => row.addresses[0] ?? "–", wide: true },
  { title: "Release", value: (row) => row.release || "–", wide: true },
  { title: "Problem", value: (row) => row.trouble ?? "", wide: true, wrap: true },
];

function nodeActions({ name, state }: ClusterMember): Action[] {
  const at = { params: { path: { node: name } } };
  const pause = (drain: boolean, confirm?: string) => ask(api.POST("/v1/cluster/nodes/{node}/pause", { ...at, body: { drain, confirm } }));
  const resume: Action = {
    id: "resume",
    title: "Resume: take pools again", needs: "POST /v1/cluster/nodes/{node}/resume",
    run: () => void perform(() => ask(api.POST("/v1/cluster/nodes/{node}/resume", at))),
  };
  const stop: Action[] = [
    { id: "drain", title: "Drain: give its pools away", needs: "POST /v1/cluster/nodes/{node}/pause", run: () => destroy({ title: `Drain node ${name}`, button: "Drain", call: (confirm) => pause(true, confirm) }) },
    { id: "pause", title: "Pause: take no more pools", needs: "POST /v1/cluster/nodes/{node}/pause", run: () => void perform(() => pause(false)) },
  ];
  const gone: Action = {
    id: "remove",
    title: "Remove from the cluster …", needs: "DELETE /v1/cluster/nodes/{node}",
    danger: true,
    run: () => destroy({
      title: `Remove node ${name} from the cluster`,
      button: "Remove",
      call: (confirm) => ask(api.DELETE("/v1/cluster/nodes/{node}", { ...at, body: { confirm } })),
    }),
  };
  switch (state) {
    case "up": return stop;
    case "paused": return [resume, ...stop.slice(0, 1)];
    case "draining": return [resume];
    default: return [gone];
  }
}

function Nodes({ cluster }: { cluster: ClusterStatus }) {
  return (
    <Table
      label="Nodes"
      rows={cluster.nodes}
      columns={NODES}
      id={(row) => String(row.number)}
      empty={<Empty title="No node is known." />}
      actions={(row) => ({ label: `Actions for node ${row.name}`, actions: nodeActions(row) })}
    />
  );
}

const POOLS: Column<ClusterPool>[] = [
  { title: "Pool", value: (row) => row.name, cell: (row) => <a href={to("pools", row.name)}>{row.name}</a> },
  { title: "Owner", value: (row) => row.owner ?? "nobody" },
  { title: "State", value: (row) => row.state, cell: (row) => <Badge tone={POOL[row.state]}>{row.state}</Badge> },
  { title: "Epoch", value: (row) => row.epoch, end: true, wide: true },
  { title: "Service address", value: (row) => row.address ?? "–", wide: true },
  { title: "Reason", value: (row) => row.reason ?? "", wide: true, wrap: true },
];

function Pools({ cluster, onMove }: { cluster: ClusterStatus; onMove: (pool: ClusterPool) => void }) {
  return (
    <Table
      label="Pools"
      rows={cluster.pools}
      columns={POOLS}
      id={(row) => row.guid}
      empty={<Empty title="The cluster has no pool yet." />}
      actions={(row) => ({
        label: `Actions for pool ${row.name}`,
        actions: [{ id: "move", title: "Move to another node …", needs: "POST /v1/pools/{pool}/move", run: () => onMove(row) }],
      })}
    />
  );
}

const ETCD_STATES: Record<EtcdMember["state"], [Tone, string]> = {
  away: ["bad", "no answer"],
  damaged: ["bad", "damaged"],
  "no-leader": ["bad", "no leader"],
  full: ["bad", "full"],
  serving: ["good", "answers"],
};

function ofEtcd({ state }: EtcdMember): [Tone, string] {
  return ETCD_STATES[state];
}

const ETCD: Column<EtcdMember>[] = [
  { title: "Member", value: (row) => row.url, wrap: true },
  { title: "State", value: (row) => ofEtcd(row)[1], cell: (row) => <Badge tone={ofEtcd(row)[0]}>{ofEtcd(row)[1]}</Badge> },
  { title: "Database", value: (row) => row.bytes ?? -1, cell: (row) => (row.bytes == null ? "–" : bytes(row.bytes)), end: true },
  { title: "Of its quota", value: (row) => percent(row.bytes ?? 0, row.quota_bytes ?? 0), cell: (row) => (row.bytes == null || !row.quota_bytes ? "–" : `${percent(row.bytes, row.quota_bytes).toFixed(1)} %`), end: true, wide: true },
  { title: "Problem", value: (row) => row.trouble ?? "", wide: true, wrap: true },
];
