// What holds for the whole node: how it speaks SMB and iSCSI, its cache, QoS, and the configuration as a file.
import { useState } from "react";
import { Notifiers } from "./notifiers";
import { Remote } from "./remote";
import { api, ask } from "../api/client";
import { useCache, useIscsi, useQos, useSmb, useStatus } from "../api/queries";
import type { CacheStatus, QosSettings, SmbStatus } from "../api/types";
import { Button, Check, Choice, Field, wrongSize, type Option } from "../parts/controls";
import { FormDialog, ReadDialog, destroy, perform } from "../parts/dialog";
import { bytes, duration, many, parseBytes, percent, time } from "../parts/format";
import { Card, Empty, Facts, Page, Wait } from "../parts/page";
import { Badge } from "../parts/states";
import { Table } from "../parts/table";
import { to } from "../router";

type Dialogs = "smb" | "cache" | "qos" | { config: string } | null;

const NEEDS = { smb: "PATCH /v1/smb", cache: "PATCH /v1/cache", qos: "PATCH /v1/qos" } as const;

export default function Settings() {
  const smb = useSmb();
  const iscsi = useIscsi();
  const cache = useCache();
  const qos = useQos();
  const status = useStatus();
  const [open, setOpen] = useState<Dialogs>(null);
  const change = (what: "smb" | "cache" | "qos") => <Button needs={NEEDS[what]} onPress={() => setOpen(what)}>Change …</Button>;
  return (
    <Page title="Settings" lead="What holds for the whole node.">
      <Card title="SMB" aside={change("smb")}>
        <Wait of={smb}>{(now) => <Smb now={now} />}</Wait>
      </Card>
      <div className="two">
        <Card title="iSCSI">
          <Wait of={iscsi}>
            {(now) => (
              <div className="stack">
                <Facts facts={[["Discovery", now.discovery_chap ? "asks for CHAP before it tells which targets there are" : "tells a host of the targets that have a LUN for it"]]} />
                <div className="buttons">
                    <Button
                      needs="PATCH /v1/iscsi"
                      onPress={() => destroy({
                        title: now.discovery_chap ? "Tell of targets without CHAP" : "Ask for CHAP at discovery",
                        button: "Change",
                        asks: false,
                        means: now.discovery_chap ? "A host is told of the targets that have a LUN for the name that it gives." : "Initiators must prove themselves before they are told of any target; while no target has a user, none is told of.",
                        call: (confirm) => ask(api.PATCH("/v1/iscsi", { body: { discovery_chap: !now.discovery_chap, confirm } })),
                        done: "Discovery is changed.",
                      })}
                    >
                      {now.discovery_chap ? "Discover without CHAP …" : "Discover with CHAP …"}
                    </Button>
                  <a className="button plain" href={to("targets")}>Targets and portals</a>
                </div>
              </div>
            )}
          </Wait>
        </Card>
        <Card title="Read cache" aside={change("cache")}>
          <Wait of={cache}>
            {(now) => {
              const reads = now.counters.hits + now.counters.misses;
              return (
                <Facts
                  facts={[
                    ["May take", bytes(now.limit_bytes)],
                    ["May take now", now.limit_in_force_bytes < now.limit_bytes ? `${bytes(now.limit_in_force_bytes)}: the machine is short of memory` : null],
                    ["Holds", bytes(now.held_bytes)],
                    ["Reads that it answered", reads ? `${percent(now.counters.hits, reads).toFixed(1)} % of ${reads.toLocaleString("en")}` : "no reads yet"],
                  ]}
                />
              );
            }}
          </Wait>
        </Card>
        <Card title="Quality of service" aside={change("qos")}>
          <Wait of={qos}>
            {(now) => <Facts facts={[["One I/O is", `each begun ${bytes(now.unit_bytes ?? 0)}`], ["Requests at a volume at once", now.volume_depth?.toLocaleString("en")]]} />}
          </Wait>
        </Card>
        <Card title="Node">
          <Wait of={status}>
            {(now) => (
              <Facts
                facts={[
                  ["Name", now.node],
                  ["Version", now.version],
                  ["Up", duration(now.uptime_seconds)],
                  ["Data directory", now.data_dir],
                  ["Disk I/O by", now.io_engine],
                  ["Memory of requests", now.request_memory ? `${bytes(now.request_memory.used_bytes)} of ${bytes(now.request_memory.limit_bytes)}` : null],
                ]}
              />
            )}
          </Wait>
        </Card>
      </div>
      <Remote />
      <Notifiers />
      <Card title="Configuration">
        <div className="stack">
          <p>Everything that people have decided, as one file. <code>holdfast config apply FILE</code> takes it back, and says before what would change.</p>
          <div className="buttons">
            <Button needs="GET /v1/config" onPress={() => void perform(async () => {
              const config = await ask(api.GET("/v1/config", { params: { query: { redact: "true" } } }));
              setOpen({ config: JSON.stringify(config, null, 2) });
            }, "The configuration was read.")}
            >
              Show, without secrets
            </Button>
          </div>
        </div>
      </Card>
      {open === "smb" && smb.data && <SmbDialog now={smb.data} onClose={() => setOpen(null)} />}
      {open === "cache" && cache.data && <CacheDialog now={cache.data} onClose={() => setOpen(null)} />}
      {open === "qos" && qos.data && <QosDialog now={qos.data} onClose={() => setOpen(null)} />}
      {open !== null && typeof open === "object" && (
        <ReadDialog title="Configuration, without secrets" onClose={() => setOpen(null)} wide>
          <pre className="config" tabIndex={0} aria-label="Configuration">{open.config}</pre>
        </ReadDialog>
      )}
    </Page>
  );
}

