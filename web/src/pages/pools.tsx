// Pools: how full, how redundant, on which disks.
import { useState } from "react";
import { api, ask } from "../api/client";
import { useDisks, usePool, usePoolDetails, useVolumes } from "../api/queries";
import type { Pool, PoolDetail, SpaceState, Volume } from "../api/types";
import { Actions, Button, ButtonLink, type Action } from "../parts/controls";
import { destroy, perform } from "../parts/dialog";
import { DiskPicture, ofMember } from "../parts/disk-picture";
import { bytes, many, percent, time } from "../parts/format";
import { Card, Empty, Facts, Page, Wait } from "../parts/page";
import { Badge, Copies, Fill, RESILIENCY, Redundancy } from "../parts/states";
import { Table } from "../parts/table";
import { to, toVolume } from "../router";
import { CheckDialog } from "./check-dialog";
import { DiskDialog } from "./disk-dialogs";
import { AddDisksDialog, ImportDialog, PoolCreateDialog, RebalanceDialog } from "./pool-dialogs";

export default function Pools({ parts }: { parts: string[] }) {
  return parts[0] ? <One name={parts[0]} /> : <All />;
}

function All() {
  const { pools, details } = usePoolDetails();
  const [creating, setCreating] = useState(false);
  const [importing, setImporting] = useState(false);
  return (
    <Page
      title="Pools"
      lead="A pool is disks that share what they hold. Volumes take their space from it, each with the redundancy that it was given."
      actions={(
        <>
          <Button needs="POST /v1/pools/import" onPress={() => setImporting(true)}>Import …</Button>
          <Button needs="POST /v1/pools" look="primary" icon="add" onPress={() => setCreating(true)}>Create pool</Button>
        </>
      )}
    >
      <Wait of={pools}>
        {({ items }) => (
          items.length === 0 ? (
            <Empty title="There is no pool yet.">
              <p>Make one of free disks: <a href={to("setup")}>Set up</a> leads through it.</p>
            </Empty>
          ) : (
            <div className="pool-grid">
              {items.map((pool) => <PoolCard key={pool.guid} pool={pool} detail={details.find((one) => one.data?.guid === pool.guid)?.data} />)}
            </div>
          )
        )}
      </Wait>
      {creating && <PoolCreateDialog onClose={() => setCreating(false)} />}
      {importing && <ImportDialog onClose={() => setImporting(false)} />}
    </Page>
  );
}

const STATE = { online: "good", degraded: "warn", opening: "busy", "read-only": "warn", elsewhere: "calm", closed: "bad" } as const;

