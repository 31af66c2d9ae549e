// Shares: folders of volumes that clients reach over SMB, and who may do what there.
import { useState } from "react";
import { keyOf, useRates } from "../api/counters";
import { api, ask } from "../api/client";
import { useShares, useSmb, useUserGroups, useUsers, useVolumes } from "../api/queries";
import type { Share, ShareKind, SharePermission, ShareRight } from "../api/types";
import { Actions, Button, Check, Choice, Choices, Field, wrongName, type Action, type Option } from "../parts/controls";
import { FormDialog, destroy } from "../parts/dialog";
import { bytes, number, perSecond, quote } from "../parts/format";
import { Card, Empty, Facts, Page, Wait } from "../parts/page";
import { Performance } from "../parts/performance";
import { Online } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { to } from "../router";
import { AttachShare } from "./attach";

export default function Shares({ parts }: { parts: string[] }) {
  return parts[0] ? <One name={parts[0]} /> : <All />;
}

export const KINDS: Option<ShareKind>[] = [
  { id: "scale-out", title: "Scale-out: for virtual machines", detail: "Continuously available: what clients have open outlives the server, and each write is durable when it is answered. Clients cache reads only, so nobody waits for one that is away." },
  { id: "clustered", title: "Clustered", detail: "Continuously available, and clients cache writes and handles, too: who wants a file whose client is away waits until it is back or its time is over." },
  { id: "plain", title: "Plain", detail: "What clients have open is lost with the server, and writes may wait in memory until the client flushes." },
];
const RIGHTS: Option<ShareRight>[] = [
  { id: "full", title: "Full control" },
  { id: "change", title: "Change" },
  { id: "read", title: "Read" },
];
const rightTitle = (right: ShareRight) => RIGHTS.find((one) => one.id === right)?.title ?? right;

function All() {
  const shares = useShares();
  const smb = useSmb();
  const rates = useRates();
  const [creating, setCreating] = useState(false);
  const rate = (share: Share) => rates.get(keyOf("share", share.name));
  const columns: Column<Share>[] = [
    { title: "Share", value: (row) => row.name, cell: (row) => <a href={to("shares", row.name)}>{row.name}</a> },
    { title: "State", value: (row) => String(row.online), cell: (row) => <Online online={row.online} /> },
    { title: "Kind", value: (row) => row.kind ?? "scale-out", wide: true },
    { title: "Folder", value: (row) => `${row.volume}:${row.folder}`, wrap: true },
    { title: "Who", value: (row) => (row.permission ?? []).map((one) => one.who).join(", ") || "nobody", wide: true, wrap: true },
    { title: "Sessions", value: (row) => row.sessions, end: true, wide: true },
    { title: "Opens", value: (row) => row.opens, end: true },
    { title: "IOPS", value: (row) => { const r = rate(row); return r ? r.read.iops + r.write.iops : 0; }, cell: (row) => { const r = rate(row); return r ? number(r.read.iops + r.write.iops) : "–"; }, end: true, wide: true },
    { title: "Throughput", value: (row) => { const r = rate(row); return r ? r.read.bytes + r.write.bytes : 0; }, cell: (row) => { const r = rate(row); return r ? perSecond(r.read.bytes + r.write.bytes) : "–"; }, end: true, wide: true },
  ];
  const deaf = smb.data && !smb.data.listeners.some((one) => one.listening);
  return (
    <Page
      title="Shares"
      lead="A share is a folder of a volume that clients reach over SMB 3."
      actions={<Button needs="POST /v1/shares" look="primary" icon="add" onPress={() => setCreating(true)}>Create share</Button>}
    >
      {deaf && <p className="warn-text">The node listens on no address for SMB: <a href={to("settings")}>Settings</a> has them.</p>}
      <Wait of={shares}>
        {({ items }) => <Table label="Shares" rows={items} columns={columns} id={(row) => row.name} empty={<Empty title="There is no share yet." />} />}
      </Wait>
      {creating && <ShareCreateDialog onClose={() => setCreating(false)} />}
    </Page>
  );
}