function Smb({ now }: { now: SmbStatus }) {
  return (
    <div className="stack">
      <Facts
        facts={[
          ["Name", now.netbios_name],
          ["Workgroup", now.domain],
          ["Versions", `${now.min_dialect} to ${now.max_dialect}`],
          ["Signing", now.signing],
          ["Encryption", now.encryption],
          ["Several connections for a session", now.multichannel ? "yes" : "no"],
          ["Sessions, opens", `${now.sessions}, ${now.opens}`],
        ]}
      />
      <Table
        label="Addresses of SMB"
        rows={now.listeners}
        id={(row) => row.address}
        empty={<Empty title="The node listens on no address for SMB." />}
        columns={[
          { title: "Address", value: (row) => row.address },
          { title: "State", value: (row) => (row.listening ? "listening" : "not listening"), cell: (row) => <Badge tone={row.listening ? "good" : "bad"}>{row.listening ? "listening" : "not listening"}</Badge> },
          { title: "As", value: (row) => row.listening ?? "–" },
          { title: "Note", value: (row) => row.problem ?? "", wrap: true, wide: true },
        ]}
      />
      {now.smb1_count > 0 && (
        <>
          <p className="warn-text">{many(now.smb1_count, "attempt")} with SMB 1, which is refused: these clients need newer software.</p>
          <Table
            label="Attempts with SMB 1"
            rows={now.smb1_attempts}
            id={(row) => `${row.address} ${row.time} ${row.detail}`}
            empty=""
            columns={[
              { title: "From", value: (row) => row.address },
              { title: "When (UTC)", value: (row) => row.time, cell: (row) => time(row.time) },
              { title: "What", value: (row) => row.detail, wrap: true },
            ]}
          />
        </>
      )}
    </div>
  );
}

const DEMANDS: Option<"offered" | "required">[] = [
  { id: "offered", title: "Offered", detail: "to clients that want it" },
  { id: "required", title: "Required", detail: "clients without are refused" },
];
const DIALECTS: Option<NonNullable<SmbStatus["min_dialect"]>>[] = (["2.0.2", "2.1", "3.0", "3.0.2", "3.1.1"] as const).map((id) => ({ id, title: id }));

