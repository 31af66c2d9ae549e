// The API and these pages over the network: addresses, certificate, who may do what, tokens for programs.
import { useState } from "react";
import { api, ask } from "../api/client";
import { useHttp, useMay, useTokens, useUserGroups } from "../api/queries";
import type { HttpStatus, Role } from "../api/types";
import { Button, Check, Choices, Field } from "../parts/controls";
import { Command, FormDialog, ReadDialog, destroy } from "../parts/dialog";
import { time } from "../parts/format";
import { Card, Empty, Facts, Wait } from "../parts/page";
import { Badge } from "../parts/states";
import { Table } from "../parts/table";

export function Remote() {
  const http = useHttp();
  const may = useMay();
  const [open, setOpen] = useState<"http" | "token" | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const mayTokens = may("GET /v1/tokens");
  const tokens = useTokens(mayTokens);
  return (
    <>
      <Card title="API and pages over the network" aside={<Button needs="PATCH /v1/http" onPress={() => setOpen("http")}>Change …</Button>}>
        <Wait of={http}>{(now) => <Served now={now} />}</Wait>
      </Card>
      {mayTokens && (
        <Card title="Tokens" aside={<Button needs="POST /v1/tokens" icon="add" onPress={() => setOpen("token")}>Create token</Button>}>
          <Wait of={tokens}>
            {({ items }) => (
              <Table
                label="Tokens"
                rows={items}
                id={(row) => row.id}
                empty={<Empty title="No program has a token." />}
                columns={[
                  { title: "Token", value: (row) => row.name || row.id },
                  { title: "Role", value: (row) => row.role },
                  { title: "State", value: (row) => String(row.valid), cell: (row) => <Badge tone={row.valid ? "good" : "calm"}>{row.valid ? "counts" : "does not count"}</Badge> },
                  { title: "Made by", value: (row) => row.owner ?? "this machine", wide: true },
                  { title: "Ends (UTC)", value: (row) => row.expires ?? Infinity, cell: (row) => (row.expires ? time(row.expires) : "never") },
                  { title: "Last used (UTC)", value: (row) => row.last_used ?? 0, cell: (row) => time(row.last_used ?? 0), wide: true },
                ]}
                actions={(row) => ({
                  label: `Actions for token ${row.name || row.id}`,
                  actions: [{
                    id: "revoke",
                    title: "Revoke …",
                    needs: "DELETE /v1/tokens/{token}",
                    danger: true,
                    run: () => destroy({ title: `Revoke token ${row.name || row.id}`, button: "Revoke", call: (confirm) => ask(api.DELETE("/v1/tokens/{token}", { params: { path: { token: row.id } }, body: { confirm } })) }),
                  }],
                })}
              />
            )}
          </Wait>
        </Card>
      )}
      {open === "http" && http.data && <HttpDialog now={http.data} onClose={() => setOpen(null)} />}
      {open === "token" && <TokenDialog onClose={() => setOpen(null)} then={setSecret} />}
      {secret !== null && (
        <ReadDialog title="The token" onClose={() => setSecret(null)}>
          <p>It is shown this once: the node keeps only a hash of it.</p>
          <Command label="Token" text={secret} />
        </ReadDialog>
      )}
    </>
  );
}

function Served({ now }: { now: HttpStatus }) {
  const certificate = now.certificate_in_use;
  return (
    <div className="stack">
      <Facts
        facts={[
          ["Certificate", certificate ? `${certificate.own ? "the node’s own" : "given"}, until ${time(certificate.not_after)} UTC` : "made when it is first needed"],
          ["For", certificate?.names.join(", ")],
          ["Authority to trust", certificate?.ca_file],
          ["Its fingerprint", certificate?.ca_fingerprint],
          ["Logged in, connected", `${now.sessions}, ${now.connections}`],
          ["Administrators", "members of Administrators"],
          ["Operators", now.operators?.length ? `members of ${now.operators.join(", ")}` : "nobody"],
          ["Viewers", now.viewers?.length ? `members of ${now.viewers.join(", ")}` : "nobody"],
        ]}
      />
      <Table
        label="Addresses of the API"
        rows={now.listeners}
        id={(row) => row.address}
        empty={<Empty title="It is not served over the network." />}
        columns={[
          { title: "Address", value: (row) => row.address },
          { title: "State", value: (row) => (row.listening ? "listening" : "not listening"), cell: (row) => <Badge tone={row.listening ? "good" : "bad"}>{row.listening ? "listening" : "not listening"}</Badge> },
          { title: "As", value: (row) => row.listening ?? "–" },
          { title: "Note", value: (row) => row.problem ?? "", wrap: true, wide: true },
        ]}
      />
    </div>
  );
}

