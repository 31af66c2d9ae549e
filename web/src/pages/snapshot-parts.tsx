// Snapshots of one volume, and when they are taken by themselves.
import { useState } from "react";
import { api, ask } from "../api/client";
import { useSchedules, useSnapshots } from "../api/queries";
import type { Snapshot, SnapshotSchedule } from "../api/types";
import { Button, Check, Field, type Action } from "../parts/controls";
import { FormDialog, destroy } from "../parts/dialog";
import { many, quote, time } from "../parts/format";
import { Card, Empty, Wait } from "../parts/page";
import { Table, type Column } from "../parts/table";

export const KEEPS = ["hourly", "daily", "weekly", "monthly"] as const;
const UNIT = { hourly: "hour", daily: "day", weekly: "week", monthly: "month" } as const;

export function keeps(schedule: SnapshotSchedule): string {
  const parts = KEEPS.filter((rhythm) => schedule[rhythm]).map((rhythm) => many(schedule[rhythm] ?? 0, UNIT[rhythm]));
  return parts.length ? `the last ${parts.join(", ")}` : "nothing";
}

export const snapshotColumns: Column<Snapshot>[] = [
  { title: "Snapshot", value: (row) => row.name },
  { title: "Of", value: (row) => row.path },
  { title: "Taken (UTC)", value: (row) => row.created, cell: (row) => time(row.created) },
  { title: "By", value: (row) => row.schedule ?? "a person", wide: true },
  { title: "Volatile data first", value: (row) => (row.quiesced ? "yes" : "no"), wide: true },
  { title: "To be read at", value: (row) => row.view, cell: (row) => <code>{row.view}</code>, wide: true },
];

export function snapshotActions(row: Snapshot): { label: string; actions: Action[] } {
  return {
    label: `Actions for snapshot ${row.name}`,
    actions: [{
      id: "delete",
      title: "Delete …", needs: "DELETE /v1/volumes/{volume}/snapshots/{snapshot}",
      danger: true,
      run: () => destroy({
        title: `Delete snapshot ${row.name} of ${row.volume}`,
        button: "Delete",
        call: (confirm) => ask(api.DELETE("/v1/volumes/{volume}/snapshots/{snapshot}", { params: { path: { volume: row.volume, snapshot: row.name } }, body: { confirm } })),
      }),
    }],
  };
}

export function SnapshotsOf({ volume }: { volume: string }) {
  const snapshots = useSnapshots(volume);
  const schedules = useSchedules(volume);
  const [taking, setTaking] = useState(false);
  const [schedule, setSchedule] = useState<SnapshotSchedule | "new" | null>(null);
  return (
    <>
      <Card title="Schedules" aside={<Button needs="POST /v1/volumes/{volume}/snapshot-schedules" icon="add" onPress={() => setSchedule("new")}>New schedule</Button>}>
        <Wait of={schedules}>
          {({ items }) => (
            <Table
              label={`Schedules of volume ${volume}`}
              rows={items}
              id={(row) => row.name}
              empty={<Empty title="No snapshot is taken by itself." />}
              columns={[
                { title: "Schedule", value: (row) => row.name },
                { title: "Of", value: (row) => row.path ?? "/" },
                { title: "Keeps", value: keeps },
                { title: "Volatile data first", value: (row) => (row.quiesce ? "yes" : "no"), wide: true },
              ]}
              actions={(row) => ({
                label: `Actions for schedule ${row.name}`,
                actions: [
                  { id: "change", title: "Change …", needs: "POST /v1/volumes/{volume}/snapshot-schedules", run: () => setSchedule(row) },
                  {
                    id: "delete",
                    title: "Delete …", needs: "DELETE /v1/volumes/{volume}/snapshot-schedules/{schedule}",
                    danger: true,
                    run: () => destroy({
                      title: `Delete schedule ${row.name} of ${volume}`,
                      button: "Delete",
                      call: (confirm) => ask(api.DELETE("/v1/volumes/{volume}/snapshot-schedules/{schedule}", { params: { path: { volume, schedule: row.name } }, body: { confirm } })),
                    }),
                  },
                ],
              })}
            />
          )}
        </Wait>
      </Card>
      <Card title="Snapshots" aside={<Button needs="POST /v1/volumes/{volume}/snapshots" icon="snapshot" onPress={() => setTaking(true)}>Take snapshot</Button>}>
        <Wait of={snapshots}>
          {({ items }) => (
            <Table
              label={`Snapshots of volume ${volume}`}
              rows={items}
              id={(row) => row.name}
              columns={snapshotColumns}
              actions={snapshotActions}
              first={{ column: 2, down: true }}
              empty={<Empty title="There is no snapshot yet." />}
            />
          )}
        </Wait>
      </Card>
      {taking && <TakeDialog volume={volume} onClose={() => setTaking(false)} />}
      {schedule && <ScheduleDialog volume={volume} now={schedule === "new" ? null : schedule} onClose={() => setSchedule(null)} />}
    </>
  );
}

