// Disks of the machine and of pools: where they sit and how they are.
import { useState } from "react";
import { keyOf, useRates } from "../api/counters";
import { api, ask } from "../api/client";
import { useDisks, usePoolDetails } from "../api/queries";
import type { Disk } from "../api/types";
import { Button } from "../parts/controls";
import { perform } from "../parts/dialog";
import { DiskPicture, ofDisk, type Shown } from "../parts/disk-picture";
import { bytes, many, milliseconds, number, perSecond } from "../parts/format";
import { Card, Empty, Page, Wait } from "../parts/page";
import { DiskBadge } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { to } from "../router";
import { DiskDialog } from "./disk-dialogs";

/** More disks than this are a table only. */
const PICTURE = 400;

export default function Disks() {
  const disks = useDisks();
  const { details } = usePoolDetails();
  const rates = useRates();
  const [picked, setPicked] = useState<string | null>(null);
  const members = new Map(details.flatMap((pool) => pool.data?.members ?? []).map((member) => [member.guid, member]));
  const shown = (disk: Disk) => ofDisk(disk, disk.guid ? members.get(disk.guid) : undefined);
  const rate = (row: Shown) => rates.get(keyOf("disk", row.disk?.id ?? ""));
  const columns: Column<Shown>[] = [
    { title: "Disk", value: (row) => row.id, cell: (row) => <button type="button" className="as-link" title={row.id} onClick={() => setPicked(row.id)}>{row.name}</button> },
    { title: "State", value: (row) => row.state, cell: (row) => <DiskBadge state={row.state} /> },
    { title: "Pool", value: (row) => row.pool ?? "", cell: (row) => (row.pool ? <a href={to("pools", row.pool)}>{row.pool}</a> : "–") },
    { title: "Place", value: (row) => [row.enclosure, row.slot].filter(Boolean).join(", ") || "–", wide: true },
    { title: "Media", value: (row) => row.disk?.media ?? "", wide: true },
    { title: "Size", value: (row) => row.size, cell: (row) => bytes(row.size), end: true },
    { title: "IOPS", value: (row) => { const r = rate(row); return r ? r.read.iops + r.write.iops : 0; }, cell: (row) => { const r = rate(row); return r ? number(r.read.iops + r.write.iops) : "–"; }, end: true, wide: true },
    { title: "Throughput", value: (row) => { const r = rate(row); return r ? r.read.bytes + r.write.bytes : 0; }, cell: (row) => { const r = rate(row); return r ? perSecond(r.read.bytes + r.write.bytes) : "–"; }, end: true, wide: true },
    { title: "Write latency", value: (row) => rate(row)?.write.latency ?? 0, cell: (row) => milliseconds(rate(row)?.write.latency ?? null), end: true, wide: true },
    { title: "Note", value: (row) => row.reason ?? "", wide: true, wrap: true },
  ];
  return (
    <Page
      title="Disks"
      lead="By enclosure and slot. A disk is known by what is written on it, never by its path."
      actions={(
        <Button needs="POST /v1/disks/rescan"
          icon="progress"
          onPress={() => void perform(async () => {
            const found = await ask(api.POST("/v1/disks/rescan"));
            return { message: `Found ${many(found.found.length, "new disk")}; ${many(found.returned.length, "disk")} came back, ${many(found.missing.length, "disk")} missing.` };
          })}
        >
          Look for disks
        </Button>
      )}
    >
      <Wait of={disks}>
        {({ items }) => {
          const rows = items.map(shown);
          const one = rows.find((row) => row.id === picked);
          return (
            <>
              {rows.length > 0 && rows.length <= PICTURE && (
                <Card title="Where they sit"><DiskPicture disks={rows} onPick={(disk) => setPicked(disk.id)} /></Card>
              )}
              <Table label="Disks" rows={rows} columns={columns} id={(row) => `${row.id} ${row.state}`} empty={<Empty title="This machine has no disks that Holdfast can see." />} />
              {one && <DiskDialog shown={one} onClose={() => setPicked(null)} />}
            </>
          );
        }}
      </Wait>
    </Page>
  );
}
