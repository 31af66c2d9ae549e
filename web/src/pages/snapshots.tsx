// Snapshots and their schedules, of all volumes.
import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask } from "../api/client";
import { useVolumes } from "../api/queries";
import { Button, Choice } from "../parts/controls";
import { many } from "../parts/format";
import { Card, Empty, Page, Wait } from "../parts/page";
import { Table } from "../parts/table";
import { to } from "../router";
import { ScheduleDialog, TakeDialog, keeps, snapshotActions, snapshotColumns } from "./snapshot-parts";

export default function Snapshots() {
  const volumes = useVolumes();
  // Two pools may have volumes of one name: only one of them answers to it.
  const names = [...new Set(volumes.data?.items.filter((volume) => volume.online).map((volume) => volume.name))];
  const [picked, setPicked] = useState("");
  const [open, setOpen] = useState<"take" | "schedule" | null>(null);
  const volume = names.includes(picked) ? picked : (names[0] ?? "");
  // Each volume is asked for itself: with very many of them, look at one by its own page.
  const asked = names.slice(0, 50);
  const snapshots = useQueries({
    queries: asked.map((name) => ({
      queryKey: ["volumes", name, "snapshots"],
      queryFn: () => ask(api.GET("/v1/volumes/{volume}/snapshots", { params: { path: { volume: name } } })),
      refetchInterval: 10_000,
    })),
  });
  const schedules = useQueries({
    queries: asked.map((name) => ({
      queryKey: ["volumes", name, "schedules"],
      queryFn: () => ask(api.GET("/v1/volumes/{volume}/snapshot-schedules", { params: { path: { volume: name } } })),
      refetchInterval: 10_000,
    })),
  });
  const scheduled = schedules.flatMap((one, index) => (one.data?.items ?? []).map((schedule) => ({ ...schedule, volume: asked[index] ?? "" })));
  return (
    <Page
      title="Snapshots"
      lead="What files, folders or volumes were at one moment. Windows shows those of shares as previous versions."
      actions={names.length > 0 && (
        <>
          <Button needs="POST /v1/volumes/{volume}/snapshot-schedules" onPress={() => setOpen("schedule")}>New schedule</Button>
          <Button needs="POST /v1/volumes/{volume}/snapshots" look="primary" icon="snapshot" onPress={() => setOpen("take")}>Take snapshot</Button>
        </>
      )}
    >
      <Wait of={volumes}>
        {() => (names.length === 0 ? <Empty title="There is no volume to take snapshots of." /> : (
          <>
            {names.length > 1 && <div className="fields"><Choice label="New ones are of volume" value={volume} onChange={setPicked} options={names.map((name) => ({ id: name, title: name }))} /></div>}
            {names.length > asked.length && <p>These are of the first {many(asked.length, "volume")}; those of others are on the page of each.</p>}
            <Card title="Schedules">
              <Table
                label="Schedules"
                rows={scheduled}
                id={(row) => `${row.volume} ${row.name}`}
                empty={<Empty title="No snapshot is taken by itself." />}
                columns={[
                  { title: "Schedule", value: (row) => row.name },
                  { title: "Volume", value: (row) => row.volume, cell: (row) => <a href={to("volumes", row.volume, "snapshots")}>{row.volume}</a> },
                  { title: "Of", value: (row) => row.path ?? "/" },
                  { title: "Keeps", value: keeps },
                ]}
              />
            </Card>
            <Card title="Snapshots">
              <Table
                label="Snapshots"
                rows={snapshots.flatMap((one) => one.data?.items ?? [])}
                id={(row) => `${row.volume} ${row.name}`}
                empty={<Empty title="There is no snapshot yet." />}
                columns={[...snapshotColumns.slice(0, 1), { title: "Volume", value: (row) => row.volume, cell: (row) => <a href={to("volumes", row.volume, "snapshots")}>{row.volume}</a> }, ...snapshotColumns.slice(1)]}
                actions={snapshotActions}
                first={{ column: 3, down: true }}
              />
            </Card>
          </>
        ))}
      </Wait>
      {open === "take" && <TakeDialog volume={volume} onClose={() => setOpen(null)} />}
      {open === "schedule" && <ScheduleDialog volume={volume} now={null} onClose={() => setOpen(null)} />}
    </Page>
  );
}
