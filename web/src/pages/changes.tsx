// Who has changed what, and what became of it.
import { useState } from "react";
import { useAudit, useMay } from "../api/queries";
import type { AuditChange, AuditEntry } from "../api/types";
import { Button } from "../parts/controls";
import { bytes, many, time } from "../parts/format";
import { Empty, Page, Wait } from "../parts/page";
import { Badge } from "../parts/states";
import { Table, type Column } from "../parts/table";

const COLUMNS: Column<AuditEntry>[] = [
  { title: "When (UTC)", value: (row) => row.time, cell: (row) => time(row.time) },
  { title: "Who", value: (row) => row.who, cell: (row) => `${row.who}${row.role ? ` (${row.role})` : ""}` },
  { title: "From", value: (row) => row.from, wide: true },
  { title: "What", value: (row) => row.operation.replaceAll(/[_-]/g, " ") },
  { title: "About", value: (row) => row.object ?? decoded(row.request), wrap: true },
  { title: "Changed", value: changed, cell: (row) => <span title={changed(row)}>{changed(row, 4)}</span>, wrap: true },
  { title: "Result", value: (row) => row.result, cell: (row) => <Badge tone={row.result === "done" ? "good" : row.result === "confirmation-required" ? "calm" : "warn"}>{row.result.replaceAll("-", " ")}</Badge> },
];

// What was changed, or why it was not; of many fields the first ones.
function changed(row: AuditEntry, most = Number.MAX_SAFE_INTEGER): string {
  if (row.reason) return row.reason;
  const all = row.changes ?? [];
  const told = all.slice(0, most).map(field);
  if (all.length > most) told.push(`${all.length - most} more`);
  if (row.left_out) told.push(`left out: ${row.left_out}`);
  return told.join(", ");
}

function field(change: AuditChange): string {
  const text = (value: unknown) => (typeof value === "number" && change.field.endsWith("bytes") ? bytes(value) : typeof value === "string" ? value : JSON.stringify(value));
  if (change.secret) return `${change.field}: changed`;
  if (change.old === undefined) return change.new === undefined ? change.field : `${change.field}: ${text(change.new)}`;
  return `${change.field}: ${text(change.old)} → ${change.new === undefined ? "nothing" : text(change.new)}`;
}

function decoded(request: string): string {
  try {
    return decodeURIComponent(request);
  } catch {
    return request;
  }
}

export default function Changes() {
  const may = useMay();
  const allowed = may("GET /v1/audit");
  const [limit, setLimit] = useState(500);
  const audit = useAudit(limit, allowed);
  if (!allowed) return <Page title="Changes"><Empty title="The record of changes is for administrators." /></Page>;
  return (
    <Page title="Changes" lead="Each change that somebody has asked for, on this machine or over the network: who, from where, what is otherwise since, and what became of it.">
      <Wait of={audit}>
        {({ items }) => (
          <>
            <Table label="Changes" rows={items.map((row, at) => ({ ...row, at }))} columns={COLUMNS} id={(row) => String(row.at)} first={{ column: 0, down: true }} empty={<Empty title="Nobody has changed anything yet." />} />
            {items.length >= limit && <Button onPress={() => setLimit(limit * 10)}>Show more than the last {many(limit, "change")}</Button>}
          </>
        )}
      </Wait>
    </Page>
  );
}