function One({ name }: { name: string }) {
  const shares = useShares();
  const [open, setOpen] = useState<"edit" | "grant" | null>(null);
  const share = shares.data?.items.find((one) => one.name === name);
  const where = { params: { path: { share: name } } };
  const actions: Action[] = [
    { id: "edit", title: "Change …", needs: "PATCH /v1/shares/{share}", run: () => setOpen("edit") },
    {
      id: "delete",
      title: "Delete …", needs: "DELETE /v1/shares/{share}",
      danger: true,
      run: () => destroy({
        title: `Delete share ${name}`,
        button: "Delete",
        call: (confirm) => ask(api.DELETE("/v1/shares/{share}", { ...where, body: { confirm } })),
        then: () => { window.location.hash = to("shares"); },
      }),
    },
  ];
  return (
    <Page
      title={`Share ${name}`}
      lead={share?.comment}
      up={{ href: to("shares"), title: "Shares" }}
      actions={share && <Actions label={`Actions for share ${name}`} text="Actions" actions={actions} />}
    >
      <Wait of={shares}>
        {() => (share ? (
          <>
            <Card title="State" aside={<Online online={share.online} />}>
              {share.problem && <p className="warn-text">{share.problem}</p>}
              <Facts
                facts={[
                  ["Folder", <a key="f" href={`${to("volumes", share.volume, "files")}?path=${encodeURIComponent(share.folder)}`}>{share.volume}:{share.folder}</a>],
                  ["Kind", KINDS.find((kind) => kind.id === (share.kind ?? "scale-out"))?.title],
                  ["Encryption", share.encrypt ? "everything over it is encrypted" : "as the server demands"],
                  ["Clients may keep", share.caching === "none" ? "nothing" : `what fits “${share.caching ?? "manual"}”`],
                  ["Listings", [share.hidden && "it is left out of them", share.access_based_enumeration && "they leave out what a user could not open"].filter(Boolean).join("; ") || "everything is listed"],
                  ["Writes", share.read_only ? "none: it is for reading" : "as permissions say"],
                  ["Sessions, opens", `${share.sessions}, ${share.opens}`],
                  ["Passed over it", `${bytes(share.traffic.read_bytes)} read, ${bytes(share.traffic.written_bytes)} written, ${number(share.traffic.refused)} refused`],
                ]}
              />
            </Card>
            <Card title="Who may do what" aside={<Button needs="PATCH /v1/shares/{share}" icon="add" onPress={() => setOpen("grant")}>Grant</Button>}>
              <Table
                label={`Permissions of share ${name}`}
                rows={share.permission ?? []}
                id={(row) => row.who}
                empty={<Empty title="Nobody may use it."><p>Grant a user or a group a right.</p></Empty>}
                columns={[
                  { title: "Who", value: (row) => row.who },
                  { title: "Right", value: (row) => row.right, cell: (row) => rightTitle(row.right) },
                ]}
                actions={(row) => ({
                  label: `Actions for ${row.who}`,
                  actions: [{
                    id: "revoke",
                    title: "Revoke …", needs: "PATCH /v1/shares/{share}",
                    danger: true,
                    run: () => destroy({
                      title: `Revoke ${row.who}’s right on ${name}`,
                      button: "Revoke",
                      asks: false,
                      means: "It counts for new connections; who is connected keeps the right until then. End the session to be sure.",
                      call: () => ask(api.PATCH("/v1/shares/{share}", { ...where, body: { revoke: [row.who] } })),
                      done: `${row.who} has no right on ${name} any more.`,
                    }),
                  }],
                })}
              />
            </Card>
            <Card title="Performance"><Performance of={keyOf("share", name)} /></Card>
            <Card title="How to attach it"><AttachShare share={name} user={share.permission?.find((one) => one.who !== "Everyone")?.who ?? "USER"} /></Card>
            {open === "edit" && <EditDialog share={share} onClose={() => setOpen(null)} />}
            {open === "grant" && <GrantDialog share={share} onClose={() => setOpen(null)} />}
          </>
        ) : <Empty title={`There is no share ${name}.`}><p><a href={to("shares")}>These shares</a> are there.</p></Empty>)}
      </Wait>
    </Page>
  );
}

/** Users and groups that a right can be given to. */
export function useAccounts(): Option<string>[] {
  const users = useUsers();
  const groups = useUserGroups();
  return [
    ...(users.data?.items.map((user) => ({ id: user.name, title: user.name, detail: user.full_name || "user" })) ?? []),
    ...(groups.data?.items.map((group) => ({ id: group.name, title: group.name, detail: group.comment || "group" })) ?? []),
    { id: "Everyone", title: "Everyone", detail: "everyone who can log in" },
  ];
}

function GrantDialog({ share, onClose }: { share: Share; onClose: () => void }) {
  const accounts = useAccounts();
  const [who, setWho] = useState("");
  const [right, setRight] = useState<ShareRight>("change");
  const now = share.permission?.find((one) => one.who === who);
  return (
    <FormDialog
      title={`Grant a right on ${share.name}`}
      button="Grant"
      onClose={onClose}
      wrong={!who}
      preview={who && <p>{who} gets “{rightTitle(right)}” on {share.name}{now ? `, in place of “${rightTitle(now.right)}”` : ""}. What files in it allow counts, too: the narrower of both.</p>}
      command={who ? `holdfast share set ${quote(share.name)} --${right} ${quote(who)}` : undefined}
      submit={async () => {
        await ask(api.PATCH("/v1/shares/{share}", { params: { path: { share: share.name } }, body: { grant: [{ who, right }] } }));
        return `${who} has “${rightTitle(right)}” on ${share.name}.`;
      }}
    >
      <div className="fields">
        <Choice label="Who" value={who} onChange={setWho} options={accounts} />
        <Choice label="Right" value={right} onChange={setRight} options={RIGHTS} />
      </div>
    </FormDialog>
  );
}

