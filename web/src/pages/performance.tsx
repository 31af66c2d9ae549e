// Performance: what clients do, who has how much of it, and what policies promise and allow. What hurts comes first.
import { useEffect, useRef, useState } from "react";
import { CLIENTS, isOfQos, keyOf, useRates, type Rates } from "../api/counters";
import { api, ask } from "../api/client";
import { keyOn, type OnNode } from "../api/nodes";
import { useFlows, useLuns, usePolicies, useQosVolumes, useStatus } from "../api/queries";
import type { QosBackground, QosFlow, QosPolicy, QosVolume } from "../api/types";
import { Button, Check, Choices, Field, wrongName, wrongSize } from "../parts/controls";
import { FormDialog, destroy } from "../parts/dialog";
import { baseName, bytes, many, milliseconds, number, parseBytes, perSecond, quote } from "../parts/format";
import { Card, Empty, Page, Wait } from "../parts/page";
import { Performance } from "../parts/performance";
import { Badge, type Tone } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { to, usePlace } from "../router";

const STATUS: Record<QosFlow["status"], [Tone, string, number]> = {
  InsufficientThroughput: ["bad", "below its minimum", 3],
  UnknownPolicyId: ["warn", "its policy is not there", 2],
  LostCommunication: ["warn", "divided by old numbers", 1],
  Ok: ["good", "ok", 0],
};
const Status = ({ of }: { of: QosFlow["status"] }) => <Badge tone={STATUS[of][0]}>{STATUS[of][1]}</Badge>;
const ms = (us: number) => milliseconds(us / 1000);
const limit = (value: number | null | undefined, write: (value: number) => string = number) => (value === null || value === undefined ? "–" : write(value));

type Flow = Omit<QosFlow, "node"> & OnNode;

/** Counters and their history name a flow by what it uses and who uses it. */
const counted = (flow: Flow) => `${flow.lun || `${flow.volume}:${flow.file}`} ${flow.initiator}`;
/** The charts of a policy or flow, on this page. */
const charted = (what: "policy" | "flow", name: string) => `${to("performance")}?${new URLSearchParams({ [what]: name }).toString()}`;
const DiskCell = ({ row, node }: { row: Flow; node: string | null }) => {
  const disk = row.lun || row.file;
  // What another node serves that one counts.
  if (row.node && row.node !== node) return row.lun ? <a href={to("luns", row.lun)}>{disk}</a> : disk;
  return <a href={charted("flow", counted(row))} aria-label={`${disk}, charts of ${row.initiator}`}>{disk}</a>;
};

const flowColumns = (node: string | null): Column<Flow>[] => [
  { title: "Disk", wrap: true, value: (row) => row.lun || row.file, cell: (row) => <DiskCell row={row} node={node} /> },
  { title: "Client", value: (row) => row.initiator, wrap: true },
  { title: "State", value: (row) => STATUS[row.status][2] * 1e12 + row.held_us, cell: (row) => <Status of={row.status} /> },
  { title: "IOPS", value: (row) => row.normalized_iops, cell: (row) => number(row.normalized_iops), end: true },
  { title: "Throughput", value: (row) => row.read_bandwidth + row.write_bandwidth, cell: (row) => perSecond(row.read_bandwidth + row.write_bandwidth), end: true },
  { title: "Held back", value: (row) => row.held_us, cell: (row) => ms(row.held_us), end: true },
  { title: "Disk", value: (row) => row.disk_us, cell: (row) => ms(row.disk_us), end: true },
  { title: "Waiting", value: (row) => row.waiting, end: true, wide: true },
  { title: "Minimum", value: (row) => row.min_iops ?? 0, cell: (row) => limit(row.min_iops), end: true, wide: true },
  { title: "Limit", value: (row) => row.max_iops ?? 0, cell: (row) => limit(row.max_iops), end: true, wide: true },
  { title: "Policy", value: (row) => row.policy ?? row.policy_guid ?? "–", wide: true },
];

