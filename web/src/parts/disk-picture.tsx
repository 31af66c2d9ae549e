// Disks as they sit in the machine: by enclosure and slot, each with its state and how full it is.
import type { Disk, DiskState, PoolMember } from "../api/types";
import { baseName, bytes } from "./format";
import { DISK_TONE, DiskBadge, Fill } from "./states";

/** A disk, whether the machine or a pool tells of it. */
export type Shown = {
  /** How the node is told which one is meant. */
  id: string;
  name: string;
  state: DiskState;
  size: number;
  used?: number;
  usable?: number;
  enclosure?: string | null;
  slot?: string | null;
  pool?: string | null;
  reason?: string | null;
  disk?: Disk;
  member?: PoolMember;
};

export function ofDisk(disk: Disk, member?: PoolMember): Shown {
  return {
    id: disk.id || disk.guid || "",
    name: baseName(disk.id || disk.path || disk.guid || "disk"),
    state: disk.state,
    size: disk.size_bytes,
    used: member?.allocated_bytes,
    usable: member?.usable_bytes,
    enclosure: disk.enclosure,
    slot: disk.slot,
    pool: disk.pool,
    reason: disk.reason ?? member?.reason,
    disk,
    member,
  };
}

export function ofMember(member: PoolMember, pool: string, disk?: Disk): Shown {
  return {
    id: member.disk ?? member.guid,
    name: baseName(member.disk ?? member.guid),
    state: member.state,
    size: member.size_bytes,
    used: member.allocated_bytes,
    usable: member.usable_bytes,
    // What people say of a disk shows at once; the pool has what was known when it was opened.
    enclosure: disk?.enclosure ?? member.enclosure,
    slot: disk?.slot ?? member.slot,
    pool,
    reason: member.reason,
    disk,
    member,
  };
}

const collator = new Intl.Collator("en", { numeric: true });

export function DiskPicture({ disks, onPick }: { disks: readonly Shown[]; onPick: (disk: Shown) => void }) {
  const enclosures = new Map<string, Shown[]>();
  for (const disk of disks) {
    const name = disk.enclosure ?? "";
    enclosures.set(name, [...(enclosures.get(name) ?? []), disk]);
  }
  const names = [...enclosures.keys()].sort((a, b) => (a === "" ? 1 : b === "" ? -1 : collator.compare(a, b)));
  return (
    <div className="enclosures">
      {names.map((name) => (
        <section key={name} className="enclosure" aria-label={name ? `Enclosure ${name}` : "Disks without an enclosure"}>
          <h3>{name ? `Enclosure ${name}` : "No enclosure known"}</h3>
          <ul className="slots">
            {enclosures.get(name)?.sort((a, b) => collator.compare(a.slot ?? a.name, b.slot ?? b.name)).map((disk) => (
              <li key={`${disk.id} ${disk.state}`}>
                <button type="button" className={`slot ${DISK_TONE[disk.state]}`} onClick={() => onPick(disk)}>
                  <span className="slot-name">{disk.slot ? `${disk.slot}: ` : ""}{disk.name}</span>
                  <DiskBadge state={disk.state} />
                  {disk.usable ? <Fill label={`In use on ${disk.name}`} used={disk.used ?? 0} whole={disk.usable} /> : null}
                  <span className="help">
                    {bytes(disk.size)}{disk.pool ? `, ${disk.pool}` : ""}
                  </span>
                </button>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}
