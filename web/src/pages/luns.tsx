// LUNs: files of volumes that initiators see as disks.
import { useState } from "react";
import { keyOf, useRates } from "../api/counters";
import { api, ask } from "../api/client";
import { useInitiatorGroups, useLuns, usePolicies, useTargets } from "../api/queries";
import type { Lun, LunReservations } from "../api/types";
import { Actions, Button, Check, Choice, Field, wrongSize, type Action } from "../parts/controls";
import { FormDialog, destroy, perform } from "../parts/dialog";
import { bytes, many, milliseconds, number, parseBytes, perSecond, quote } from "../parts/format";
import { Card, Empty, Facts, Page, Wait } from "../parts/page";
import { Performance } from "../parts/performance";
import { Badge } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { to } from "../router";
import { AttachLun } from "./attach";
import { LunCreateDialog, MapFields, useMapping } from "./lun-create";

export default function Luns({ parts }: { parts: string[] }) {
  return parts[0] ? <One name={parts[0]} /> : <All />;
}

const SERVING = { online: "good", "read-only": "warn", offline: "bad" } as const;

function All() {
  const luns = useLuns();
  const rates = useRates();
  const [creating, setCreating] = useState(false);
  const rate = (lun: Lun) => rates.get(keyOf("lun", lun.name));
  const columns: Column<Lun>[] = [
    { title: "LUN", value: (row) => row.name, cell: (row) => <a href={to("luns", row.name)}>{row.name}</a> },
    { title: "State", value: (row) => row.serving, cell: (row) => <Badge tone={SERVING[row.serving]}>{row.serving}</Badge> },
    { title: "Volume", value: (row) => row.volume, cell: (row) => <a href={to("volumes", row.volume)}>{row.volume}</a> },
    { title: "Size", value: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes), end: true },
    { title: "Allocated", value: (row) => row.allocated_bytes, cell: (row) => bytes(row.allocated_bytes), end: true, wide: true },
    { title: "Seen by", value: (row) => row.map?.map((map) => map.group).join(", ") || "nobody", wide: true },
    { title: "IOPS", value: (row) => { const r = rate(row); return r ? r.read.iops + r.write.iops : 0; }, cell: (row) => { const r = rate(row); return r ? number(r.read.iops + r.write.iops) : "–"; }, end: true, wide: true },
    { title: "Throughput", value: (row) => { const r = rate(row); return r ? r.read.bytes + r.write.bytes : 0; }, cell: (row) => { const r = rate(row); return r ? perSecond(r.read.bytes + r.write.bytes) : "–"; }, end: true, wide: true },
    { title: "Write latency", value: (row) => rate(row)?.write.latency ?? 0, cell: (row) => milliseconds(rate(row)?.write.latency ?? null), end: true, wide: true },
    { title: "Note", value: (row) => row.problem ?? row.reason ?? "", wide: true, wrap: true },
  ];
  return (
    <Page
      title="LUNs"
      lead="A LUN is a file of a volume that initiators see as a disk."
      actions={<Button needs="POST /v1/luns" look="primary" icon="add" onPress={() => setCreating(true)}>Create LUN</Button>}
    >
      <Wait of={luns}>
        {({ items }) => <Table label="LUNs" rows={items} columns={columns} id={(row) => row.name} empty={<Empty title="There is no LUN yet." />} />}
      </Wait>
      {creating && <LunCreateDialog onClose={() => setCreating(false)} />}
    </Page>
  );
}

type Dialogs = "resize" | "map" | "offline" | "policy" | null;

