// Who is told of findings: programs that take JSON over HTTP.
import { useState } from "react";
import { api, ask } from "../api/client";
import { useMay, useNotifiers } from "../api/queries";
import type { Notifier, Severity } from "../api/types";
import { Button, Check, Choice, Field, type Option } from "../parts/controls";
import { FormDialog, destroy, perform } from "../parts/dialog";
import { Card, Empty, Wait } from "../parts/page";
import { Badge } from "../parts/states";
import { Table } from "../parts/table";

const LEAST: Option<Severity>[] = [
  { id: "critical", title: "Critical", detail: "data cannot be read or is damaged" },
  { id: "error", title: "Errors and worse", detail: "data is less safe than promised, or something is not served" },
  { id: "warning", title: "Warnings and worse", detail: "something needs attention soon" },
  { id: "info", title: "Everything", detail: "notes, too" },
];

export function Notifiers() {
  const may = useMay();
  const wanted = may("GET /v1/notifiers");
  const notifiers = useNotifiers(wanted);
  const [open, setOpen] = useState<Notifier | "new" | null>(null);
  if (!wanted) return null;
  const path = (row: Notifier) => ({ params: { path: { notifier: row.name ?? "" } } });
  return (
    <Card title="Notifications" aside={<Button needs="PUT /v1/notifiers/{notifier}" icon="add" onPress={() => setOpen("new")}>Add webhook</Button>}>
      <Wait of={notifiers}>
        {({ items }) => (
          <Table
            label="Who is told of findings"
            rows={items}
            id={(row) => row.name ?? ""}
            empty={<Empty title="Nobody is told when something goes wrong." />}
            columns={[
              { title: "Name", value: (row) => row.name ?? "" },
              { title: "Where", value: (row) => row.url, wrap: true, wide: true },
              { title: "From", value: (row) => row.severity ?? "warning" },
              { title: "State", value: (row) => row.problem ?? "", cell: (row) => <Badge tone={row.problem ? "warn" : "good"}>{row.problem ? "does not take them" : "fine"}</Badge> },
              { title: "Taken", value: (row) => row.delivered },
              { title: "Problem", value: (row) => row.problem ?? "", wrap: true, wide: true },
            ]}
            actions={(row) => ({
              label: `Actions for notifier ${row.name}`,
              actions: [
                { id: "test", title: "Send a test", needs: "POST /v1/notifiers/{notifier}/test", run: () => void perform(() => ask(api.POST("/v1/notifiers/{notifier}/test", path(row)))) },
                { id: "change", title: "Change …", needs: "PUT /v1/notifiers/{notifier}", run: () => setOpen(row) },
                {
                  id: "remove",
                  title: "Remove …",
                  needs: "DELETE /v1/notifiers/{notifier}",
                  danger: true,
                  run: () => destroy({ title: `Remove notifier ${row.name}`, button: "Remove", call: (confirm) => ask(api.DELETE("/v1/notifiers/{notifier}", { ...path(row), body: { confirm } })) }),
                },
              ],
            })}
          />
        )}
      </Wait>
      {open && <NotifierDialog now={open === "new" ? null : open} onClose={() => setOpen(null)} />}
    </Card>
  );
}

function NotifierDialog({ now, onClose }: { now: Notifier | null; onClose: () => void }) {
  const [name, setName] = useState(now?.name ?? "");
  const [url, setUrl] = useState(now?.url ?? "https://");
  const [severity, setSeverity] = useState<Severity>(now?.severity ?? "warning");
  const [secret, setSecret] = useState(now?.secret_file ?? "");
  const [local, setLocal] = useState(now?.allow_local ?? false);
  const badName = /^[a-z0-9-]{1,40}$/.test(name) ? null : "Lower-case letters, digits and hyphens.";
  const badUrl = /^https?:\/\/[^\s@/]+/.test(url) ? null : "Write https://HOST/PATH.";
  return (
    <FormDialog
      title={now ? `Change notifier ${now.name}` : "Add webhook"}
      button={now ? "Change" : "Add"}
      onClose={onClose}
      wrong={badName !== null || badUrl !== null}
      submit={async () => {
        await ask(api.PUT("/v1/notifiers/{notifier}", {
          params: { path: { notifier: name } },
          body: { name, url, severity, header: now?.header, ca_file: now?.ca_file, secret_file: secret || undefined, allow_local: local },
        }));
        return `${name} is told of findings from now on.`;
      }}
    >
      {!now && <Field label="Name" value={name} onChange={setName} wrong={name ? badName : null} required autoFocus />}
      <Field label="URL" value={url} onChange={setUrl} wrong={url.length > 8 ? badUrl : null} required help="It gets JSON for each finding that comes, gets worse or goes." />
      <Choice label="Tell it of" value={severity} onChange={setSeverity} options={LEAST} />
      <Field label="File with a secret" value={secret} onChange={setSecret} help="On the node’s machine: one line, as Bearer …, that only its owner may read. It is sent as Authorization." />
      <Check value={local} onChange={setLocal} help="Services there often ask nobody who it is.">It may be on the node’s machine or its link</Check>
    </FormDialog>
  );
}