function EditDialog({ share, onClose }: { share: Share; onClose: () => void }) {
  const [comment, setComment] = useState(share.comment ?? "");
  const [kind, setKind] = useState<ShareKind>(share.kind ?? "scale-out");
  const [encrypt, setEncrypt] = useState(share.encrypt ?? false);
  const [readOnly, setReadOnly] = useState(share.read_only ?? false);
  const [hidden, setHidden] = useState(share.hidden ?? false);
  const [abe, setAbe] = useState(share.access_based_enumeration ?? false);
  const changed = <T,>(now: T, then: T) => (now === then ? undefined : now);
  return (
    <FormDialog
      title={`Change share ${share.name}`}
      button="Save"
      onClose={onClose}
      wide
      wrong={false}
      preview={<p>Clients that are connected keep what they have until they connect again.{encrypt && !share.encrypt ? " Clients that cannot encrypt are refused." : ""}</p>}
      submit={async () => {
        await ask(api.PATCH("/v1/shares/{share}", {
          params: { path: { share: share.name } },
          body: {
            comment: changed(comment, share.comment ?? ""),
            kind: changed(kind, share.kind ?? "scale-out"),
            encrypt: changed(encrypt, share.encrypt ?? false),
            read_only: changed(readOnly, share.read_only ?? false),
            hidden: changed(hidden, share.hidden ?? false),
            access_based_enumeration: changed(abe, share.access_based_enumeration ?? false),
          },
        }));
        return `Share ${share.name} is changed.`;
      }}
    >
      <Field label="Comment" value={comment} onChange={setComment} autoFocus />
      <Choices label="What it promises" value={kind} onChange={setKind} options={KINDS} />
      <Check value={encrypt} onChange={setEncrypt}>Everything over it must be encrypted</Check>
      <Check value={readOnly} onChange={setReadOnly}>Nothing may be changed over it</Check>
      <Check value={hidden} onChange={setHidden}>Leave it out of listings</Check>
      <Check value={abe} onChange={setAbe}>Listings leave out what the user could not open</Check>
    </FormDialog>
  );
}

export function ShareCreateDialog({ onClose }: { onClose: () => void }) {
  const volumes = useVolumes();
  const shares = useShares();
  const accounts = useAccounts();
  const [name, setName] = useState("");
  const [comment, setComment] = useState("");
  const [picked, setPicked] = useState("");
  const [folder, setFolder] = useState("");
  const [kind, setKind] = useState<ShareKind>("scale-out");
  const [encrypt, setEncrypt] = useState(false);
  const [who, setWho] = useState("");
  const [right, setRight] = useState<ShareRight>("full");
  const all = volumes.data?.items.filter((volume) => volume.online) ?? [];
  const volume = all.find((one) => one.name === picked) ?? all[0];
  const wrong = wrongName(name, shares.data?.items.map((share) => share.name));
  const badFolder = folder === "" || folder.startsWith("/") ? null : "Write the whole path, as in /shares/vmstore.";
  const place = `${volume?.name ?? "VOLUME"}:${folder || `/shares/${name}`}`;
  const permissions: SharePermission[] = who ? [{ who, right }] : [];
  const ready = wrong === null && badFolder === null && volume !== undefined;
  return (
    <FormDialog
      title={`Create share ${name}`.trim()}
      onClose={onClose}
      wide
      wrong={!ready}
      preview={wrong === null && (
        <ul>
          <li>Clients find the folder {place} as {name}. It is made if it is not there.</li>
          <li>{who ? `${who} gets “${rightTitle(right)}”, nobody else anything.` : "Nobody may use it until a right is granted."}</li>
          {encrypt && <li>Clients that cannot encrypt are refused.</li>}
        </ul>
      )}
      command={ready ? `holdfast share create ${quote(name)} --volume ${quote(volume.name)}${folder ? ` --folder ${quote(folder)}` : ""}${comment ? ` --comment ${quote(comment)}` : ""}${kind === "scale-out" ? "" : ` --kind ${kind}`}${encrypt ? " --encrypt" : ""}${who ? ` --${right} ${quote(who)}` : ""}` : undefined}
      submit={async () => {
        await ask(api.POST("/v1/shares", { body: { name, volume: volume?.name, folder: folder || undefined, comment, kind, encrypt, permissions } }));
        return `Share ${name} is there.`;
      }}
    >
      {volumes.data && all.length === 0 && <p>There is no volume to put it on. Create one first.</p>}
      <div className="fields">
        <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
        {all.length > 1 && <Choice label="Volume" value={volume?.name ?? ""} onChange={setPicked} options={all.map((one) => ({ id: one.name, title: one.name }))} />}
        <Field label="Folder" value={folder} onChange={setFolder} wrong={badFolder} placeholder={`/shares/${name || "NAME"}`} />
        <Field label="Comment" value={comment} onChange={setComment} />
      </div>
      <div className="fields">
        <Choice label="Who may use it" value={who} onChange={setWho} options={accounts} />
        <Choice label="Right" value={right} onChange={setRight} options={RIGHTS} />
      </div>
      <Choices label="What it promises" value={kind} onChange={setKind} options={KINDS} />
      <Check value={encrypt} onChange={setEncrypt}>Everything over it must be encrypted</Check>
    </FormDialog>
  );
}
