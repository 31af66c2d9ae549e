// From empty disks to a disk or share that a host can use: each step does one thing, after it was said what it is.
import { useState, type ReactNode } from "react";
import { api, ask } from "../api/client";
import { refresh, useInitiatorGroups, useLuns, usePools, usePortals, useShares, useSmb, useStatus, useTargets, useUsers, useVolumes, useMay } from "../api/queries";
import type { Resiliency, ShareRight } from "../api/types";
import { Button, ButtonLink, Check, Choice, Choices, Field, wrongName, wrongSize } from "../parts/controls";
import { destroy } from "../parts/dialog";
import { bytes, parseBytes } from "../parts/format";
import { Card, Empty, Page } from "../parts/page";
import { ProblemBox } from "../parts/problem";
import { RESILIENCY } from "../parts/states";
import { tell } from "../parts/toast";
import { to } from "../router";
import { AttachLun, AttachShare } from "./attach";
import { LunPreview } from "./lun-create";
import { DiskPicks, Overwrite, PoolPreview, useDiskChoice } from "./pool-dialogs";
import { RESILIENCIES, VolumePreview } from "./volume-create";

const STEPS = ["Pool", "Volume", "LUN or share", "Attach"] as const;
type Made = { what: "lun" | "share"; name: string; user: string };

export default function Setup() {
  const may = useMay();
  const [step, setStep] = useState(0);
  const [pool, setPool] = useState("");
  const [volume, setVolume] = useState("");
  const [made, setMade] = useState<Made | null>(null);
  if (!may("POST /v1/luns")) return <Page title="Set up storage"><Empty title="Your role may look, not change."><p>This takes the role administrator.</p></Empty></Page>;
  const next = () => setStep((now) => now + 1);
  return (
    <Page title="Set up storage" lead="From empty disks to a disk or share that a host can use.">
      <ol className="steps" aria-label="Steps">
        {STEPS.map((title, index) => (
          <li key={title} className={index < step ? "past" : undefined} aria-current={index === step ? "step" : undefined}>
            <span aria-hidden="true">{index < step ? "✓" : index + 1}</span>
            {title}
            {index < step && <span className="hidden"> (done)</span>}
          </li>
        ))}
      </ol>
      {step === 0 && <PoolStep then={(name) => { setPool(name); next(); }} />}
      {step === 1 && <VolumeStep pool={pool} back={() => setStep(0)} then={(name) => { setVolume(name); next(); }} />}
      {step === 2 && <UseStep volume={volume} back={() => setStep(1)} then={(one) => { setMade(one); next(); }} />}
      {step === 3 && made && <AttachStep made={made} again={() => { setMade(null); setStep(2); }} />}
    </Page>
  );
}

