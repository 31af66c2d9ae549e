// Making pools, adding disks, evening them out. What will happen is said before; disks are taken over after the name was typed.
import { useEffect, useState } from "react";
import { api, ask, asProblem } from "../api/client";
import { useDisks, usePools } from "../api/queries";
import type { Disk } from "../api/types";
import { Button, Check, Field, wrongName } from "../parts/controls";
import { FormDialog } from "../parts/dialog";
import { bytes, many, quote } from "../parts/format";
import { ProblemBox } from "../parts/problem";
import { Wait } from "../parts/page";
import { Table } from "../parts/table";
import { to } from "../router";

/** What choosing disks means, while they are being chosen. */
export function useDiskChoice() {
  const disks = useDisks();
  const [picked, setPicked] = useState<string[]>([]);
  const [overwrite, setOverwrite] = useState(false);
  // Disks that were named by path: files, which nobody looks for.
  const [named, setNamed] = useState<Disk[]>([]);
  const found = disks.data?.items ?? [];
  const free = [...found, ...named.filter((disk) => !found.some((one) => one.id === disk.id))].filter((disk) => disk.state === "free" || disk.state === "foreign");
  const chosen = free.filter((disk) => picked.includes(disk.id));
  const foreign = chosen.filter((disk) => disk.state === "foreign");
  const raw = chosen.reduce((sum, disk) => sum + disk.size_bytes, 0);
  const enclosures = new Set(chosen.map((disk) => disk.enclosure).filter(Boolean)).size;
  const wrong = chosen.length === 0 || (foreign.length > 0 && !overwrite);
  const name = (disk: Disk) => {
    setNamed((now) => [...now.filter((one) => one.id !== disk.id), disk]);
    setPicked((now) => (now.includes(disk.id) ? now : [...now, disk.id]));
  };
  return { disks, free, picked, setPicked, overwrite, setOverwrite, chosen, foreign, raw, enclosures, wrong, name };
}

/** The disks that a pool could have, to choose from. */
export function DiskPicks({ choice }: { choice: DiskChoice }) {
  const { free, picked, setPicked } = choice;
  const toggle = (disk: Disk) => setPicked(picked.includes(disk.id) ? picked.filter((id) => id !== disk.id) : [...picked, disk.id]);
  return (
    <Wait of={choice.disks}>
      {() => (
        <fieldset className="plain">
          <legend>Disks</legend>
          {free.length === 0 ? (
            <p>
              No disk of this machine is free. Disks that are mounted, used for swapping or in a pool are left alone:
              the page <a href={to("disks")}>Disks</a> says what each is.
            </p>
          ) : (
            <Check value={free.every((disk) => picked.includes(disk.id))} onChange={(all) => setPicked(all ? free.map((disk) => disk.id) : [])}>
              All {many(free.length, "disk")}
            </Check>
          )}
          <div className="disk-picks">
            {free.map((disk) => (
              <Check
                key={disk.id}
                value={picked.includes(disk.id)}
                onChange={() => toggle(disk)}
                help={[bytes(disk.size_bytes), disk.media, [disk.enclosure, disk.slot].filter(Boolean).join(" "), disk.state === "foreign" ? `carries data of others${disk.reason ? `: ${disk.reason}` : ""}` : ""].filter(Boolean).join(", ")}
              >
                {disk.id}
              </Check>
            ))}
          </div>
          <ByPath then={choice.name} />
        </fieldset>
      )}
    </Wait>
  );
}

/** Takes a disk by its path: files are disks, too, and nobody looks for them. */
function ByPath({ then }: { then: (disk: Disk) => void }) {
  const [path, setPath] = useState("");
  const [wrong, setWrong] = useState<string | null>(null);
  async function look() {
    try {
      const disk = (await ask(api.POST("/v1/disks/select", { body: { disks: [path.trim()] } }))).items[0];
      if (!disk) setWrong("There is no such disk.");
      else if (disk.state !== "free" && disk.state !== "foreign") setWrong(`It is ${disk.state}${disk.reason ? `: ${disk.reason}` : ""}.`);
      else {
        then(disk);
        setPath("");
      }
    } catch (error) {
      const problem = asProblem(error);
      setWrong(problem.detail);
    }
  }
  return (
    <div className="by-path">
      <Field label="Another disk, by its path" value={path} onChange={(text) => { setPath(text); setWrong(null); }} wrong={wrong} help="For files that are to be disks." />
      <Button isDisabled={path.trim() === ""} onPress={() => void look()}>Add to the list</Button>
    </div>
  );
}

type DiskChoice = ReturnType<typeof useDiskChoice>;

export function Overwrite({ choice }: { choice: DiskChoice }) {
  if (choice.foreign.length === 0) return null;
  return (
    <Check value={choice.overwrite} onChange={choice.setOverwrite} help={choice.foreign.map((disk) => disk.id).join(", ")}>
      Destroy the data of others that is on {many(choice.foreign.length, "disk")} of these
    </Check>
  );
}

/** What a pool of these disks can hold, in sentences. */
export function PoolPreview({ choice }: { choice: DiskChoice }) {
  const { chosen, raw, enclosures } = choice;
  if (chosen.length === 0) return <p>Choose at least one disk; for mirrors at least two, for dual parity more.</p>;
  const largest = Math.max(...chosen.map((disk) => disk.size_bytes));
  const two = Math.min(raw / 2, raw - largest);
  return (
    <ul>
      <li>{many(chosen.length, "disk")} with {bytes(raw)} are taken over entirely: what is on them is gone.</li>
      {chosen.length > 1
        ? <li>That is room for about {bytes(two)} in two-way mirrors{chosen.length > 2 ? `, or ${bytes(Math.min(raw / 3, two))} in three-way mirrors` : ""}.</li>
        : <li>One disk holds one copy: when it is lost, its data is. Choose two or more for mirrors.</li>}
      {enclosures > 1 && <li>Copies are put into different enclosures ({enclosures}): a whole one may be lost.</li>}
    </ul>
  );
}

