// Users and groups of shares.
import { useRef, useState } from "react";
import { api, ask } from "../api/client";
import { useUserGroups, useUsers } from "../api/queries";
import type { User, UserGroup } from "../api/types";
import { Button, Check, Field, wrongName } from "../parts/controls";
import { FormDialog, destroy, perform } from "../parts/dialog";
import { duration, many, time } from "../parts/format";
import { Card, Empty, Page, Wait } from "../parts/page";
import { Badge } from "../parts/states";
import { Table } from "../parts/table";

type Dialogs = { what: "user" | "group" } | { what: "password" | "edit"; user: User } | { what: "members"; group: UserGroup } | null;

export default function Users() {
  const users = useUsers();
  const groups = useUserGroups();
  const [open, setOpen] = useState<Dialogs>(null);
  const close = () => setOpen(null);
  return (
    <Page title="Users and groups" lead="Who uses shares. Rights are given to them on the page of each share.">
      <Card title="Users" aside={<Button needs="POST /v1/users" icon="add" onPress={() => setOpen({ what: "user" })}>Create user</Button>}>
        <Wait of={users}>
          {({ items }) => (
            <Table
              label="Users"
              rows={items}
              id={(row) => row.sid}
              empty={<Empty title="There is no user: nobody can use a share." />}
              columns={[
                { title: "User", value: (row) => row.name, wrap: true },
                { title: "Full name", value: (row) => row.full_name, wide: true },
                {
                  title: "State",
                  value: (row) => (row.disabled ? "disabled" : row.locked_seconds ? "locked out" : "active"),
                  cell: (row) => (row.disabled
                    ? <Badge tone="calm">disabled</Badge>
                    : row.locked_seconds
                      ? <Badge tone="warn">{`locked out for ${duration(row.locked_seconds)}`}</Badge>
                      : <Badge tone="good">active</Badge>),
                },
                { title: "Groups", value: (row) => row.groups.join(", ") || "–", wrap: true },
                { title: "Sessions", value: (row) => row.sessions, end: true },
                { title: "Password set (UTC)", value: (row) => row.password_set, cell: (row) => time(row.password_set), wide: true },
                { title: "Comment", value: (row) => row.comment, wide: true, wrap: true },
              ]}
              actions={(row) => {
                const where = { params: { path: { user: row.name } } };
                return {
                  label: `Actions for user ${row.name}`,
                  actions: [
                    { id: "edit", title: "Change …", needs: "PATCH /v1/users/{user}", run: () => setOpen({ what: "edit", user: row }) },
                    { id: "password", title: "Set password …", needs: "POST /v1/users/{user}/password", run: () => setOpen({ what: "password", user: row }) },
                    ...(row.locked_seconds ? [{ id: "unlock", title: "Let in again", needs: "POST /v1/users/{user}/unlock" as const, run: () => void perform(() => ask(api.POST("/v1/users/{user}/unlock", where)), `${row.name} may log in again.`) }] : []),
                    {
                      id: "delete",
                      title: "Delete …", needs: "DELETE /v1/users/{user}",
                      danger: true,
                      run: () => destroy({ title: `Delete user ${row.name}`, button: "Delete", call: (confirm) => ask(api.DELETE("/v1/users/{user}", { ...where, body: { confirm } })) }),
                    },
                  ],
                };
              }}
            />
          )}
        </Wait>
      </Card>
      <Card title="Groups" aside={<Button needs="POST /v1/user-groups" icon="add" onPress={() => setOpen({ what: "group" })}>Create group</Button>}>
        <Wait of={groups}>
          {({ items }) => (
            <Table
              label="Groups of users"
              rows={items}
              id={(row) => row.sid}
              empty={<Empty title="There is no group." />}
              columns={[
                { title: "Group", value: (row) => row.name, wrap: true },
                { title: "Members", value: (row) => row.members.join(", ") || "none", wrap: true },
                { title: "Comment", value: (row) => row.comment, wide: true, wrap: true },
                { title: "Kind", value: (row) => (row.built_in ? "built in" : "own"), wide: true },
              ]}
              actions={(row) => ({
                label: `Actions for group ${row.name}`,
                actions: [
                  { id: "members", title: "Change …", needs: "PATCH /v1/user-groups/{group}", run: () => setOpen({ what: "members", group: row }) },
                  ...(row.built_in ? [] : [{
                    id: "delete",
                    title: "Delete …", needs: "DELETE /v1/user-groups/{group}" as const,
                    danger: true,
                    run: () => destroy({ title: `Delete group ${row.name}`, button: "Delete", call: (confirm?: string) => ask(api.DELETE("/v1/user-groups/{group}", { params: { path: { group: row.name } }, body: { confirm } })) }),
                  }]),
                ],
              })}
            />
          )}
        </Wait>
      </Card>
      {open?.what === "user" && <UserDialog onClose={close} />}
      {open?.what === "edit" && <EditUserDialog user={open.user} onClose={close} />}
      {open?.what === "password" && <PasswordDialog user={open.user} onClose={close} />}
      {open?.what === "group" && <GroupDialog onClose={close} />}
      {open?.what === "members" && <MembersDialog group={open.group} onClose={close} />}
    </Page>
  );
}

