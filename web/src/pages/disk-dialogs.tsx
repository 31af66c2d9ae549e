// A disk: what is known of it, and what can be done with it.
import { useState } from "react";
import { keyOf } from "../api/counters";
import { api, ask } from "../api/client";
import { useDisks } from "../api/queries";
import type { Disk } from "../api/types";
import { Button, Check, Choice, Field } from "../parts/controls";
import { FormDialog, ReadDialog, destroy } from "../parts/dialog";
import type { Shown } from "../parts/disk-picture";
import { bytes, duration, number, quote } from "../parts/format";
import { Facts } from "../parts/page";
import { Performance } from "../parts/performance";
import { DiskBadge } from "../parts/states";

export function DiskDialog({ shown, onClose }: { shown: Shown; onClose: () => void }) {
  const [editing, setEditing] = useState(false);
  const [replacing, setReplacing] = useState(false);
  const { disk, member, pool } = shown;
  if (editing && disk) return <DescribeDialog disk={disk} onClose={onClose} />;
  if (replacing && pool) return <ReplaceDialog pool={pool} shown={shown} onClose={onClose} />;
  const query = { disk: shown.id };
  const inPool = { params: { path: { pool: pool ?? "" }, query } };
  const ours = pool !== null && pool !== undefined && member !== undefined;
  const close = (then: () => void) => {
    onClose();
    then();
  };
  return (
    <ReadDialog title={`Disk ${shown.name}`} onClose={onClose} wide>
      <p><DiskBadge state={shown.state} /> {shown.reason}</p>
      <Facts
        facts={[
          ["Id", shown.id],
          ["Node", shown.node],
          ["Path", disk?.path],
          ["Pool", pool],
          ["Enclosure, slot", [shown.enclosure, shown.slot].filter(Boolean).join(", ") || null],
          ["Size", bytes(shown.size)],
          ["In use", member ? `${bytes(member.allocated_bytes)} of ${bytes(member.usable_bytes ?? member.size_bytes)}` : null],
          ["Media, bus", [disk?.media ?? member?.media, disk?.bus].filter(Boolean).join(", ")],
          ["Model", [disk?.vendor, disk?.model].filter(Boolean).join(" ")],
          ["Serial number", disk?.serial],
          ["Failed reads and writes", member?.io_errors !== undefined ? number(member.io_errors) : null],
          ["Blocks that were not what was written", member?.checksum_errors !== undefined ? number(member.checksum_errors) : null],
          ["Blocks healed", member?.healed_blocks !== undefined ? number(member.healed_blocks) : null],
          ["Slower than its like for", member?.slow_seconds ? duration(member.slow_seconds) : null],
          ["Its file system full for", member?.full_seconds ? duration(member.full_seconds) : null],
          ["Faults switched on", disk?.faults?.join(", ")],
        ]}
      />
      {disk && ours && <Performance of={keyOf("disk", disk.id)} />}
      <div className="buttons">
          {disk && <Button needs="PATCH /v1/disks" onPress={() => setEditing(true)}>Describe …</Button>}
          {ours && <Button needs="POST /v1/pools/{pool}/replace" onPress={() => setReplacing(true)}>Replace …</Button>}
          {ours && (shown.state === "online" || shown.state === "spare") && (
            <Button needs="POST /v1/pools/{pool}/retire"
              onPress={() => close(() => destroy({
                title: `Retire disk ${shown.name}`,
                button: "Retire",
                asks: false,
                means: "Nothing new is put on it, and what is on it moves to other disks. All data keeps its redundancy meanwhile. It can be taken back until the disk has left.",
                call: () => ask(api.POST("/v1/pools/{pool}/retire", inPool)),
                done: `Disk ${shown.name} is being retired.`,
              }))}
            >
              Retire
            </Button>
          )}
          {ours && shown.state === "retiring" && (
            <Button needs="POST /v1/pools/{pool}/keep"
              onPress={() => close(() => destroy({
                title: `Keep disk ${shown.name}`,
                button: "Keep",
                asks: false,
                means: "It takes new data again.",
                call: () => ask(api.POST("/v1/pools/{pool}/keep", inPool)),
                done: `Disk ${shown.name} stays.`,
              }))}
            >
              Keep
            </Button>
          )}
          {ours && (
            <Button needs="POST /v1/pools/{pool}/remove"
              look="danger"
              onPress={() => close(() => destroy({
                title: `Take disk ${shown.name} out of ${pool}`,
                button: "Take out",
                call: (confirm) => ask(api.POST("/v1/pools/{pool}/remove", { ...inPool, body: { confirm } })),
              }))}
            >
              Take out …
            </Button>
          )}
        </div>
    </ReadDialog>
  );
}