function Groups({ label, picked, onChange }: { label: string; picked: readonly string[]; onChange: (picked: string[]) => void }) {
  const groups = useUserGroups();
  return (
    <fieldset className="plain">
      <legend>{label}</legend>
      {groups.data?.items.filter((group) => group.name !== "Administrators").map((group) => (
        <Check key={group.sid} value={picked.includes(group.name)} onChange={(on) => onChange(on ? [...picked, group.name] : picked.filter((name) => name !== group.name))}>{group.name}</Check>
      ))}
    </fieldset>
  );
}

function HttpDialog({ now, onClose }: { now: HttpStatus; onClose: () => void }) {
  const [listen, setListen] = useState((now.listen ?? []).join(" "));
  const [operators, setOperators] = useState<string[]>(now.operators ?? []);
  const [viewers, setViewers] = useState<string[]>(now.viewers ?? []);
  const addresses = listen.split(/[\s,]+/).filter(Boolean);
  const bad = addresses.every((one) => /^(\[[0-9a-f:.]+\]|[\d.]+):\d{1,5}$/i.test(one)) ? null : "Write ADDRESS:PORT or [V6]:PORT, with blanks between.";
  const changed = (value: string[], then: readonly string[] | undefined) => (value.join() === (then ?? []).join() ? undefined : value);
  return (
    <FormDialog
      title="API and pages over the network"
      button="Save"
      onClose={onClose}
      wrong={bad !== null}
      preview={(
        <ul>
          <li>{addresses.length ? `They are served on ${addresses.join(", ")}, over TLS 1.3.` : "They are not served over the network: these pages go with it."}</li>
          <li>Who is taken out of a group has no access from that moment on.</li>
        </ul>
      )}
      submit={async (confirm) => {
        await ask(api.PATCH("/v1/http", { body: { confirm, listen: changed(addresses, now.listen), operators: changed(operators, now.operators), viewers: changed(viewers, now.viewers) } }));
        return "The API is changed.";
      }}
    >
      <Field label="Addresses" value={listen} onChange={setListen} wrong={bad} autoFocus />
      <Groups label="Operators are members of" picked={operators} onChange={setOperators} />
      <Groups label="Viewers are members of" picked={viewers} onChange={setViewers} />
    </FormDialog>
  );
}

const DAY = 86_400;

function TokenDialog({ onClose, then }: { onClose: () => void; then: (secret: string) => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [days, setDays] = useState("90");
  const bad = days === "" || (/^\d{1,4}$/.test(days) && Number(days) > 0) ? null : "Write a number of days; empty for never.";
  return (
    <FormDialog
      title="Create token"
      onClose={onClose}
      wrong={!name.trim() || bad !== null}
      preview={<p>Whoever has it may do what a {role} may, {days ? `for ${days} days` : "until it is revoked"}. Programs send it as <code>Authorization: Bearer</code>.</p>}
      submit={async () => {
        const made = await ask(api.POST("/v1/tokens", { body: { name: name.trim(), role, expires_seconds: days ? Number(days) * DAY : undefined } }));
        then(made.secret);
        return `Token ${name} is made.`;
      }}
    >
      <div className="fields">
        <Field label="What it is for" value={name} onChange={setName} required autoFocus />
        <Field label="Days that it counts" value={days} onChange={setDays} wrong={bad} />
      </div>
      <Choices
        label="Role"
        value={role}
        onChange={setRole}
        options={[
          { id: "metrics", title: "Metrics", detail: "Reads /metrics, and nothing else." },
          { id: "viewer", title: "Viewer", detail: "Sees how everything is: neither secrets nor what is in files." },
          { id: "operator", title: "Operator", detail: "Also keeps the storage running: disks, volumes, snapshots, LUNs’ size and state, sessions, QoS." },
          { id: "administrator", title: "Administrator", detail: "Everything." },
        ]}
      />
    </FormDialog>
  );
}