const allOf = (of: QosBackground) => of.restoring + of.rebalancing + of.scrubbing + of.destaging;
const learnt = (value: number | null | undefined) => (value === null || value === undefined ? "not known yet" : number(value));
type Volume = Omit<QosVolume, "node"> & OnNode;
const VOLUMES: Column<Volume>[] = [
  { title: "Volume", value: (row) => row.volume },
  { title: "State", value: (row) => STATUS[row.status][2], cell: (row) => <Status of={row.status} /> },
  { title: "Capacity", value: (row) => row.capacity ?? 0, cell: (row) => learnt(row.capacity), end: true },
  { title: "Promised", value: (row) => row.promised, cell: (row) => number(row.promised), end: true },
  { title: "Used", value: (row) => row.used, cell: (row) => number(row.used), end: true },
  { title: "Headroom", value: (row) => row.headroom ?? 0, cell: (row) => learnt(row.headroom), end: true },
  { title: "Depth", value: (row) => row.depth, end: true, wide: true },
  { title: "Background of its pool", value: (row) => (row.background ? allOf(row.background) : 0), cell: (row) => (row.background ? perSecond(allOf(row.background)) : "–"), end: true },
];

/** What pools do beside what clients want of them, and how far it gives way. */
function Background({ volumes }: { volumes: readonly Volume[] }) {
  const pools = new Map<string, QosBackground>();
  for (const { node, background } of volumes) if (background && allOf(background) > 0) pools.set(keyOn({ node }, background.pool), background);
  if (pools.size === 0) return <p className="help">No pool works in the background now.</p>;
  const parts = (of: QosBackground) =>
    ([[of.restoring, "restoring copies"], [of.rebalancing, "rebalancing"], [of.scrubbing, "scrubbing"], [of.destaging, "bringing logs to it"]] as const)
      .filter(([rate]) => rate > 0).map(([rate, what]) => `${what} ${perSecond(rate)}`).join(", ");
  return (
    <ul className="plain-list">
      {[...pools].map(([key, of]) => (
        <li key={key}>
          <span><strong>Pool {of.pool}</strong>: {parts(of)}</span>
          {of.restoring + of.rebalancing > 0 && <span className="help">copying gives way to clients down to {perSecond(of.floor)}</span>}
        </li>
      ))}
    </ul>
  );
}

type Busy = { kind: string; name: string; rates: Rates };
const BUSY: Column<Busy>[] = [
  { title: "Name", wrap: true, value: (row) => row.name, cell: (row) => <span title={row.name}>{row.kind === "disk" ? baseName(row.name) : row.name}</span> },
  { title: "What", value: (row) => row.kind.replace("-", " ") },
  { title: "Read IOPS", value: (row) => row.rates.read.iops, cell: (row) => number(row.rates.read.iops), end: true, wide: true },
  { title: "Write IOPS", value: (row) => row.rates.write.iops, cell: (row) => number(row.rates.write.iops), end: true, wide: true },
  { title: "Total IOPS", value: (row) => row.rates.read.iops + row.rates.write.iops, cell: (row) => number(row.rates.read.iops + row.rates.write.iops), end: true },
  { title: "Throughput", value: (row) => row.rates.read.bytes + row.rates.write.bytes, cell: (row) => perSecond(row.rates.read.bytes + row.rates.write.bytes), end: true },
  { title: "Read latency", value: (row) => row.rates.read.latency ?? 0, cell: (row) => milliseconds(row.rates.read.latency), end: true },
  { title: "Write latency", value: (row) => row.rates.write.latency ?? 0, cell: (row) => milliseconds(row.rates.write.latency), end: true },
  { title: "In flight", value: (row) => row.rates.inFlight, end: true, wide: true },
];

