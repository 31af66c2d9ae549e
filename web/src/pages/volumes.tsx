// Volumes: the space that files, LUNs and shares are on.
import { useState } from "react";
import { keyOf, useRates } from "../api/counters";
import { api, ask } from "../api/client";
import { keyOn } from "../api/nodes";
import { useIsHere, useLuns, usePools, useShares, useVolumes } from "../api/queries";
import type { Volume } from "../api/types";
import { Actions, Button, Check, Field, wrongSize, type Action } from "../parts/controls";
import { FormDialog, destroy } from "../parts/dialog";
import { bytes, milliseconds, number, parseBytes, percent, perSecond, quote } from "../parts/format";
import { Card, Empty, Facts, Page, Wait } from "../parts/page";
import { Performance } from "../parts/performance";
import { Copies, Fill, Online, RESILIENCY, Redundancy } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { to, toVolume } from "../router";
import { CheckDialog } from "./check-dialog";
import { Files } from "./files";
import { SnapshotsOf } from "./snapshot-parts";
import { VolumeCreateDialog } from "./volume-create";

export default function Volumes({ parts, query }: { parts: string[]; query: URLSearchParams }) {
  const [name, tab = ""] = parts;
  if (name === undefined) return <All create={query.get("create")} />;
  return <One name={name} pool={query.get("pool")} tab={tab} path={query.get("path") ?? "/"} />;
}

function All({ create }: { create: string | null }) {
  const volumes = useVolumes();
  const rates = useRates();
  const [creating, setCreating] = useState(create !== null);
  const isHere = useIsHere();
  // The counters are those of the node that is asked, which may have a volume of the same name.
  const rate = (volume: Volume) => (isHere(volume) ? rates.get(keyOf("volume", volume.name)) : undefined);
  const columns: Column<Volume>[] = [
    { title: "Volume", value: (row) => row.name, cell: (row) => <a href={toVolume(row.pool, row.name)}>{row.name}</a> },
    { title: "State", value: (row) => String(row.online), cell: (row) => <Online online={row.online} /> },
    { title: "Copies", value: (row) => row.resiliency, cell: (row) => <Copies resiliency={row.resiliency} state={row.redundancy} />, wide: true },
    { title: "Redundancy", value: (row) => row.redundancy, cell: (row) => <Redundancy state={row.redundancy} /> },
    { title: "Pool", value: (row) => row.pool, cell: (row) => <a href={to("pools", row.pool)}>{row.pool}</a>, wide: true },
    { title: "Size", value: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes), end: true },
    { title: "Used", value: (row) => row.used_bytes, cell: (row) => `${bytes(row.used_bytes)} (${percent(row.used_bytes, row.size_bytes).toFixed(0)} %)`, end: true },
    { title: "In the pool", value: (row) => row.allocated_bytes, cell: (row) => bytes(row.allocated_bytes), end: true, wide: true },
    { title: "IOPS", value: (row) => { const r = rate(row); return r ? r.read.iops + r.write.iops : 0; }, cell: (row) => { const r = rate(row); return r ? number(r.read.iops + r.write.iops) : "–"; }, end: true, wide: true },
    { title: "Throughput", value: (row) => { const r = rate(row); return r ? r.read.bytes + r.write.bytes : 0; }, cell: (row) => { const r = rate(row); return r ? perSecond(r.read.bytes + r.write.bytes) : "–"; }, end: true, wide: true },
    { title: "Write latency", value: (row) => rate(row)?.write.latency ?? 0, cell: (row) => milliseconds(rate(row)?.write.latency ?? null), end: true, wide: true },
  ];
  return (
    <Page
      title="Volumes"
      lead="A volume takes its space from a pool with the redundancy that it promises. LUNs are files of it, shares are folders of it."
      actions={<Button needs="POST /v1/volumes" look="primary" icon="add" onPress={() => setCreating(true)}>Create volume</Button>}
    >
      <Wait of={volumes}>
        {({ items }) => (
          <Table
            label="Volumes"
            rows={items}
            columns={columns}
            id={(row) => keyOn(row, row.pool, row.name)}
            empty={<Empty title="There is no volume yet."><p>Create one on a pool, then LUNs and shares on it.</p></Empty>}
          />
        )}
      </Wait>
      {creating && <VolumeCreateDialog pool={create} onClose={() => setCreating(false)} />}
    </Page>
  );
}

type Dialogs = "grow" | "cache" | "check" | null;