function SmbDialog({ now, onClose }: { now: SmbStatus; onClose: () => void }) {
  const [listen, setListen] = useState((now.listen ?? []).join(" "));
  const [signing, setSigning] = useState(now.signing ?? "required");
  const [encryption, setEncryption] = useState(now.encryption ?? "offered");
  const [min, setMin] = useState(now.min_dialect ?? "2.0.2");
  const [max, setMax] = useState(now.max_dialect ?? "3.1.1");
  const [multi, setMulti] = useState(now.multichannel ?? true);
  const addresses = listen.split(/[\s,]+/).filter(Boolean);
  const bad = addresses.every((one) => /^(\[[0-9a-f:.]+\]|[\d.]+):\d{1,5}$/i.test(one)) ? null : "Write ADDRESS:PORT or [V6]:PORT, with blanks between.";
  const order = DIALECTS.findIndex((one) => one.id === min) <= DIALECTS.findIndex((one) => one.id === max);
  return (
    <FormDialog
      title="SMB"
      button="Save"
      onClose={onClose}
      wide
      wrong={bad !== null || !order}
      preview={(
        <ul>
          <li>{addresses.length ? `Shares are served on ${addresses.join(", ")}.` : "No shares are served: the node listens on no address."}</li>
          {!order && <li className="warn-text">The oldest version is newer than the newest.</li>}
          {encryption === "required" && min !== "3.1.1" && <li>Clients older than SMB 3.0 cannot encrypt and are refused.</li>}
        </ul>
      )}
      submit={async () => {
        const changed = <T,>(value: T, then: T | undefined) => (value === then ? undefined : value);
        await ask(api.PATCH("/v1/smb", {
          body: {
            listen: listen === (now.listen ?? []).join(" ") ? undefined : addresses,
            signing: changed(signing, now.signing),
            encryption: changed(encryption, now.encryption),
            min_dialect: changed(min, now.min_dialect),
            max_dialect: changed(max, now.max_dialect),
            multichannel: changed(multi, now.multichannel),
          },
        }));
        return "The SMB server is changed.";
      }}
    >
      <Field label="Addresses" value={listen} onChange={setListen} wrong={bad} help="Windows knows port 445 only." autoFocus />
      <div className="fields">
        <Choice label="Signing" value={signing} onChange={setSigning} options={DEMANDS} />
        <Choice label="Encryption" value={encryption} onChange={setEncryption} options={DEMANDS} />
        <Choice label="Oldest version" value={min} onChange={setMin} options={DIALECTS} />
        <Choice label="Newest version" value={max} onChange={setMax} options={DIALECTS} />
      </div>
      <Check value={multi} onChange={setMulti}>A session may have several connections (multichannel)</Check>
    </FormDialog>
  );
}

function CacheDialog({ now, onClose }: { now: CacheStatus; onClose: () => void }) {
  const [size, setSize] = useState(bytes(now.limit_bytes));
  const wrong = wrongSize(size, { needed: false, atLeast: 0 });
  return (
    <FormDialog
      title="Read cache"
      button="Save"
      onClose={onClose}
      wrong={wrong !== null}
      preview={<p>{size === "" ? "It takes an eighth of the machine’s memory." : parseBytes(size) === 0 ? "Nothing is kept." : `It takes at most ${bytes(parseBytes(size) ?? 0)}, less while the machine is short of memory.`}</p>}
      submit={async () => {
        await ask(api.PATCH("/v1/cache", { body: { read_bytes: size === "" ? null : parseBytes(size) } }));
        return "The read cache is changed.";
      }}
    >
      <Field label="Memory" value={size} onChange={setSize} wrong={wrong} help="Empty for an eighth of the machine’s memory, 0 for none." autoFocus />
    </FormDialog>
  );
}

function QosDialog({ now, onClose }: { now: QosSettings; onClose: () => void }) {
  const [unit, setUnit] = useState(bytes(now.unit_bytes ?? 8192));
  const [depth, setDepth] = useState(String(now.volume_depth ?? 128));
  const wrong = wrongSize(unit, { atLeast: 1024, atMost: 4194304 });
  const badDepth = /^\d+$/.test(depth) && Number(depth) >= 1 && Number(depth) <= 65536 ? null : "A number from 1 to 65536.";
  return (
    <FormDialog
      title="Quality of service"
      button="Save"
      onClose={onClose}
      wrong={wrong !== null || badDepth !== null}
      preview={<p>IOPS of policies and flows count each begun {unit} of a request as one. {depth} requests are at a volume at once; others wait where minimums and shares count.</p>}
      submit={async () => {
        await ask(api.PATCH("/v1/qos", { body: { unit_bytes: parseBytes(unit), volume_depth: Number(depth) } }));
        return "Quality of service is changed.";
      }}
    >
      <div className="fields">
        <Field label="One I/O is" value={unit} onChange={setUnit} wrong={wrong} autoFocus />
        <Field label="Requests at a volume at once" value={depth} onChange={setDepth} wrong={badDepth} />
      </div>
    </FormDialog>
  );
}