export default function PerformancePage() {
  const flows = useFlows();
  const status = useStatus().data;
  const inCluster = Boolean(status?.cluster);
  const { query } = usePlace();
  const [policy, flow] = [query.get("policy"), query.get("flow")];
  const policies = usePolicies();
  const volumes = useQosVolumes();
  const rates = useRates();
  const [open, setOpen] = useState<QosPolicy | "new" | null>(null);
  const [luns, setLuns] = useState<QosPolicy | null>(null);
  const busy = [...rates].filter(([key]) => key.includes("/") && !isOfQos(key)).map(([key, of]) => ({ kind: key.slice(0, key.indexOf("/")), name: key.slice(key.indexOf("/") + 1), rates: of }));
  return (
    <Page title="Performance" lead="Over the last seconds. IOPS of flows are normalised: a large request counts as several.">
      <Charted policy={policy} flow={flow} inCluster={inCluster} />
      <Card title="Flows" aside={<span className="help">one initiator’s use of one LUN, or one client’s of one file</span>}>
        <Wait of={flows}>
          {({ items }) => (
            <Table
              label="Flows"
              // Flows say their node also where there is one node only.
              rows={inCluster ? items : items.map((flow): Flow => ({ ...flow, node: null }))}
              columns={flowColumns(inCluster ? (status?.node ?? null) : null)}
              id={(row) => keyOn(row, row.volume, row.lun, row.file, row.initiator)}
              first={{ column: 2, down: true }}
              empty={<Empty title="No initiator uses a LUN now, and no client a file." />}
            />
          )}
        </Wait>
      </Card>
      <Card title="QoS policies" aside={<Button needs="POST /v1/qos/policies" icon="add" onPress={() => setOpen("new")}>Create policy</Button>}>
        <Wait of={policies}>
          {({ items }) => (
            <Table
              label="QoS policies"
              rows={items}
              id={(row) => row.guid}
              empty={<Empty title="There is no policy: every LUN takes what it gets." />}
              columns={[
                { title: "Policy", value: (row) => row.name, cell: (row) => <a href={charted("policy", row.name)} aria-label={`${row.name}, charts`}>{row.name}</a> },
                { title: "State", value: (row) => row.status, cell: (row) => <Status of={row.status} /> },
                { title: "Holds for", value: (row) => (row.kind === "aggregated" ? "its LUNs together" : "each LUN") },
                { title: "Minimum", value: (row) => row.min_iops ?? 0, cell: (row) => limit(row.min_iops), end: true },
                { title: "Limit", value: (row) => row.max_iops ?? 0, cell: (row) => limit(row.max_iops), end: true },
                { title: "Bandwidth", value: (row) => row.max_bandwidth ?? 0, cell: (row) => limit(row.max_bandwidth, perSecond), end: true, wide: true },
                { title: "LUNs", value: (row) => row.luns.join(", "), cell: (row) => row.luns.join(", ") || "none", wide: true, wrap: true },
              ]}
              actions={(row) => ({
                label: `Actions for policy ${row.name}`,
                actions: [
                  { id: "change", title: "Change …", needs: "PATCH /v1/qos/policies/{policy}", run: () => setOpen(row) },
                  { id: "luns", title: "Give it to LUNs …", needs: "POST /v1/qos/assignments", run: () => setLuns(row) },
                  {
                    id: "delete",
                    title: "Delete …", needs: "DELETE /v1/qos/policies/{policy}",
                    danger: true,
                    run: () => destroy({
                      title: `Delete policy ${row.name}`,
                      button: "Delete",
                      call: (confirm) => ask(api.DELETE("/v1/qos/policies/{policy}", { params: { path: { policy: row.name } }, body: { confirm, force: row.luns.length + row.places.length > 0 } })),
                    }),
                  },
                ],
              })}
            />
          )}
        </Wait>
      </Card>
      <Card title="Volumes" aside={<span className="help">normalised I/Os a second</span>}>
        <Wait of={volumes}>
          {({ items }) => {
            const rows = inCluster ? items : items.map((volume): Volume => ({ ...volume, node: null }));
            return (
              <>
                <Table label="Volumes" rows={rows} columns={VOLUMES} id={(row) => keyOn(row, row.volume, row.background?.pool)} empty={<Empty title="No volume has LUNs or shares." />} />
                <Background volumes={rows} />
              </>
            );
          }}
        </Wait>
      </Card>
      <Card title="Busiest">
        <Table label="Busiest" rows={busy} columns={BUSY} id={(row) => `${row.kind} ${row.name}`} first={{ column: 4, down: true }} empty={<p>The first rates come in a moment …</p>} />
      </Card>
      {open && <PolicyDialog now={open === "new" ? null : open} taken={policies.data?.items.map((one) => one.name) ?? []} onClose={() => setOpen(null)} />}
      {luns && <AssignDialog policy={luns} onClose={() => setLuns(null)} />}
    </Page>
  );
}

