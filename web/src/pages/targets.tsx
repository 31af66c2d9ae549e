// Targets that LUNs are seen at, the addresses they are served on, and the groups of initiators that see them.
import { useState } from "react";
import { api, ask } from "../api/client";
import { useInitiatorGroups, usePortals, useTargets, type Operation } from "../api/queries";
import type { InitiatorGroup, Target } from "../api/types";
import { Button, Check, Field, wrongName } from "../parts/controls";
import { FormDialog, destroy } from "../parts/dialog";
import { many, quote } from "../parts/format";
import { Card, Empty, Page, Wait } from "../parts/page";
import { Badge, Online } from "../parts/states";
import { Table } from "../parts/table";

type Dialogs = { what: "target" | "group" | "portal" } | { what: "edit-group"; group: InitiatorGroup } | { what: "edit-target" | "chap"; target: Target } | null;

export default function Targets() {
  const targets = useTargets();
  const groups = useInitiatorGroups();
  const portals = usePortals();
  const [open, setOpen] = useState<Dialogs>(null);
  const close = () => setOpen(null);
  const add = (what: "target" | "group" | "portal", title: string, needs: Operation) => <Button icon="add" needs={needs} onPress={() => setOpen({ what })}>{title}</Button>;
  return (
    <Page title="Targets and initiators" lead="Initiators log in at a target over a portal, and see the LUNs that are mapped to their group.">
      <Card title="Targets" aside={add("target", "Create target", "POST /v1/targets")}>
        <Wait of={targets}>
          {({ items }) => (
            <Table
              label="Targets"
              rows={items}
              id={(row) => row.name}
              empty={<Empty title="There is no target: no initiator can log in." />}
              columns={[
                { title: "Target", value: (row) => row.name, wrap: true },
                { title: "Alias", value: (row) => row.alias, wide: true },
                { title: "LUNs", value: (row) => row.luns, end: true },
                { title: "Sessions", value: (row) => row.sessions, end: true },
                {
                  title: "Who may log in",
                  value: (row) => (row.chap_users.length && !row.chap_off ? "CHAP" : "anyone"),
                  cell: (row) => (row.chap_users.length && !row.chap_off
                    ? <Badge tone="good">{`CHAP: ${many(row.chap_users.length, "user")}${row.mutual_chap ? ", mutual" : ""}`}</Badge>
                    : <Badge tone="warn">{row.chap_off ? "anyone: CHAP is off" : "anyone: no CHAP"}</Badge>),
                },
                { title: "Portal groups", value: (row) => row.portal_groups.join(", ") || "all", wide: true },
              ]}
              actions={(row) => ({
                label: `Actions for target ${row.name}`,
                actions: [
                  { id: "edit", title: "Change …", needs: "PATCH /v1/targets/{target}", run: () => setOpen({ what: "edit-target", target: row }) },
                  { id: "chap", title: "Add or change a CHAP user …", needs: "PATCH /v1/targets/{target}", run: () => setOpen({ what: "chap", target: row }) },
                  ...row.chap_users.map((user) => ({
                    id: `remove ${user.user}`,
                    title: `Remove CHAP user ${user.user} …`, needs: "PATCH /v1/targets/{target}" as const,
                    danger: true,
                    run: () => destroy({
                      title: `Remove CHAP user ${user.user} of ${row.name}`,
                      button: "Remove",
                      asks: false,
                      means: "Sessions of this user end, and it cannot log in any more.",
                      call: (confirm) => ask(api.PATCH("/v1/targets/{target}", { params: { path: { target: row.name } }, body: { remove_user: user.user, confirm } })),
                      done: `CHAP user ${user.user} is removed.`,
                    }),
                  })),
                  {
                    id: "delete",
                    title: "Delete …", needs: "DELETE /v1/targets/{target}",
                    danger: true,
                    run: () => destroy({
                      title: `Delete target ${row.name}`,
                      button: "Delete",
                      call: (confirm) => ask(api.DELETE("/v1/targets/{target}", { params: { path: { target: row.name } }, body: { confirm } })),
                    }),
                  },
                ],
              })}
            />
          )}
        </Wait>
      </Card>
      <Card title="Initiator groups" aside={add("group", "Create group", "POST /v1/initiator-groups")}>
        <Wait of={groups}>
          {({ items }) => (
            <Table
              label="Initiator groups"
              rows={items}
              id={(row) => row.name}
              empty={<Empty title="There is no group of initiators: no LUN can be mapped to one." />}
              columns={[
                { title: "Group", value: (row) => row.name },
                { title: "Initiators", value: (row) => (row.any ? "every initiator" : (row.initiators ?? []).join(", ") || "none"), wrap: true },
              ]}
              actions={(row) => ({
                label: `Actions for group ${row.name}`,
                actions: [
                  { id: "edit", title: "Change …", needs: "PATCH /v1/initiator-groups/{group}", run: () => setOpen({ what: "edit-group", group: row }) },
                  {
                    id: "delete",
                    title: "Delete …", needs: "DELETE /v1/initiator-groups/{group}",
                    danger: true,
                    run: () => destroy({
                      title: `Delete initiator group ${row.name}`,
                      button: "Delete",
                      call: (confirm) => ask(api.DELETE("/v1/initiator-groups/{group}", { params: { path: { group: row.name } }, body: { confirm } })),
                    }),
                  },
                ],
              })}
            />
          )}
        </Wait>
      </Card>
      <Card title="Portals" aside={add("portal", "Listen on an address", "POST /v1/portals")}>
        <Wait of={portals}>
          {({ items }) => (
            <Table
              label="Portals"
              rows={items}
              id={(row) => row.address}
              empty={<Empty title="The node listens on no address for iSCSI." />}
              columns={[
                { title: "Address", value: (row) => row.address },
                { title: "State", value: (row) => (row.listening ? "listening" : "not listening"), cell: (row) => <Online online={Boolean(row.listening)} word={row.listening ? "listening" : "not listening"} /> },
                { title: "As", value: (row) => row.listening ?? "–", wide: true },
                { title: "Group", value: (row) => row.group, end: true },
                { title: "Note", value: (row) => row.problem ?? "", wrap: true, wide: true },
              ]}
              actions={(row) => ({
                label: `Actions for portal ${row.address}`,
                actions: [{
                  id: "delete",
                  title: "Stop listening …", needs: "DELETE /v1/portals",
                  danger: true,
                  run: () => destroy({
                    title: `Stop listening on ${row.address}`,
                    button: "Stop",
                    call: (confirm) => ask(api.DELETE("/v1/portals", { params: { query: { address: row.address } }, body: { confirm } })),
                  }),
                }],
              })}
            />
          )}
        </Wait>
      </Card>
      {open?.what === "target" && <TargetDialog onClose={close} />}
      {open?.what === "group" && <GroupDialog onClose={close} />}
      {open?.what === "edit-group" && <EditGroupDialog group={open.group} onClose={close} />}
      {open?.what === "portal" && <PortalDialog onClose={close} />}
      {open?.what === "chap" && <ChapDialog target={open.target} onClose={close} />}
      {open?.what === "edit-target" && <EditTargetDialog target={open.target} onClose={close} />}
    </Page>
  );
}