function PoolCard({ pool, detail }: { pool: Pool; detail?: PoolDetail }) {
  return (
    <section className="card" aria-label={`Pool ${pool.name}`}>
      <div className="card-head">
        <h2><a href={to("pools", pool.name)}>{pool.name}</a></h2>
        <span><Badge tone={STATE[pool.state]}>{pool.state}</Badge> <Redundancy state={pool.redundancy} /></span>
      </div>
      {pool.reason && <p className="warn-text">{pool.reason}</p>}
      <p className="figure">{bytes(pool.free_bytes)} <small>free of {bytes(pool.capacity_bytes)}</small></p>
      <Fill label={`In use of pool ${pool.name}`} used={pool.allocated_bytes} kept={pool.reserved_bytes} whole={pool.capacity_bytes} />
      <p className="help">
        {percent(pool.allocated_bytes, pool.capacity_bytes).toFixed(0)} % in use; {many(pool.disks, "disk")}
        {pool.disks_missing > 0 && `, ${pool.disks_missing} missing or failed`}; {many(pool.volumes, "volume")}
        {pool.node && `; on node ${pool.node}`}
      </p>
      <ul className="plain-list">
        {detail?.spaces.slice(0, 8).map((space) => (
          <li key={space.name}>
            <a href={toVolume(pool.name, space.name)}>{space.name}</a>
            <span><Copies resiliency={space.resiliency} state={space.redundancy} /> {RESILIENCY[space.resiliency].title}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

type Open = "check" | "add" | "rebalance" | null;

function One({ name }: { name: string }) {
  const pool = usePool(name);
  const disks = useDisks();
  const volumes = useVolumes();
  const [open, setOpen] = useState<Open>(null);
  const [picked, setPicked] = useState<string | null>(null);
  const path = { params: { path: { pool: name } } };
  const actions: Action[] = [
    { id: "add", title: "Add disks …", needs: "POST /v1/pools/{pool}/disks", run: () => setOpen("add") },
    { id: "rebalance", title: "Rebalance …", needs: "POST /v1/pools/{pool}/rebalance", run: () => setOpen("rebalance") },
    { id: "repair", title: "Restore redundancy now", needs: "POST /v1/pools/{pool}/repair", run: () => void perform(() => ask(api.POST("/v1/pools/{pool}/repair", path))) },
    { id: "scrub", title: "Scrub: read everything, heal damage", needs: "POST /v1/pools/{pool}/scrub", run: () => void perform(() => ask(api.POST("/v1/pools/{pool}/scrub", path))) },
    { id: "check", title: "Check structures …", needs: "POST /v1/pools/{pool}/check", run: () => setOpen("check") },
    {
      id: "export",
      title: "Export to another machine …", needs: "POST /v1/pools/{pool}/export",
      run: () => destroy({
        title: `Export pool ${name}`,
        button: "Export",
        call: (confirm) => ask(api.POST("/v1/pools/{pool}/export", { ...path, body: { confirm } })),
        then: () => { window.location.hash = to("pools"); },
      }),
    },
    ...(pool.data?.state === "closed" ? [{
      id: "forget",
      title: "Forget …", needs: "POST /v1/pools/{pool}/forget" as const,
      danger: true,
      run: () => destroy({
        title: `Forget pool ${name}`,
        button: "Forget",
        call: (confirm?: string) => ask(api.POST("/v1/pools/{pool}/forget", { ...path, body: { confirm } })),
        then: () => { window.location.hash = to("pools"); },
      }),
    }] : []),
    {
      id: "destroy",
      title: "Destroy …", needs: "DELETE /v1/pools/{pool}",
      danger: true,
      run: () => destroy({
        title: `Destroy pool ${name}`,
        button: "Destroy",
        call: (confirm) => ask(api.DELETE("/v1/pools/{pool}", { ...path, body: { confirm } })),
        then: () => { window.location.hash = to("pools"); },
      }),
    },
  ];
  return (
    <Page
      title={`Pool ${name}`}
      up={{ href: to("pools"), title: "Pools" }}
      actions={pool.data && (
        <>
          <ButtonLink needs="POST /v1/volumes" href={`${to("volumes")}?create=${encodeURIComponent(name)}`} look="primary" icon="add">Create volume</ButtonLink>
          <Actions label={`Actions for pool ${name}`} text="Actions" actions={actions} />
        </>
      )}
    >
      <Wait of={pool}>
        {(now) => {
          const shown = now.members.map((member) => ofMember(member, name, disks.data?.items.find((disk) => disk.guid === member.guid)));
          const one = shown.find((disk) => disk.id === picked);
          return (
            <>
              <Card title="State" aside={<span><Badge tone={STATE[now.state]}>{now.state}</Badge> <Redundancy state={now.redundancy} /></span>}>
                {now.reason && <p className="warn-text">{now.reason}</p>}
                <p className="figure">{bytes(now.free_bytes)} <small>free of {bytes(now.capacity_bytes)}</small></p>
                <Fill label="In use" used={now.allocated_bytes} kept={now.reserved_bytes} whole={now.capacity_bytes} />
                <br />
                <Facts
                  facts={[
                    ["In use", `${bytes(now.allocated_bytes)}, all copies counted`],
                    ["Kept for repair", now.reserved_bytes ? bytes(now.reserved_bytes) : null],
                    ["Still to copy", now.repair_bytes ? bytes(now.repair_bytes) : null],
                    ["Disks", `${now.disks}${now.disks_missing ? `, ${now.disks_missing} missing or failed` : ""}`],
                    ["Balance", now.balance ? `${now.balance.uneven_percent} points between the fullest and the emptiest disk` : null],
                    ["Scrub", scrubSaid(now)],
                    ["Slab", bytes(now.slab_bytes)],
                    ["Identity", now.guid],
                  ]}
                />
              </Card>
              <Card title="How its data survives" aside={<span className="help">a square is a copy; hollow: some data lacks it</span>}>
                <Spaces pool={name} spaces={now.spaces} volumes={volumes.data?.items ?? []} />
              </Card>
              <Card title="Disks by enclosure and slot">
                <DiskPicture disks={shown} onPick={(disk) => setPicked(disk.id)} />
              </Card>
              {one && <DiskDialog shown={one} onClose={() => setPicked(null)} />}
              {open === "add" && <AddDisksDialog pool={name} onClose={() => setOpen(null)} />}
              {open === "rebalance" && <RebalanceDialog pool={name} onClose={() => setOpen(null)} />}
              {open === "check" && <CheckDialog what="pool" name={name} onClose={() => setOpen(null)} />}
            </>
          );
        }}
      </Wait>
    </Page>
  );
}

function scrubSaid({ scrub }: PoolDetail): string | null {
  if (!scrub) return null;
  if (scrub.running) return `running: ${percent(scrub.rows_done, scrub.rows).toFixed(0)} %, ${many(scrub.damaged_blocks, "damaged block")} so far`;
  if (!scrub.finished_unix_ms) return "never finished";
  return `ended ${time(scrub.finished_unix_ms / 1000)} UTC: ${many(scrub.damaged_blocks, "damaged block")}, ${scrub.lost_blocks} beyond healing`;
}

function Spaces({ pool, spaces, volumes }: { pool: string; spaces: readonly SpaceState[]; volumes: readonly Volume[] }) {
  const of = (space: SpaceState) => volumes.find((volume) => volume.pool === pool && volume.name === space.name);
  return (
    <Table
      label={`Volumes of pool ${pool}`}
      rows={spaces}
      id={(space) => space.name}
      empty={<Empty title="There is no volume on it yet." />}
      columns={[
        { title: "Volume", value: (space) => space.name, cell: (space) => <a href={toVolume(pool, space.name)}>{space.name}</a> },
        { title: "Copies", value: (space) => space.resiliency, cell: (space) => <Copies resiliency={space.resiliency} state={space.redundancy} /> },
        { title: "Promise", value: (space) => RESILIENCY[space.resiliency].title, cell: (space) => `${RESILIENCY[space.resiliency].title}: ${RESILIENCY[space.resiliency].survives.replace(/^[^:]*: /, "")}`, wide: true, wrap: true },
        { title: "Now", value: (space) => space.redundancy, cell: (space) => <Redundancy state={space.redundancy} /> },
        { title: "To copy", value: (space) => space.repair_bytes, cell: (space) => (space.repair_bytes ? bytes(space.repair_bytes) : "–"), end: true },
        { title: "Takes", value: (space) => of(space)?.allocated_bytes ?? 0, cell: (space) => bytes(of(space)?.allocated_bytes ?? 0), end: true },
        { title: "Note", value: (space) => space.reason ?? "", wide: true, wrap: true },
      ]}
    />
  );
}