function One({ name, pool, tab, path }: { name: string; pool: string | null; tab: string; path: string }) {
  const volumes = useVolumes();
  const [open, setOpen] = useState<Dialogs>(null);
  const called = volumes.data?.items.filter((one) => one.name === name) ?? [];
  const volume = called.find((one) => pool === null || one.pool === pool);
  // Nearly all requests name a volume by its name alone: of several they would reach any.
  const twin = called.find((one) => one.pool !== volume?.pool);
  const where = { params: { path: { volume: name } } };
  const all: Action[] = [
    { id: "grow", title: "Grow …", needs: "PATCH /v1/volumes/{volume}", run: () => setOpen("grow") },
    { id: "cache", title: "Read cache …", needs: "PATCH /v1/volumes/{volume}", run: () => setOpen("cache") },
    { id: "check", title: "Check structures …", needs: "POST /v1/volumes/{volume}/check", run: () => setOpen("check") },
    {
      id: "reopen",
      title: "Close and open …", needs: "POST /v1/volumes/{volume}/reopen",
      run: () => destroy({ title: `Close volume ${name} and open it again`, button: "Reopen", call: (confirm) => ask(api.POST("/v1/volumes/{volume}/reopen", { ...where, body: { confirm } })) }),
    },
    ...(volume?.log_place ? [{
      id: "unlog",
      title: "Take its log away …", needs: "DELETE /v1/volumes/{volume}/log" as const,
      run: () => destroy({
        title: `Take the log of ${name} away`,
        button: "Take away",
        asks: false,
        means: "What is in the log is brought to the volume first. Nothing is lost; writes are as fast as the volume's disks again.",
        call: () => ask(api.DELETE("/v1/volumes/{volume}/log", where)),
        done: `Volume ${name} has no log any more.`,
      }),
    }] : []),
    {
      id: "destroy",
      title: "Destroy …", needs: "DELETE /v1/volumes/{volume}",
      danger: true,
      run: () => destroy({
        title: twin ? `Destroy volume ${name} of pool ${volume?.pool}` : `Destroy volume ${name}`,
        button: "Destroy",
        call: (confirm) => ask(api.DELETE("/v1/volumes/{volume}", { params: { path: { volume: name }, query: { pool: volume?.pool } }, body: { confirm } })),
        then: () => { window.location.hash = to("volumes"); },
      }),
    },
  ];
  const actions = twin ? all.filter(({ id }) => id === "destroy") : all;
  const tabs: [string, string][] = [["", "Overview"], ["files", "Files"], ["snapshots", "Snapshots"]];
  return (
    <Page
      title={`Volume ${name}`}
      up={{ href: to("volumes"), title: "Volumes" }}
      actions={volume && <Actions label={`Actions for volume ${name}`} text="Actions" actions={actions} />}
    >
      <nav className="tabs" aria-label={`Of volume ${name}`}>
        {tabs.map(([id, title]) => (
          <a key={id} href={volume && twin ? toVolume(volume.pool, name, ...(id ? [id] : [])) : id ? to("volumes", name, id) : to("volumes", name)} aria-current={tab === id ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      <Wait of={volumes}>
        {() => {
          if (!volume) return <Empty title={`There is no volume ${name}.`}><p>It may have been destroyed or its pool exported. <a href={to("volumes")}>These volumes</a> are there.</p></Empty>;
          if (twin) {
            return (
              <>
                <p className="warn-text">
                  Pool <a href={toVolume(twin.pool, name)}>{twin.pool}</a> has a volume of this name, too. Until one of them has another name, its files and most of what can be done with it are left out here.{" "}
                  <code>holdfast volume rename {name} NAME --pool {volume.pool}</code> gives it one.
                </p>
                {tab === "" && <State volume={volume} />}
              </>
            );
          }
          if (tab === "files") return <Files volume={name} path={path} />;
          if (tab === "snapshots") return <SnapshotsOf volume={name} />;
          return <State volume={volume} />;
        }}
      </Wait>
      {open === "grow" && volume && <GrowDialog volume={volume} onClose={() => setOpen(null)} />}
      {open === "cache" && volume && <CacheDialog volume={volume} onClose={() => setOpen(null)} />}
      {open === "check" && <CheckDialog what="volume" name={name} onClose={() => setOpen(null)} />}
    </Page>
  );
}

function State({ volume }: { volume: Volume }) {
  const isHere = useIsHere();
  const luns = useLuns();
  const shares = useShares();
  const hits = volume.cache?.counters;
  const on = <T extends { name: string; volume: string }>(list?: { items: T[] }) => list?.items.filter((one) => one.volume === volume.name) ?? [];
  return (
    <>
      <Card title="State" aside={<span><Online online={volume.online} /> <Redundancy state={volume.redundancy} /></span>}>
        {volume.reason && <p className="warn-text">{volume.reason}</p>}
        <p className="figure">{bytes(volume.free_bytes ?? 0)} <small>free of {bytes(volume.size_bytes)}</small></p>
        <Fill label="Used by files" used={volume.used_bytes} whole={volume.size_bytes} />
        <br />
        <Facts
          facts={[
            ["Redundancy", <span key="r"><Copies resiliency={volume.resiliency} state={volume.redundancy} /> {RESILIENCY[volume.resiliency].title}. {RESILIENCY[volume.resiliency].survives}</span>],
            ["Pool", <a key="p" href={to("pools", volume.pool)}>{volume.pool}</a>],
            ["Takes in the pool", `${bytes(volume.allocated_bytes)}, all copies counted`],
            ["Provisioning", volume.provisioning],
            ["Columns, interleave", `${volume.columns}, ${bytes(volume.interleave_bytes)}`],
            ["Checksums", volume.integrity ? "of every block" : "none"],
            ["Read cache", volume.cache?.read_cache ? `on; ${hits && hits.hits + hits.misses ? `${percent(hits.hits, hits.hits + hits.misses).toFixed(0)} % of reads hit` : "no reads yet"}` : "off"],
            ["Read-ahead", volume.cache?.read_ahead],
            ["Log", volume.log ? `${volume.log.mode}; ${bytes(volume.log.waiting_bytes)} wait of ${bytes(volume.log.capacity_bytes)}` : volume.log_place ? "not open" : "none"],
            ["Identity", volume.guid],
          ]}
        />
      </Card>
      <Card title="Performance">
        {isHere(volume) ? <Performance of={keyOf("volume", volume.name)} /> : <p className="help">Node {volume.node} has it: the pages of that node show this.</p>}
      </Card>
      <div className="two">
        <Card title="LUNs on it">
          {on(luns.data).length === 0 && <p className="help">None.</p>}
          <ul className="plain-list">
            {on(luns.data).slice(0, 12).map((lun) => <li key={lun.name}><a href={to("luns", lun.name)}>{lun.name}</a><span>{bytes(lun.size_bytes)}</span></li>)}
          </ul>
          {on(luns.data).length > 12 && <a href={to("luns")}>all {on(luns.data).length}</a>}
        </Card>
        <Card title="Shares on it">
          {on(shares.data).length === 0 && <p className="help">None.</p>}
          <ul className="plain-list">
            {on(shares.data).slice(0, 12).map((share) => <li key={share.name}><a href={to("shares", share.name)}>{share.name}</a><span>{share.folder}</span></li>)}
          </ul>
        </Card>
      </div>
    </>
  );
}

function GrowDialog({ volume, onClose }: { volume: Volume; onClose: () => void }) {
  const pools = usePools();
  const [size, setSize] = useState(bytes(volume.size_bytes * 2));
  const wrong = wrongSize(size, { atLeast: volume.size_bytes + 1 });
  const wanted = parseBytes(size) ?? 0;
  const free = pools.data?.items.find((pool) => pool.name === volume.pool)?.free_bytes;
  return (
    <FormDialog
      title={`Grow volume ${volume.name}`}
      button="Grow"
      onClose={onClose}
      wrong={wrong !== null}
      preview={wrong === null && (
        <ul>
          <li>It grows from {bytes(volume.size_bytes)} to {bytes(wanted)}. Clients go on. It cannot be made smaller again.</li>
          {free !== undefined && <li>Pool {volume.pool} has {bytes(free)} free. {volume.provisioning === "thin" ? "The volume is thin: space is taken when data is written." : "The volume is fixed: space is taken now."}</li>}
        </ul>
      )}
      command={wrong === null ? `holdfast volume resize ${quote(volume.name)} ${quote(size.replaceAll(" ", ""))}` : undefined}
      submit={async () => {
        await ask(api.PATCH("/v1/volumes/{volume}", { params: { path: { volume: volume.name } }, body: { size_bytes: wanted } }));
        return `Volume ${volume.name} has ${bytes(wanted)} now.`;
      }}
    >
      <Field label="New size" value={size} onChange={setSize} wrong={wrong} help={`Now ${bytes(volume.size_bytes)}.`} autoFocus />
    </FormDialog>
  );
}

function CacheDialog({ volume, onClose }: { volume: Volume; onClose: () => void }) {
  const [cached, setCached] = useState(volume.cache?.read_cache ?? false);
  const [ahead, setAhead] = useState(volume.cache?.read_ahead ?? "adaptive");
  const wrong = /^(none|adaptive|fixed:\d+)$/.test(ahead) ? null : "Write none, adaptive, or fixed: and bytes, as in fixed:1048576.";
  return (
    <FormDialog
      title={`Read cache of volume ${volume.name}`}
      button="Save"
      onClose={onClose}
      wrong={wrong !== null}
      preview={<p>{cached ? "What is read is kept in this node's memory, which all volumes share." : "Every read goes to the disks."} Only this node's memory is used: nothing of it is lost with the node.</p>}
      submit={async () => {
        await ask(api.PATCH("/v1/volumes/{volume}", { params: { path: { volume: volume.name } }, body: { cache: { read_cache: cached, read_ahead: ahead } } }));
        return `Volume ${volume.name} is cached ${cached ? "" : "no more "}on this node.`;
      }}
    >
      <Check value={cached} onChange={setCached}>Keep what is read in memory</Check>
      <Field label="Read-ahead of sequential readers" value={ahead} onChange={setAhead} wrong={wrong} help="none, adaptive, or fixed: and a size in bytes" />
    </FormDialog>
  );
}
