// Who is connected, over what, and what they have open.
import { api, ask } from "../api/client";
import { keyOn, numbered, onNode } from "../api/nodes";
import { useOpens, useSessions } from "../api/queries";
import type { Open, Session } from "../api/types";
import { destroy } from "../parts/dialog";
import { bytes, number, time } from "../parts/format";
import { Card, Empty, Page, Wait } from "../parts/page";
import { Badge } from "../parts/states";
import { Table, type Column } from "../parts/table";

const who = (session: Session) => session.smb?.user ?? session.initiator;

const SESSIONS: Column<Session>[] = [
  { title: "Who", value: who, wrap: true },
  { title: "Protocol", value: (row) => (row.smb ? `SMB ${row.smb.dialect}` : "iSCSI") },
  { title: "From", value: (row) => row.address },
  { title: "To", value: (row) => row.smb?.shares.join(", ") ?? (row.target || "discovery"), wide: true, wrap: true },
  {
    title: "Protected",
    value: (row) => protection(row)[1],
    cell: (row) => <Badge tone={protection(row)[0]}>{protection(row)[1]}</Badge>,
    wide: true,
  },
  { title: "Connections", value: (row) => row.connections, end: true, wide: true },
  { title: "Opens", value: (row) => row.smb?.opens ?? 0, cell: (row) => row.smb?.opens ?? "–", end: true, wide: true },
  { title: "Requests", value: (row) => row.commands, cell: (row) => number(row.commands), end: true, wide: true },
  { title: "Read", value: (row) => row.read_bytes, cell: (row) => bytes(row.read_bytes), end: true },
  { title: "Written", value: (row) => row.written_bytes, cell: (row) => bytes(row.written_bytes), end: true },
  { title: "Since (UTC)", value: (row) => row.smb?.since ?? 0, cell: (row) => time(row.smb?.since ?? 0), wide: true },
];

function protection(session: Session): ["good" | "warn" | "calm", string] {
  if (session.smb) return session.smb.encrypted ? ["good", `encrypted, ${session.smb.cipher ?? ""}`.replace(/, $/, "")] : ["warn", `signed: ${session.smb.signing}`];
  if (session.chap_user) return ["good", `CHAP: ${session.chap_user}`];
  return ["calm", "no CHAP"];
}

const OPENS: Column<Open>[] = [
  { title: "Path", value: (row) => row.path || "\\", wrap: true },
  { title: "Share", value: (row) => row.share },
  { title: "User", value: (row) => (row.session == null ? `${row.user}, waits for its client` : row.user) },
  { title: "From", value: (row) => row.address || "–", wide: true },
  { title: "Rights", value: (row) => row.rights ?? row.access, wide: true, wrap: true },
  { title: "Client may cache", value: (row) => row.caching, wide: true },
  { title: "Outlives its connection", value: (row) => row.lasting, wide: true },
];

export default function Sessions() {
  const sessions = useSessions();
  const opens = useOpens();
  return (
    <Page title="Sessions and opens" lead="A session is an initiator at a target, or a user at the SMB server. An open is a file that a client of a share has open.">
      <Card title="Sessions">
        <Wait of={sessions}>
          {({ items }) => (
            <Table
              label="Sessions"
              rows={items}
              columns={SESSIONS}
              id={(row) => keyOn(row, row.protocol ?? "iscsi", numbered(row))}
              empty={<Empty title="Nobody is connected." />}
              actions={(row) => ({
                label: onNode(row, `Actions for the session of ${who(row)}`),
                actions: [{
                  id: "end",
                  title: "End …", needs: "DELETE /v1/sessions/{session}",
                  danger: true,
                  run: () => destroy({ title: onNode(row, `End the session of ${who(row)}`), button: "End", call: (confirm) => ask(api.DELETE("/v1/sessions/{session}", { params: { path: { session: numbered(row) } }, body: { confirm } })) }),
                }],
              })}
            />
          )}
        </Wait>
      </Card>
      <Card title="Opens">
        <Wait of={opens}>
          {({ items }) => (
            <Table
              label="Opens"
              rows={items}
              columns={OPENS}
              id={numbered}
              empty={<Empty title="No client has a file open." />}
              actions={(row) => ({
                label: onNode(row, `Actions for ${row.path || "an open"}`),
                actions: [{
                  id: "close",
                  title: "Close …", needs: "DELETE /v1/opens/{open}",
                  danger: true,
                  run: () => destroy({ title: onNode(row, `Close ${row.path || "the folder"} of share ${row.share}`), button: "Close it", call: (confirm) => ask(api.DELETE("/v1/opens/{open}", { params: { path: { open: numbered(row) } }, body: { confirm } })) }),
                }],
              })}
            />
          )}
        </Wait>
      </Card>
    </Page>
  );
}