function One({ name }: { name: string }) {
  const luns = useLuns();
  const [open, setOpen] = useState<Dialogs>(null);
  const lun = luns.data?.items.find((one) => one.name === name);
  const where = { params: { path: { lun: name } } };
  const serve = () => void perform(() => ask(api.PATCH("/v1/luns/{lun}", { ...where, body: { state: "online" } })), `LUN ${name} is served.`);
  const cached = lun?.write_cache ?? false;
  const actions: Action[] = [
    { id: "resize", title: "Resize …", needs: "PATCH /v1/luns/{lun}", run: () => setOpen("resize") },
    { id: "policy", title: "Give it a QoS policy …", needs: "POST /v1/qos/assignments", run: () => setOpen("policy") },
    ...(lun?.serving === "offline" || lun?.serving === "read-only" ? [{ id: "online", title: "Serve it again", needs: "PATCH /v1/luns/{lun}" as const, run: serve }] : []),
    ...(lun?.serving === "online" ? [{
      id: "ro", title: "Serve it for reading only …", needs: "PATCH /v1/luns/{lun}" as const,
      run: () => destroy({
        title: `Serve LUN ${name} for reading only`,
        button: "Serve for reading",
        asks: false,
        means: "Writes of its hosts fail at once, also where it is in use. Hosts that use it now are named before.",
        call: (confirm) => ask(api.PATCH("/v1/luns/{lun}", { ...where, body: { state: "read-only", confirm } })),
        done: `LUN ${name} is served for reading.`,
      }),
    }] : []),
    ...(lun?.serving !== "offline" ? [{ id: "offline", title: "Take it offline …", needs: "PATCH /v1/luns/{lun}" as const, run: () => setOpen("offline") }] : []),
    {
      id: "cache",
      title: cached ? "Write through …" : "Allow volatile writes …", needs: "PATCH /v1/luns/{lun}",
      run: () => destroy({
        title: cached ? `Write LUN ${name} through` : `Allow volatile writes on LUN ${name}`,
        button: cached ? "Write through" : "Allow",
        asks: false,
        means: cached ? "Every write is durable before it is acknowledged." : "Writes may be acknowledged before they are durable, until the initiator flushes. A power cut loses what was not flushed.",
        call: () => ask(api.PATCH("/v1/luns/{lun}", { ...where, body: { write_cache: !cached } })),
        done: `LUN ${name} is changed.`,
      }),
    },
    ...(lun?.reservations ? [{
      id: "clear",
      title: "Clear its reservations …", needs: "POST /v1/luns/{lun}/clear-reservations" as const,
      danger: true,
      run: () => destroy({
        title: `End what hosts have reserved of LUN ${name}`,
        button: "Clear",
        call: (confirm) => ask(api.POST("/v1/luns/{lun}/clear-reservations", { ...where, body: { confirm } })),
      }),
    }] : []),
    ...(lun?.lost_writes?.length ? [{
      id: "forget-lost-writes",
      title: "Forget hosts with lost writes …", needs: "POST /v1/luns/{lun}/forget-lost-writes" as const,
      danger: true,
      run: () => destroy({
        title: `Forget hosts of LUN ${name} that do not come back`,
        button: "Forget",
        call: (confirm) => ask(api.POST("/v1/luns/{lun}/forget-lost-writes", { ...where, body: { confirm } })),
      }),
    }] : []),
    {
      id: "delete",
      title: "Delete …", needs: "DELETE /v1/luns/{lun}",
      danger: true,
      run: () => destroy({
        title: `Delete LUN ${name} and its file`,
        button: "Delete",
        call: (confirm) => ask(api.DELETE("/v1/luns/{lun}", { ...where, body: { confirm } })),
        then: () => { window.location.hash = to("luns"); },
      }),
    },
    {
      id: "take",
      title: "Take away, keep its file …", needs: "DELETE /v1/luns/{lun}",
      danger: true,
      run: () => destroy({
        title: `Take LUN ${name} away and keep its file`,
        button: "Take away",
        call: (confirm) => ask(api.DELETE("/v1/luns/{lun}", { params: { path: { lun: name }, query: { keep_file: "true" } }, body: { confirm } })),
        then: () => { window.location.hash = to("luns"); },
      }),
    },
  ];
  return (
    <Page
      title={`LUN ${name}`}
      up={{ href: to("luns"), title: "LUNs" }}
      actions={lun && (
        <>
          <Button needs="POST /v1/luns/{lun}/map" look="primary" icon="add" onPress={() => setOpen("map")}>Map</Button>
          <Actions label={`Actions for LUN ${name}`} text="Actions" actions={actions} />
        </>
      )}
    >
      <Wait of={luns}>
        {() => (lun ? (
          <>
            <Card title="State" aside={<Badge tone={SERVING[lun.serving]}>{lun.serving}</Badge>}>
              {(lun.problem ?? lun.reason) && <p className="warn-text">{lun.problem ?? lun.reason}</p>}
              <Facts
                facts={[
                  ["Size", bytes(lun.size_bytes)],
                  ["Allocated", bytes(lun.allocated_bytes)],
                  ["File", <a key="f" href={`${to("volumes", lun.volume, "files")}?path=${encodeURIComponent(lun.path.slice(0, lun.path.lastIndexOf("/")) || "/")}`}>{lun.volume}:{lun.path}</a>],
                  ["Logical block", bytes(lun.block_size ?? 512)],
                  ["Writes", lun.caching ? "acknowledged before they are durable, until the initiator flushes" : "durable when acknowledged"],
                  ["Identity for initiators", lun.guid],
                ]}
              />
            </Card>
            <Card title="Who sees it">
              <Table
                label={`Mappings of LUN ${name}`}
                rows={lun.map ?? []}
                id={(map) => `${map.target} ${map.group} ${map.number}`}
                empty={<Empty title="Nobody sees it."><p>Map it to a target and a group of initiators.</p></Empty>}
                columns={[
                  { title: "Group", value: (map) => map.group, cell: (map) => <a href={to("targets")}>{map.group}</a> },
                  { title: "Target", value: (map) => map.target, wrap: true },
                  { title: "Number", value: (map) => map.number, end: true },
                  { title: "May", value: (map) => (map.read_only ? "read" : "read and write") },
                ]}
                actions={(map) => ({
                  label: `Actions for mapping ${map.number} of ${map.group}`,
                  actions: [{
                    id: "unmap",
                    title: "Hide from it …", needs: "POST /v1/luns/{lun}/unmap",
                    danger: true,
                    run: () => destroy({
                      title: `Hide LUN ${name} from ${map.group}`,
                      button: "Hide",
                      asks: false,
                      means: `Initiators of ${map.group} lose the disk at once, also while they use it; those that do now are named before. Its data stays.`,
                      call: (confirm) => ask(api.POST("/v1/luns/{lun}/unmap", { ...where, body: { group: map.group, target: map.target, number: map.number, confirm } })),
                      done: `LUN ${name} is hidden from ${map.group}.`,
                    }),
                  }],
                })}
              />
            </Card>
            {lun.reservations && <Reservations name={name} of={lun.reservations} />}
            <Card title="Performance"><Performance of={keyOf("lun", name)} /></Card>
            <Card title="How to attach it"><AttachLun lun={lun} /></Card>
            {open === "resize" && <ResizeDialog lun={lun} onClose={() => setOpen(null)} />}
            {open === "map" && <MapDialog lun={lun} onClose={() => setOpen(null)} />}
            {open === "offline" && <OfflineDialog lun={lun} onClose={() => setOpen(null)} />}
            {open === "policy" && <PolicyDialog lun={name} onClose={() => setOpen(null)} />}
          </>
        ) : <Empty title={`There is no LUN ${name}.`}><p><a href={to("luns")}>These LUNs</a> are there.</p></Empty>)}
      </Wait>
    </Page>
  );
}