const differ = (password: string, again: string) => (password === again ? null : "The two are not the same.");

export function UserDialog({ onClose, then }: { onClose: () => void; then?: (name: string) => void }) {
  const users = useUsers();
  const [name, setName] = useState("");
  const [fullName, setFullName] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const wrong = wrongName(name, users.data?.items.map((user) => user.name)) ?? (name.length > 20 ? "At most 20 characters." : null);
  return (
    <FormDialog
      title="Create user"
      onClose={onClose}
      wrong={wrong !== null || password === "" || again !== password}
      preview={wrong === null && <p>{name} can log in, and has the rights that shares give to it, to its groups and to Everyone.</p>}
      submit={async () => {
        await ask(api.POST("/v1/users", { body: { name, full_name: fullName, password } }));
        then?.(name);
        return `User ${name} is there.`;
      }}
    >
      <div className="fields">
        <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
        <Field label="Full name" value={fullName} onChange={setFullName} />
        <Field label="Password" type="password" value={password} onChange={setPassword} required autoComplete="new-password" />
        <Field label="Password again" type="password" value={again} onChange={setAgain} wrong={again ? differ(password, again) : null} required autoComplete="new-password" />
      </div>
    </FormDialog>
  );
}

/** Names that users and groups have: they share one set. */
function useTaken(): string[] {
  const users = useUsers();
  const groups = useUserGroups();
  return [...(users.data?.items ?? []), ...(groups.data?.items ?? [])].map((one) => one.name);
}

/** What was entered, where it is not what there was. */
const otherwise = <T,>(now: T, before: T): T | undefined => (now === before ? undefined : now);