export function PoolCreateDialog({ onClose }: { onClose: () => void }) {
  const pools = usePools();
  const [name, setName] = useState("");
  const choice = useDiskChoice();
  const wrong = wrongName(name, pools.data?.items.map((pool) => pool.name));
  return (
    <FormDialog
      title={`Create pool ${name}`.trim()}
      onClose={onClose}
      wide
      wrong={wrong !== null || choice.wrong}
      preview={<PoolPreview choice={choice} />}
      command={wrong === null && choice.chosen.length > 0 ? `holdfast pool create ${quote(name)} ${choice.picked.map(quote).join(" ")}${choice.overwrite ? " --overwrite-foreign" : ""}` : undefined}
      submit={async (confirm) => {
        await ask(api.POST("/v1/pools", { body: { name, disks: choice.picked, overwrite_foreign: choice.overwrite, confirm } }));
        return `Pool ${name} is there.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
      <DiskPicks choice={choice} />
      <Overwrite choice={choice} />
    </FormDialog>
  );
}

export function AddDisksDialog({ pool, onClose }: { pool: string; onClose: () => void }) {
  const choice = useDiskChoice();
  const [spare, setSpare] = useState(false);
  const [typed, setTyped] = useState("");
  return (
    <FormDialog
      title={`Add disks to ${pool}`}
      button="Add"
      onClose={onClose}
      wide
      wrong={choice.wrong || typed !== pool}
      preview={choice.chosen.length > 0 && (
        <ul>
          <li>{many(choice.chosen.length, "disk")} with {bytes(choice.raw)} are taken over entirely: what is on them is gone.</li>
          <li>{spare ? "They wait to replace disks that fail." : "The pool grows by as much, and its data is evened out over all disks in the background."}</li>
        </ul>
      )}
      submit={async () => {
        // One after the other: the node adds one disk that is named, or several that a selector finds. Each is confirmed by its
        // own name; the person has seen the list and typed the pool's.
        for (const disk of choice.picked) {
          await ask(api.POST("/v1/pools/{pool}/disks", { params: { path: { pool } }, body: { disk, spare, overwrite_foreign: choice.overwrite, confirm: disk } }));
        }
        return `${many(choice.picked.length, "disk")} added to ${pool}.`;
      }}
    >
      <DiskPicks choice={choice} />
      <Overwrite choice={choice} />
      <Check value={spare} onChange={setSpare} help="They hold nothing until a disk is lost, and then take its place by themselves.">As spares</Check>
      <Field label={`Type ${pool} to confirm`} value={typed} onChange={setTyped} />
    </FormDialog>
  );
}

export function ImportDialog({ onClose }: { onClose: () => void }) {
  const disks = useDisks();
  const [pool, setPool] = useState("");
  const others = [...new Set(disks.data?.items.filter((disk) => disk.state === "other-pool").map((disk) => disk.pool).filter(Boolean))];
  return (
    <FormDialog
      title="Import a pool"
      button="Import"
      onClose={onClose}
      wrong={!pool.trim()}
      preview={<p>The pool is opened here with its volumes. The machine that it comes from no longer may: export it there first.</p>}
      submit={async (confirm) => {
        const done = await ask(api.POST("/v1/pools/import", { body: { pool: pool.trim(), confirm } }));
        return `Pool ${done.name} is here.`;
      }}
    >
      <p>{others.length ? `Found on disks of this machine: ${others.join(", ")}.` : "No disk of this machine carries a pool that is not imported."}</p>
      <Field label="Pool" value={pool} onChange={setPool} help="Its name or identity." required autoFocus />
    </FormDialog>
  );
}

type Plan = Awaited<ReturnType<typeof plan>>;
const plan = (pool: string, dry_run: boolean) => ask(api.POST("/v1/pools/{pool}/rebalance", { params: { path: { pool } }, body: { dry_run } }));

export function RebalanceDialog({ pool, onClose }: { pool: string; onClose: () => void }) {
  const [told, setTold] = useState<Plan | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  useEffect(() => {
    plan(pool, true).then(setTold, setProblem);
  }, [pool]);
  return (
    <FormDialog
      title={`Rebalance ${pool}`}
      button="Rebalance"
      onClose={onClose}
      wide
      wrong={!told || told.bytes === 0}
      preview={told && <p>{told.bytes ? `${bytes(told.bytes)} move between disks, in the background; clients go first.` : "There is nothing to move: the disks are as even as they can be."}</p>}
      submit={async () => {
        await plan(pool, false);
        return `Pool ${pool} is being rebalanced; the page Jobs shows how far it is.`;
      }}
    >
      {problem !== null && <ProblemBox error={problem} />}
      {!told && problem === null && <p role="status">Asking the node what would move …</p>}
      {told && (
        <Table
          label="Disks before and after"
          rows={told.disks}
          id={(disk) => disk.disk}
          empty="No disks."
          columns={[
            { title: "Disk", value: (disk) => disk.disk },
            { title: "Now", value: (disk) => disk.used_bytes, cell: (disk) => bytes(disk.used_bytes), end: true },
            { title: "Then", value: (disk) => disk.used_then_bytes, cell: (disk) => bytes(disk.used_then_bytes), end: true },
            { title: "Room", value: (disk) => disk.capacity_bytes, cell: (disk) => bytes(disk.capacity_bytes), end: true },
          ]}
        />
      )}
    </FormDialog>
  );
}