const KINDS = {
  "write-exclusive": "the holder may write, others only read",
  "exclusive-access": "the holder alone may read and write",
  "write-exclusive-registrants-only": "who is registered may write, others only read",
  "exclusive-access-registrants-only": "only who is registered may read and write",
  "write-exclusive-all-registrants": "who is registered holds it and may write, others only read",
  "exclusive-access-all-registrants": "who is registered holds it, and nobody else may read or write",
  reserve: "the holder alone may read and write, as long as its session lasts (SCSI-2)",
} as const;

/** What hosts have reserved: who keeps whom off. */
function Reservations({ name, of }: { name: string; of: LunReservations }) {
  return (
    <Card title="Reserved by hosts">
      <Facts
        facts={[
          ["Reservation", of.kind ? `${of.kind}: ${KINDS[of.kind]}` : "none; hosts are registered, which keeps nobody off"],
          ["Held by", of.holders?.join(", ") || "nobody"],
          ["Kept over a loss of power", of.aptpl ? "yes, a host has asked for that" : "no host has asked for that"],
          ["Generation", number(of.generation)],
        ]}
      />
      {(of.registrants?.length ?? 0) > 0 && (
        <Table
          label={`Registered for LUN ${name}`}
          rows={of.registrants ?? []}
          id={(row) => `${row.port} ${row.target} ${row.target_port}`}
          empty={null}
          columns={[
            { title: "Initiator", value: (row) => row.initiator, wrap: true },
            { title: "Key", value: (row) => row.key },
            { title: "Holds it", value: (row) => (row.holds ? "yes" : "no") },
            { title: "Connected", value: (row) => (row.connected ? "yes" : "no") },
            { title: "Through", value: (row) => `${row.target}, port ${row.target_port}`, wide: true, wrap: true },
          ]}
        />
      )}
    </Card>
  );
}