/** Charts of what was clicked in the lists below; of all clients at first. */
function Charted({ policy, flow, inCluster }: { policy: string | null; flow: string | null; inCluster: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const one = policy ?? flow;
  useEffect(() => {
    if (one === null) return;
    box.current?.scrollIntoView({ block: "nearest" });
    box.current?.focus({ preventScroll: true });
  }, [one]);
  const title = policy !== null ? `Policy ${policy}` : flow !== null ? `Flow ${flow}` : "What clients do now";
  const of = policy !== null ? keyOf("qos-policy", policy) : flow !== null ? keyOf("qos-flow", flow) : CLIENTS;
  return (
    <div ref={box} tabIndex={-1} className="charted">
      <Card title={title} aside={one !== null && <a href={to("performance")}>All clients</a>}>
        <Performance key={of} of={of} />
        {policy !== null && (
          <p className="help">
            All that have it together{inCluster ? ", as far as this node serves them" : ""}. Minimum and maximum are those that held at the time: of a dedicated policy the sum over its LUNs and files in use.
            {inCluster && " Those of an aggregated policy hold for all nodes together: what is done on others is not drawn here, and the rest may be below the minimum while all together have it."}
          </p>
        )}
        {flow !== null && <p className="help">Minimum and maximum are those that held at the time. They hold for all clients of a disk together, and for all disks of an aggregated policy{inCluster ? ", on all nodes" : ""}.</p>}
      </Card>
    </div>
  );
}

const wrongCount = (text: string) => (text === "" || /^\d{1,9}$/.test(text) ? null : "Write a number; empty for none.");
const count = (text: string) => (text === "" ? undefined : Number(text));

function PolicyDialog({ now, taken, onClose }: { now: QosPolicy | null; taken: string[]; onClose: () => void }) {
  const [name, setName] = useState(now?.name ?? "");
  const [kind, setKind] = useState<"dedicated" | "aggregated">(now?.kind ?? "dedicated");
  const [min, setMin] = useState(now?.min_iops?.toString() ?? "");
  const [max, setMax] = useState(now?.max_iops?.toString() ?? "");
  const [bandwidth, setBandwidth] = useState(now?.max_bandwidth ? bytes(now.max_bandwidth) : "");
  const wrong = wrongName(name, taken.filter((one) => one !== now?.name));
  const badBandwidth = wrongSize(bandwidth, { needed: false });
  const crossed = count(min) !== undefined && count(max) !== undefined && Number(min) > Number(max) ? "More is promised than allowed." : null;
  const per = kind === "dedicated" ? "Each of its LUNs" : "All its LUNs together";
  const rate = bandwidth ? (parseBytes(bandwidth) ?? undefined) : undefined;
  const ready = wrong === null && !wrongCount(min) && !wrongCount(max) && badBandwidth === null && crossed === null;
  const options = [min && `--min-iops ${min}`, max && `--max-iops ${max}`, bandwidth && `--max-bandwidth ${quote(bandwidth.replaceAll(" ", ""))}`].filter(Boolean).join(" ");
  return (
    <FormDialog
      title={now ? `Change policy ${now.name}` : "Create policy"}
      button={now ? "Save" : "Create"}
      onClose={onClose}
      wrong={!ready}
      preview={ready && (
        <ul>
          {min && <li>{per} get at least {number(Number(min))} IOPS while they ask for them: others wait.</li>}
          {max && <li>{per} get at most {number(Number(max))} IOPS.</li>}
          {rate !== undefined && <li>{per} get at most {perSecond(rate)}.</li>}
          {!min && !max && rate === undefined && <li>It promises and limits nothing.</li>}
          {now && <li>It counts at once, for {many(now.luns.length, "LUN")}, also for requests that wait.</li>}
        </ul>
      )}
      command={ready && !now ? `holdfast qos policy create ${quote(name)}${kind === "aggregated" ? " --type aggregated" : ""} ${options}`.trim() : undefined}
      submit={async () => {
        const numbers = { min_iops: count(min), max_iops: count(max), max_bandwidth: rate };
        if (now) {
          // A number that is taken away is 0 to the node: none.
          const none = (value: number | undefined, then: number | null | undefined) => value ?? (then ? 0 : undefined);
          await ask(api.PATCH("/v1/qos/policies/{policy}", {
            params: { path: { policy: now.name } },
            body: { name: name === now.name ? undefined : name, min_iops: none(numbers.min_iops, now.min_iops), max_iops: none(numbers.max_iops, now.max_iops), max_bandwidth: none(numbers.max_bandwidth, now.max_bandwidth) },
          }));
        } else await ask(api.POST("/v1/qos/policies", { body: { name, kind, ...numbers } }));
        return `Policy ${name} holds.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
      {!now && (
        <Choices
          label="Its numbers hold for"
          value={kind}
          onChange={setKind}
          options={[{ id: "dedicated", title: "Each LUN by itself" }, { id: "aggregated", title: "All its LUNs together", detail: "They share it by demand." }]}
        />
      )}
      <div className="fields">
        <Field label="Minimum IOPS" value={min} onChange={setMin} wrong={wrongCount(min) ?? crossed} help="Promised." />
        <Field label="Maximum IOPS" value={max} onChange={setMax} wrong={wrongCount(max)} help="Allowed." />
        <Field label="Maximum bandwidth" value={bandwidth} onChange={setBandwidth} wrong={badBandwidth} help="Each second, as in 100 MiB." />
      </div>
    </FormDialog>
  );
}

function AssignDialog({ policy, onClose }: { policy: QosPolicy; onClose: () => void }) {
  const luns = useLuns();
  const [picked, setPicked] = useState<string[]>(policy.luns);
  const added = picked.filter((lun) => !policy.luns.includes(lun));
  const removed = policy.luns.filter((lun) => !picked.includes(lun));
  return (
    <FormDialog
      title={`LUNs of policy ${policy.name}`}
      button="Save"
      onClose={onClose}
      wrong={added.length + removed.length === 0}
      preview={<p>{[added.length > 0 && `${added.join(", ")} gets this policy in place of the one it has.`, removed.length > 0 && `${removed.join(", ")} has none any more.`].filter(Boolean).join(" ") || "Nothing changes."}</p>}
      submit={async () => {
        for (const lun of added) await ask(api.POST("/v1/qos/assignments", { body: { lun, policy: policy.name } }));
        for (const lun of removed) await ask(api.DELETE("/v1/qos/assignments", { params: { query: { lun } } }));
        return `Policy ${policy.name} holds for ${many(picked.length, "LUN")}.`;
      }}
    >
      <fieldset className="plain">
        <legend>LUNs</legend>
        {luns.data?.items.slice(0, 500).map((lun) => (
          <Check key={lun.name} value={picked.includes(lun.name)} onChange={(on) => setPicked(on ? [...picked, lun.name] : picked.filter((name) => name !== lun.name))}>{lun.name}</Check>
        ))}
      </fieldset>
    </FormDialog>
  );
}