type Media = NonNullable<Disk["media"]>;

/** Says what the disk itself does not. */
function DescribeDialog({ disk, onClose }: { disk: Disk; onClose: () => void }) {
  const [enclosure, setEnclosure] = useState(disk.enclosure ?? "");
  const [slot, setSlot] = useState(disk.slot ?? "");
  const [model, setModel] = useState(disk.model ?? "");
  const [serial, setSerial] = useState(disk.serial ?? "");
  const [media, setMedia] = useState<Media>(disk.media);
  // What stays as the disk says it is not set, so that it goes on to follow the disk.
  const changed = (now: string, then: string | null | undefined) => (now === (then ?? "") ? undefined : now);
  return (
    <FormDialog
      title={`Describe disk ${disk.id}`}
      onClose={onClose}
      wrong={false}
      button="Save"
      preview={<p>Copies of the same data are put into different enclosures where there are several: say truly which one the disk is in.</p>}
      submit={async () => {
        await ask(api.PATCH("/v1/disks", {
          params: { query: { disk: disk.id } },
          body: {
            enclosure: changed(enclosure, disk.enclosure),
            slot: changed(slot, disk.slot),
            model: changed(model, disk.model),
            serial: changed(serial, disk.serial),
            media: media === disk.media ? undefined : media,
          },
        }));
        return "The disk is described.";
      }}
    >
      <div className="fields">
        <Field label="Enclosure" value={enclosure} onChange={setEnclosure} />
        <Field label="Slot" value={slot} onChange={setSlot} />
        <Field label="Model" value={model} onChange={setModel} />
        <Field label="Serial number" value={serial} onChange={setSerial} />
      </div>
      <Choice
        label="Media"
        value={media}
        onChange={setMedia}
        options={[{ id: "ssd", title: "SSD" }, { id: "hdd", title: "HDD" }, { id: "unspecified", title: "Not specified" }]}
      />
    </FormDialog>
  );
}

function ReplaceDialog({ pool, shown, onClose }: { pool: string; shown: Shown; onClose: () => void }) {
  const disks = useDisks();
  const candidates = disks.data?.items.filter((disk) => disk.state === "free" || disk.state === "foreign" || (disk.state === "spare" && disk.pool === pool)) ?? [];
  const [picked, setPicked] = useState("");
  const [overwrite, setOverwrite] = useState(false);
  const disk = candidates.find((candidate) => candidate.id === picked);
  const foreign = disk?.state === "foreign";
  const small = disk !== undefined && disk.size_bytes < (shown.used ?? 0);
  return (
    <FormDialog
      title={`Replace disk ${shown.name}`}
      button="Replace"
      onClose={onClose}
      wrong={!disk || (foreign && !overwrite) || small}
      preview={disk && (
        <ul>
          <li>What {shown.name} held ({bytes(shown.used ?? 0)}) is made again on {disk.id}, from the other copies.</li>
          <li>Everything that is on {disk.id} now is gone.</li>
          {small && <li>It is too small: it holds {bytes(disk.size_bytes)}.</li>}
        </ul>
      )}
      command={disk && `holdfast pool replace ${quote(pool)} ${quote(shown.id)} --with ${quote(disk.id)}`}
      submit={async (confirm) => {
        const done = await ask(api.POST("/v1/pools/{pool}/replace", {
          params: { path: { pool }, query: { disk: shown.id } },
          body: { with: picked, overwrite_foreign: overwrite, confirm },
        }));
        return done.message;
      }}
    >
      {candidates.length === 0 ? (
        <p>There is no free disk to put in its place. Put one into the machine and look for it with “Look for disks” on the page Disks.</p>
      ) : (
        <Choice
          label="With"
          value={picked}
          onChange={setPicked}
          options={candidates.map((each) => ({ id: each.id, title: each.id, detail: `${bytes(each.size_bytes)}, ${each.media}, ${each.state}` }))}
        />
      )}
      {foreign && <Check value={overwrite} onChange={setOverwrite}>Destroy the data of others that is on it</Check>}
    </FormDialog>
  );
}