/** Does what a step is for, and shows the problem in it otherwise. */
function useStep() {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const act = async (call: () => Promise<void>) => {
    setBusy(true);
    setProblem(null);
    try {
      await call();
      await refresh();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return { busy, problem, act };
}

function Preview({ children }: { children: ReactNode }) {
  return (
    <section className="preview" aria-label="What will happen">
      <h3>What will happen</h3>
      {children}
    </section>
  );
}

function PoolStep({ then }: { then: (pool: string) => void }) {
  const pools = usePools();
  const all = pools.data?.items.filter((pool) => pool.state !== "closed") ?? [];
  const [how, setHow] = useState<"new" | "there" | "">("");
  const chosen = how || (all.length > 0 ? "there" : "new");
  const [picked, setPicked] = useState("");
  const [name, setName] = useState("");
  const choice = useDiskChoice();
  const wrong = wrongName(name, pools.data?.items.map((pool) => pool.name));
  const pool = picked || (all[0]?.name ?? "");
  return (
    <Card title="Which disks is it to be on?">
      <div className="stack">
        {all.length > 0 && (
          <Choices label="Pool" value={chosen} onChange={setHow} options={[{ id: "there", title: "A pool that is there" }, { id: "new", title: "A new pool, of free disks" }]} />
        )}
        {chosen === "there" ? (
          <>
            <Choice label="Use" value={pool} onChange={setPicked} options={all.map((one) => ({ id: one.name, title: one.name, detail: `${bytes(one.free_bytes ?? 0)} free` }))} />
            <div className="buttons"><Button look="primary" isDisabled={!pool} onPress={() => then(pool)}>Next</Button></div>
          </>
        ) : (
          <>
            <Field label="Name of the pool" value={name} onChange={setName} wrong={name ? wrong : null} required />
            <DiskPicks choice={choice} />
            <Overwrite choice={choice} />
            <Preview><PoolPreview choice={choice} /></Preview>
            <div className="buttons">
              <Button
                look="primary"
                isDisabled={wrong !== null || choice.wrong}
                onPress={() => destroy({
                  title: `Create pool ${name}`,
                  button: "Create",
                  call: (confirm) => ask(api.POST("/v1/pools", { body: { name, disks: choice.picked, overwrite_foreign: choice.overwrite, confirm } })),
                  done: `Pool ${name} is there.`,
                  then: () => then(name),
                })}
              >
                Create pool
              </Button>
            </div>
          </>
        )}
      </div>
    </Card>
  );
}

function VolumeStep({ pool, back, then }: { pool: string; back: () => void; then: (volume: string) => void }) {
  const pools = usePools();
  const volumes = useVolumes();
  const { busy, problem, act } = useStep();
  const all = volumes.data?.items.filter((volume) => volume.online && volume.pool === pool) ?? [];
  const [how, setHow] = useState<"new" | "there" | "">("");
  const chosen = how || (all.length > 0 ? "there" : "new");
  const [picked, setPicked] = useState("");
  const [name, setName] = useState("");
  const [size, setSize] = useState("");
  const [resiliency, setResiliency] = useState<Resiliency>("mirror2");
  const wrong = wrongName(name, volumes.data?.items.map((volume) => volume.name));
  const badSize = wrongSize(size);
  const volume = picked || (all[0]?.name ?? "");
  return (
    <Card title="How is its data to survive?">
      <div className="stack">
        {all.length > 0 && (
          <Choices label="Volume" value={chosen} onChange={setHow} options={[{ id: "there", title: "A volume that is there" }, { id: "new", title: `A new volume on ${pool}` }]} />
        )}
        {chosen === "there" ? (
          <Choice label="Use" value={volume} onChange={setPicked} options={all.map((one) => ({ id: one.name, title: one.name, detail: `${RESILIENCY[one.resiliency].title}, ${bytes(one.free_bytes ?? 0)} free` }))} />
        ) : (
          <>
            <div className="fields">
              <Field label="Name of the volume" value={name} onChange={setName} wrong={name ? wrong : null} required />
              <Field label="Size" value={size} onChange={setSize} wrong={size ? badSize : null} placeholder="100 GiB" required />
            </div>
            <Choices label="Redundancy" value={resiliency} onChange={setResiliency} options={RESILIENCIES.map((id) => ({ id, title: RESILIENCY[id].title, detail: RESILIENCY[id].survives }))} />
            {badSize === null && <Preview><VolumePreview pool={pools.data?.items.find((one) => one.name === pool)} size={parseBytes(size) ?? 0} resiliency={resiliency} fixed={false} /></Preview>}
          </>
        )}
        {problem !== null && <ProblemBox error={problem} />}
        <div className="buttons">
          <Button onPress={back}>Back</Button>
          {chosen === "there"
            ? <Button look="primary" isDisabled={!volume} onPress={() => then(volume)}>Next</Button>
            : (
              <Button
                look="primary"
                isDisabled={busy || wrong !== null || badSize !== null}
                onPress={() => void act(async () => {
                  await ask(api.POST("/v1/volumes", { body: { name, pool, size_bytes: parseBytes(size) ?? 0, resiliency } }));
                  tell(`Volume ${name} is there.`);
                  then(name);
                })}
              >
                {busy ? "Working …" : "Create volume"}
              </Button>
            )}
        </div>
      </div>
    </Card>
  );
}

function UseStep({ volume, back, then }: { volume: string; back: () => void; then: (made: Made) => void }) {
  const [what, setWhat] = useState<"lun" | "share">("lun");
  return (
    <Card title="What are hosts to see?">
      <div className="stack">
        <Choices
          label="Offer it as"
          value={what}
          onChange={setWhat}
          options={[
            { id: "lun", title: "A LUN: a disk, over iSCSI", detail: "For Proxmox, KVM, VMware, Hyper-V, or any system that knows disks." },
            { id: "share", title: "A share: a folder, over SMB 3", detail: "For VHDX files of Hyper-V, for Proxmox, KVM, and people." },
          ]}
        />
        {what === "lun" ? <LunStep volume={volume} back={back} then={then} /> : <ShareStep volume={volume} back={back} then={then} />}
      </div>
    </Card>
  );
}

const wrongInitiator = (names: string[]) => (names.every((name) => /^(iqn\.|eui\.|naa\.)\S+$/i.test(name)) ? null : "Names of initiators begin with iqn., eui. or naa.");

function LunStep({ volume, back, then }: { volume: string; back: () => void; then: (made: Made) => void }) {
  const status = useStatus();
  const luns = useLuns();
  const volumes = useVolumes();
  const targets = useTargets();
  const portals = usePortals();
  const groups = useInitiatorGroups();
  const { busy, problem, act } = useStep();
  const [name, setName] = useState("");
  const [size, setSize] = useState("");
  const [everyone, setEveryone] = useState(false);
  const [names, setNames] = useState("");
  const initiators = names.split(/[\s,]+/).filter(Boolean);
  const wrong = wrongName(name, luns.data?.items.map((lun) => lun.name));
  const wanted = parseBytes(size) ?? 0;
  const badSize = wrongSize(size, { atLeast: 1024 * 1024 }) ?? (wanted % 512 ? "This is no multiple of 512 bytes." : null);
  const badNames = everyone ? null : wrongInitiator(initiators);
  const target = targets.data?.items[0]?.name;
  const newTarget = `iqn.2026-01.io.holdfast:${(status.data?.node ?? "node").toLowerCase().replace(/[^a-z0-9.-]/g, "-")}`;
  const listens = (portals.data?.items.length ?? 0) > 0;
  const group = groups.data?.items.some((one) => one.name === name) ? `${name}-hosts` : name;
  const ready = wrong === null && badSize === null && badNames === null && (everyone || initiators.length > 0);
  return (
    <>
      <div className="fields">
        <Field label="Name of the LUN" value={name} onChange={setName} wrong={name ? wrong : null} required />
        <Field label="Size" value={size} onChange={setSize} wrong={size ? badSize : null} placeholder="100 GiB" required />
      </div>
      <Field
        label="Initiators that see it"
        value={names}
        onChange={setNames}
        wrong={names ? badNames : null}
        disabled={everyone}
        help="What the hosts call themselves, with blanks between: on Windows (Get-InitiatorPort).NodeAddress, on Linux in /etc/iscsi/initiatorname.iscsi."
      />
      <Check value={everyone} onChange={setEveryone} help="Whoever reaches the target. For a network that is yours alone.">Every initiator sees it</Check>
      {badSize === null && (
        <Preview>
          <LunPreview volume={volumes.data?.items.find((one) => one.name === volume)} size={wanted} reserve={false} />
          <ul>
            {!target && <li>The target {newTarget} is made.</li>}
            {!listens && <li>The node begins to listen for iSCSI on all its addresses, port 3260.</li>}
            {!everyone && initiators.length > 0 && <li>The group {group} is made, of {initiators.join(", ")}.</li>}
          </ul>
        </Preview>
      )}
      {problem !== null && <ProblemBox error={problem} />}
      <div className="buttons">
        <Button onPress={back}>Back</Button>
        <Button
          look="primary"
          isDisabled={!ready || busy}
          onPress={() => void act(async () => {
            if (!listens) await ask(api.POST("/v1/portals", { body: { address: "0.0.0.0:3260" } }));
            if (!target) await ask(api.POST("/v1/targets", { body: { name: newTarget, alias: "" } }));
            if (!everyone && !groups.data?.items.some((one) => one.name === group)) await ask(api.POST("/v1/initiator-groups", { body: { name: group, initiators } }));
            await ask(api.POST("/v1/luns", {
              body: { name, volume, size_bytes: wanted, map: [everyone ? { everyone: true, target: target ?? newTarget } : { group, target: target ?? newTarget }] },
            }));
            tell(`LUN ${name} is there.`);
            then({ what: "lun", name, user: "" });
          })}
        >
          {busy ? "Working …" : "Create LUN"}
        </Button>
      </div>
    </>
  );
}

function ShareStep({ volume, back, then }: { volume: string; back: () => void; then: (made: Made) => void }) {
  const shares = useShares();
  const users = useUsers();
  const smb = useSmb();
  const { busy, problem, act } = useStep();
  const [name, setName] = useState("");
  const [how, setHow] = useState<"new" | "there" | "">("");
  const all = users.data?.items ?? [];
  const chosen = how || (all.length > 0 ? "there" : "new");
  const [picked, setPicked] = useState("");
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [encrypt, setEncrypt] = useState(true);
  const [right] = useState<ShareRight>("full");
  const who = chosen === "new" ? user : picked || (all[0]?.name ?? "");
  const wrong = wrongName(name, shares.data?.items.map((share) => share.name));
  const badUser = chosen === "new" ? wrongName(user, all.map((one) => one.name)) : null;
  const badPassword = chosen === "new" && password !== again ? "The two are not the same." : null;
  const listens = (smb.data?.listen?.length ?? 0) > 0;
  const ready = wrong === null && badUser === null && badPassword === null && who !== "" && (chosen !== "new" || password !== "");
  return (
    <>
      <Field label="Name of the share" value={name} onChange={setName} wrong={name ? wrong : null} required />
      {all.length > 0 && <Choices label="Who uses it" value={chosen} onChange={setHow} options={[{ id: "there", title: "A user who is there" }, { id: "new", title: "A new user" }]} />}
      {chosen === "there" ? (
        <Choice label="User" value={who} onChange={setPicked} options={all.map((one) => ({ id: one.name, title: one.name, detail: one.full_name }))} />
      ) : (
        <div className="fields">
          <Field label="User" value={user} onChange={setUser} wrong={user ? badUser : null} required />
          <Field label="Password" type="password" value={password} onChange={setPassword} required autoComplete="new-password" />
          <Field label="Password again" type="password" value={again} onChange={setAgain} wrong={again ? badPassword : null} required autoComplete="new-password" />
        </div>
      )}
      <Check value={encrypt} onChange={setEncrypt}>Everything over it must be encrypted</Check>
      {wrong === null && (
        <Preview>
          <ul>
            <li>The folder {volume}:/shares/{name} is made and offered as {name}, continuously available.</li>
            {who && <li>{chosen === "new" ? `The user ${who} is made. It` : who} may do everything in it, nobody else anything.</li>}
            {!listens && <li>The node begins to listen for SMB on all its addresses, port 445.</li>}
          </ul>
        </Preview>
      )}
      {problem !== null && <ProblemBox error={problem} />}
      <div className="buttons">
        <Button onPress={back}>Back</Button>
        <Button
          look="primary"
          isDisabled={!ready || busy}
          onPress={() => void act(async () => {
            if (!listens) await ask(api.PATCH("/v1/smb", { body: { listen: ["0.0.0.0:445"] } }));
            if (chosen === "new") await ask(api.POST("/v1/users", { body: { name: user, password } }));
            await ask(api.POST("/v1/shares", { body: { name, volume, encrypt, permissions: [{ who, right }] } }));
            tell(`Share ${name} is there.`);
            then({ what: "share", name, user: who });
          })}
        >
          {busy ? "Working …" : "Create share"}
        </Button>
      </div>
    </>
  );
}

function AttachStep({ made, again }: { made: Made; again: () => void }) {
  const luns = useLuns();
  const lun = luns.data?.items.find((one) => one.name === made.name);
  return (
    <Card title={`${made.what === "lun" ? "LUN" : "Share"} ${made.name} is ready`}>
      <div className="stack">
        {made.what === "lun" ? lun && <AttachLun lun={lun} /> : <AttachShare share={made.name} user={made.user} />}
        <div className="buttons">
          <ButtonLink look="primary" href={to()}>To the overview</ButtonLink>
          <Button onPress={again}>Another LUN or share</Button>
        </div>
      </div>
    </Card>
  );
}