function EditUserDialog({ user, onClose }: { user: User; onClose: () => void }) {
  // What has been saved from here: saving takes two requests, and is tried again when the second one fails.
  const saved = useRef<Pick<User, "full_name" | "comment" | "disabled">>(user);
  const [name, setName] = useState(user.name);
  const [fullName, setFullName] = useState(user.full_name);
  const [comment, setComment] = useState(user.comment);
  const [disabled, setDisabled] = useState(user.disabled);
  const taken = useTaken();
  const wrong = name === user.name ? null : wrongName(name, taken.filter((other) => other !== user.name)) ?? (name.length > 20 ? "At most 20 characters." : null);
  return (
    <FormDialog
      title={`Change user ${user.name}`}
      button="Save"
      onClose={onClose}
      wrong={wrong !== null}
      preview={(name !== user.name && <p>{name} is who {user.name} was: with the same rights, groups and sessions.</p>) || disabled !== user.disabled && <p>{disabled ? `${user.name} cannot log in any more.` : `${user.name} can log in again.`}</p>}
      submit={async (confirm) => {
        // Only what is otherwise here: somebody else may have changed the rest meanwhile. Another name last: all else goes by the one that it has.
        const { full_name, comment: noted, disabled: kept } = saved.current;
        const body = { full_name: otherwise(fullName, full_name), comment: otherwise(comment, noted), disabled: otherwise(disabled, kept), confirm };
        await ask(api.PATCH("/v1/users/{user}", { params: { path: { user: user.name } }, body }));
        saved.current = { full_name: fullName, comment, disabled };
        if (name !== user.name) await ask(api.PUT("/v1/users/{user}/name", { params: { path: { user: user.name } }, body: { name } }));
        return `User ${name} is changed.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} wrong={wrong} required />
      <Field label="Full name" value={fullName} onChange={setFullName} autoFocus />
      <Field label="Comment" value={comment} onChange={setComment} />
      <Check value={disabled} onChange={setDisabled}>Disabled: it may not log in</Check>
    </FormDialog>
  );
}

function PasswordDialog({ user, onClose }: { user: User; onClose: () => void }) {
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [end, setEnd] = useState(false);
  return (
    <FormDialog
      title={`Set the password of ${user.name}`}
      button="Set"
      onClose={onClose}
      wrong={password === "" || password !== again}
      preview={<p>The old one is not valid any more. {end ? `All sessions of ${user.name} end now, with all nodes.` : "Sessions that are there go on."}</p>}
      submit={async () => {
        await ask(api.POST("/v1/users/{user}/password", { params: { path: { user: user.name } }, body: { password, end_sessions: end } }));
        return `${user.name} has a new password.`;
      }}
    >
      <Field label="New password" type="password" value={password} onChange={setPassword} required autoFocus autoComplete="new-password" />
      <Field label="New password again" type="password" value={again} onChange={setAgain} wrong={again ? differ(password, again) : null} required autoComplete="new-password" />
      <Check value={end} onChange={setEnd}>End the user’s sessions</Check>
    </FormDialog>
  );
}

function Members({ picked, onChange }: { picked: readonly string[]; onChange: (picked: string[]) => void }) {
  const users = useUsers();
  return (
    <fieldset className="plain">
      <legend>Members</legend>
      {users.data?.items.map((user) => (
        <Check key={user.sid} value={picked.includes(user.name)} onChange={(on) => onChange(on ? [...picked, user.name] : picked.filter((name) => name !== user.name))}>{user.name}</Check>
      ))}
    </fieldset>
  );
}

function GroupDialog({ onClose }: { onClose: () => void }) {
  const groups = useUserGroups();
  const [name, setName] = useState("");
  const [comment, setComment] = useState("");
  const [members, setMembers] = useState<string[]>([]);
  const wrong = wrongName(name, groups.data?.items.map((group) => group.name));
  return (
    <FormDialog
      title="Create group"
      onClose={onClose}
      wrong={wrong !== null}
      preview={wrong === null && <p>{many(members.length, "member")} will have the rights that shares give to {name}.</p>}
      submit={async () => {
        await ask(api.POST("/v1/user-groups", { body: { name, comment, members } }));
        return `Group ${name} is there.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
      <Field label="Comment" value={comment} onChange={setComment} />
      <Members picked={members} onChange={setMembers} />
    </FormDialog>
  );
}

function MembersDialog({ group, onClose }: { group: UserGroup; onClose: () => void }) {
  // What has been saved from here: saving takes two requests, and is tried again when the second one fails.
  const saved = useRef({ members: group.members, comment: group.comment });
  const [name, setName] = useState(group.name);
  const [members, setMembers] = useState<string[]>(group.members);
  const [comment, setComment] = useState(group.comment);
  const changes = () => ({
    add: members.filter((name) => !saved.current.members.includes(name)),
    remove: saved.current.members.filter((name) => !members.includes(name)),
    comment: otherwise(comment, saved.current.comment),
  });
  const { add, remove } = changes();
  const taken = useTaken();
  const wrong = name === group.name ? null : wrongName(name, taken.filter((other) => other !== group.name));
  return (
    <FormDialog
      title={`Change group ${group.name}`}
      button="Save"
      onClose={onClose}
      wrong={wrong !== null}
      preview={<p>{add.length || remove.length ? [add.length && `${add.join(", ")} joins.`, remove.length && `${remove.join(", ")} leaves.`].filter(Boolean).join(" ") : "Nobody joins or leaves."} It counts from their next sessions on.</p>}
      submit={async (confirm) => {
        const path = { group: group.name };
        await ask(api.PATCH("/v1/user-groups/{group}", { params: { path }, body: { ...changes(), confirm } }));
        saved.current = { members, comment };
        if (name !== group.name) await ask(api.PUT("/v1/user-groups/{group}/name", { params: { path }, body: { name } }));
        return `Group ${name} is changed.`;
      }}
    >
      {!group.built_in && <Field label="Name" value={name} onChange={setName} wrong={wrong} required />}
      {!group.built_in && <Field label="Comment" value={comment} onChange={setComment} />}
      <Members picked={members} onChange={setMembers} />
    </FormDialog>
  );
}