export function TakeDialog({ volume, onClose }: { volume: string; onClose: () => void }) {
  const [name, setName] = useState("");
  const [path, setPath] = useState("/");
  const [quiesce, setQuiesce] = useState(false);
  const wrong = path.startsWith("/") ? null : "Write the whole path, as in /luns/disk1; / is the whole volume.";
  return (
    <FormDialog
      title={`Take a snapshot of ${volume}`}
      button="Take"
      onClose={onClose}
      wrong={wrong !== null}
      preview={<p>{path === "/" ? `Everything on ${volume}` : `${volume}:${path}`} is kept as it is at that moment. It takes no space until something changes. A VM in it finds its disk as after a power cut.</p>}
      command={wrong === null ? `holdfast snapshot create ${quote(`${volume}:${path}`)}${name ? ` ${quote(name)}` : ""}${quiesce ? " --quiesce" : ""}` : undefined}
      submit={async () => {
        const made = await ask(api.POST("/v1/volumes/{volume}/snapshots", { params: { path: { volume } }, body: { name: name || undefined, path, quiesce } }));
        return `Snapshot ${made.name} is taken.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} help="Without one it is called after the time." autoFocus />
      <Field label="Of" value={path} onChange={setPath} wrong={wrong} help="A file, or a folder with all that is in it; / is the whole volume." />
      <Check value={quiesce} onChange={setQuiesce} help="Then writes are held up for less when it is taken.">Make volatile data durable first</Check>
    </FormDialog>
  );
}

export function ScheduleDialog({ volume, now, onClose }: { volume: string; now: SnapshotSchedule | null; onClose: () => void }) {
  const [name, setName] = useState(now?.name ?? "");
  const [path, setPath] = useState(now?.path ?? "/");
  const [quiesce, setQuiesce] = useState(now?.quiesce ?? false);
  const [kept, setKept] = useState<Record<(typeof KEEPS)[number], string>>({
    hourly: String(now?.hourly ?? 24),
    daily: String(now?.daily ?? 7),
    weekly: String(now?.weekly ?? 4),
    monthly: String(now?.monthly ?? 0),
  });
  const bad = (text: string) => (/^\d{1,4}$/.test(text) ? null : "Write a number; 0 for none.");
  const none = KEEPS.every((rhythm) => Number(kept[rhythm]) === 0);
  const wrong = !name.trim() || !path.startsWith("/") || KEEPS.some((rhythm) => bad(kept[rhythm])) || none;
  const schedule: SnapshotSchedule = {
    name: name.trim(), path, quiesce,
    hourly: Number(kept.hourly), daily: Number(kept.daily), weekly: Number(kept.weekly), monthly: Number(kept.monthly),
  };
  return (
    <FormDialog
      title={now ? `Change schedule ${now.name}` : `New schedule for ${volume}`}
      button={now ? "Save" : "Create"}
      onClose={onClose}
      wrong={wrong}
      preview={none ? <p>It would keep nothing: give at least one number.</p> : <p>Snapshots of {volume}:{path} are taken by themselves. Of them {keeps(schedule)} keep their first one; older ones are deleted. Times are UTC.</p>}
      submit={async () => {
        await ask(api.POST("/v1/volumes/{volume}/snapshot-schedules", { params: { path: { volume } }, body: schedule }));
        return `Schedule ${schedule.name} holds from now on.`;
      }}
    >
      <div className="fields">
        <Field label="Name" value={name} onChange={setName} required autoFocus={!now} disabled={now !== null} />
        <Field label="Of" value={path} onChange={setPath} help="/ is the whole volume." />
      </div>
      <div className="fields">
        {KEEPS.map((rhythm) => (
          <Field
            key={rhythm}
            label={`${UNIT[rhythm]}s kept`.replace(/^./, (first) => first.toUpperCase())}
            value={kept[rhythm]}
            onChange={(text) => setKept({ ...kept, [rhythm]: text })}
            wrong={bad(kept[rhythm])}
          />
        ))}
      </div>
      <Check value={quiesce} onChange={setQuiesce}>Make volatile data durable first</Check>
    </FormDialog>
  );
}