function ResizeDialog({ lun, onClose }: { lun: Lun; onClose: () => void }) {
  const [size, setSize] = useState(bytes(lun.size_bytes));
  const block = lun.block_size ?? 512;
  const wanted = parseBytes(size) ?? 0;
  const wrong = wrongSize(size) ?? (wanted % block ? `This is no multiple of its ${block}-byte blocks.` : wanted === lun.size_bytes ? "This is its size now." : null);
  const shrinks = wanted < lun.size_bytes;
  return (
    <FormDialog
      title={`Resize LUN ${lun.name}`}
      button="Resize"
      onClose={onClose}
      wrong={wrong !== null}
      preview={wrong === null && (
        <p className={shrinks ? "warn-text" : undefined}>
          {shrinks ? `Everything beyond ${bytes(wanted)} is gone: shrink the file system on it first.` : `It grows by ${bytes(wanted - lun.size_bytes)}. Initiators are told; let them look at the disk again and grow the file system on it.`}
        </p>
      )}
      command={wrong === null ? `holdfast lun resize ${quote(lun.name)} ${quote(size.replaceAll(" ", ""))}` : undefined}
      submit={async (confirm) => {
        await ask(api.PATCH("/v1/luns/{lun}", { params: { path: { lun: lun.name } }, body: { size_bytes: wanted, confirm } }));
        return `LUN ${lun.name} has ${bytes(wanted)} now.`;
      }}
    >
      <Field label="New size" value={size} onChange={setSize} wrong={wanted === lun.size_bytes ? null : wrong} help={`Now ${bytes(lun.size_bytes)}.`} autoFocus />
    </FormDialog>
  );
}

function OfflineDialog({ lun, onClose }: { lun: Lun; onClose: () => void }) {
  const [reason, setReason] = useState("");
  return (
    <FormDialog
      title={`Take LUN ${lun.name} offline`}
      button="Take offline"
      onClose={onClose}
      wrong={false}
      preview={<p>Commands of initiators that reach the medium end with NOT READY: VMs on it stop or fail. Its data and mappings stay.</p>}
      submit={async (confirm) => {
        await ask(api.PATCH("/v1/luns/{lun}", { params: { path: { lun: lun.name } }, body: { state: "offline", reason: reason || undefined, confirm } }));
        return `LUN ${lun.name} is offline.`;
      }}
    >
      <Field label="Why" value={reason} onChange={setReason} help="Shown wherever the LUN is, for whoever wonders." autoFocus />
    </FormDialog>
  );
}

function MapDialog({ lun, onClose }: { lun: Lun; onClose: () => void }) {
  const mapping = useMapping();
  const [readOnly, setReadOnly] = useState(false);
  const groups = useInitiatorGroups();
  const targets = useTargets();
  return (
    <FormDialog
      title={`Map LUN ${lun.name}`}
      button="Map"
      onClose={onClose}
      wrong={!mapping.ready}
      preview={mapping.ready && <p>{mapping.says(groups.data?.items ?? [])}{readOnly ? " They may only read." : ""}{(lun.map?.length ?? 0) > 0 ? " Hosts that write at the same time need a file system for clusters." : ""}</p>}
      submit={async () => {
        await ask(api.POST("/v1/luns/{lun}/map", { params: { path: { lun: lun.name } }, body: { ...mapping.body, read_only: readOnly } }));
        return `LUN ${lun.name} is mapped.`;
      }}
    >
      <MapFields mapping={mapping} groups={groups.data?.items ?? []} targets={targets.data?.items ?? []} />
      <Check value={readOnly} onChange={setReadOnly}>For reading only</Check>
    </FormDialog>
  );
}

function PolicyDialog({ lun, onClose }: { lun: string; onClose: () => void }) {
  const policies = usePolicies();
  const all = policies.data?.items ?? [];
  const now = all.find((policy) => policy.luns.includes(lun));
  const [picked, setPicked] = useState("");
  const choice = picked || now?.name || "none";
  return (
    <FormDialog
      title={`QoS policy of LUN ${lun}`}
      button="Save"
      onClose={onClose}
      wrong={choice === (now?.name ?? "none")}
      preview={<p>{choice === "none" ? "It has no limits and no minimum." : `It gets what ${choice} says, also for requests that wait now.`} There {all.length === 1 ? "is" : "are"} {many(all.length, "policy")}.</p>}
      submit={async () => {
        if (choice === "none") await ask(api.DELETE("/v1/qos/assignments", { params: { query: { lun } } }));
        else await ask(api.POST("/v1/qos/assignments", { body: { lun, policy: choice } }));
        return `LUN ${lun} has ${choice === "none" ? "no policy" : `policy ${choice}`}.`;
      }}
    >
      <Choice label="Policy" value={choice} onChange={setPicked} options={[{ id: "none", title: "None" }, ...all.map((policy) => ({ id: policy.name, title: policy.name }))]} />
    </FormDialog>
  );
}