const wrongIqn = (name: string) => (/^(iqn\.\d{4}-\d{2}\.[^\s]+|eui\.[0-9a-f]{16}|naa\.[0-9a-f]{16}([0-9a-f]{16})?)$/i.test(name) ? null : "An iSCSI name begins with iqn., eui. or naa., as in iqn.2026-01.com.example:host1.");
const wrongSecret = (secret: string) => {
  const length = new TextEncoder().encode(secret).length;
  return length >= 12 && length <= 255 ? null : "A secret has 12 to 255 bytes.";
};

export function TargetDialog({ onClose }: { onClose: () => void }) {
  const targets = useTargets();
  const [name, setName] = useState("iqn.2026-01.io.holdfast:");
  const [alias, setAlias] = useState("");
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const taken = targets.data?.items.some((target) => target.name.toLowerCase() === name.toLowerCase());
  const wrong = wrongIqn(name) ?? (name.endsWith(":") ? "Give it a name after the colon." : taken ? "There is already one of this name." : null);
  const badSecret = user ? wrongSecret(secret) : null;
  return (
    <FormDialog
      title="Create target"
      onClose={onClose}
      wrong={wrong !== null || badSecret !== null}
      preview={<p>{user ? `Initiators log in as ${user} with the secret, and see the LUNs that are mapped to their group.` : "Whoever reaches the node and knows an initiator’s name may log in as it. Give a user and a secret unless the network is yours alone."}</p>}
      submit={async () => {
        await ask(api.POST("/v1/targets", { body: { name, alias, auth: user ? { chap: [{ user, secret }] } : undefined } }));
        return `Target ${name} is there.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} wrong={name.endsWith(":") ? null : wrong} help="iqn.YEAR-MONTH.DOMAIN-REVERSED:NAME" required autoFocus />
      <Field label="Alias" value={alias} onChange={setAlias} help="A name for people." />
      <div className="fields">
        <Field label="CHAP user" value={user} onChange={setUser} help="Empty for none." />
        <Field label="CHAP secret" type="password" value={secret} onChange={setSecret} wrong={secret ? badSecret : null} autoComplete="new-password" />
      </div>
    </FormDialog>
  );
}

function EditTargetDialog({ target, onClose }: { target: Target; onClose: () => void }) {
  const [alias, setAlias] = useState(target.alias);
  const [chap, setChap] = useState(!target.chap_off);
  const users = target.chap_users.length;
  return (
    <FormDialog
      title={`Change target ${target.name}`}
      button="Save"
      onClose={onClose}
      wrong={false}
      preview={users > 0 && <p>{chap ? "Initiators are asked for CHAP; sessions that came in without end." : "Initiators are let in without CHAP. The users are kept for when it is turned on again."}</p>}
      submit={async (confirm) => {
        await ask(api.PATCH("/v1/targets/{target}", {
          params: { path: { target: target.name } },
          body: { alias, chap: users > 0 && chap === Boolean(target.chap_off) ? chap : undefined, confirm },
        }));
        return "The target is changed.";
      }}
    >
      <Field label="Alias" value={alias} onChange={setAlias} autoFocus />
      {users > 0 && <Check value={chap} onChange={setChap}>Ask for CHAP</Check>}
    </FormDialog>
  );
}

function ChapDialog({ target, onClose }: { target: Target; onClose: () => void }) {
  const groups = useInitiatorGroups();
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const [bound, setBound] = useState<string[]>([]);
  const there = target.chap_users.find((one) => one.user === user);
  const bad = secret === "" && there ? null : wrongSecret(secret);
  return (
    <FormDialog
      title={`CHAP user of ${target.name}`}
      button="Save"
      onClose={onClose}
      wrong={!user.trim() || bad !== null}
      preview={<p>{bound.length ? `The user logs in as an initiator of ${bound.join(", ")}, and nobody else may log in as one.` : "The user may log in as any initiator that no other user is bound to."} Sessions that would not be let in any more end.</p>}
      submit={async (confirm) => {
        await ask(api.PATCH("/v1/targets/{target}", {
          params: { path: { target: target.name } },
          body: { set_user: { user, secret: secret || undefined, groups: bound }, confirm },
        }));
        return `CHAP user ${user} may log in.`;
      }}
    >
      <div className="fields">
        <Field label="User" value={user} onChange={setUser} required autoFocus />
        <Field label="Secret" type="password" value={secret} onChange={setSecret} wrong={secret ? bad : null} help={there ? "Empty: it stays." : "12 to 255 bytes."} autoComplete="new-password" />
      </div>
      <fieldset className="plain">
        <legend>May log in as an initiator of</legend>
        {groups.data?.items.filter((group) => !group.any).map((group) => (
          <Check key={group.name} value={bound.includes(group.name)} onChange={(on) => setBound(on ? [...bound, group.name] : bound.filter((name) => name !== group.name))}>{group.name}</Check>
        ))}
      </fieldset>
    </FormDialog>
  );
}

const lines = (text: string) => text.split(/[\s,]+/).filter(Boolean);

export function GroupDialog({ onClose }: { onClose: () => void }) {
  const groups = useInitiatorGroups();
  const [name, setName] = useState("");
  const [names, setNames] = useState("");
  const wrong = wrongName(name, groups.data?.items.map((group) => group.name));
  const initiators = lines(names);
  const bad = initiators.map(wrongIqn).find(Boolean) ?? null;
  return (
    <FormDialog
      title="Create initiator group"
      onClose={onClose}
      wrong={wrong !== null || bad !== null}
      preview={<p>{many(initiators.length, "initiator")} will see the LUNs that are mapped to it.</p>}
      command={wrong === null && bad === null ? `holdfast initiator-group create ${quote(name)} ${initiators.map(quote).join(" ")}`.trim() : undefined}
      submit={async () => {
        await ask(api.POST("/v1/initiator-groups", { body: { name, initiators } }));
        return `Group ${name} is there.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
      <Field label="Initiators" value={names} onChange={setNames} wrong={bad} help="Names of initiators, with blanks between them; more can be added later." />
    </FormDialog>
  );
}

function EditGroupDialog({ group, onClose }: { group: InitiatorGroup; onClose: () => void }) {
  const [names, setNames] = useState((group.initiators ?? []).join(" "));
  const [any, setAny] = useState(group.any ?? false);
  const wanted = lines(names);
  const bad = wanted.map(wrongIqn).find(Boolean) ?? null;
  const added = wanted.filter((name) => !group.initiators?.includes(name));
  const removed = (group.initiators ?? []).filter((name) => !wanted.includes(name));
  return (
    <FormDialog
      title={`Change group ${group.name}`}
      button="Save"
      onClose={onClose}
      wrong={bad !== null}
      preview={(
        <ul>
          {any && <li>Every initiator belongs to it.</li>}
          {added.length > 0 && <li>{added.join(", ")} will see its LUNs.</li>}
          {removed.length > 0 && <li className="warn-text">{removed.join(", ")} will not see its LUNs any more, also where they are in use.</li>}
          {!any && !added.length && !removed.length && <li>Nothing changes.</li>}
        </ul>
      )}
      submit={async (confirm) => {
        await ask(api.PATCH("/v1/initiator-groups/{group}", { params: { path: { group: group.name } }, body: { add: added, remove: removed, any: any === Boolean(group.any) ? undefined : any, confirm } }));
        return `Group ${group.name} is changed.`;
      }}
    >
      <Field label="Initiators" value={names} onChange={setNames} wrong={bad} autoFocus />
      <Check value={any} onChange={setAny}>Every initiator belongs to it</Check>
    </FormDialog>
  );
}

function PortalDialog({ onClose }: { onClose: () => void }) {
  const [address, setAddress] = useState("0.0.0.0:3260");
  const [group, setGroup] = useState("1");
  const wrong = /^(\[[0-9a-f:.]+\]|[\d.]+):\d{1,5}$/i.test(address) ? null : "Write ADDRESS:PORT or [V6]:PORT, as in 192.0.2.10:3260.";
  const badGroup = /^\d+$/.test(group) && Number(group) >= 1 && Number(group) <= 65535 ? null : "A number from 1 to 65535.";
  return (
    <FormDialog
      title="Listen on an address"
      button="Listen"
      onClose={onClose}
      wrong={wrong !== null || badGroup !== null}
      preview={<p>Initiators reach the targets over {address}. Two portals in two networks are two paths for multipath.</p>}
      command={wrong === null ? `holdfast portal create ${quote(address)}${group === "1" ? "" : ` --group ${group}`}` : undefined}
      submit={async () => {
        await ask(api.POST("/v1/portals", { body: { address, group: Number(group) } }));
        return `The node listens on ${address}.`;
      }}
    >
      <div className="fields">
        <Field label="Address" value={address} onChange={setAddress} wrong={wrong} required autoFocus />
        <Field label="Portal group" value={group} onChange={setGroup} wrong={badGroup} />
      </div>
    </FormDialog>
  );
}
