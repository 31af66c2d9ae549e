// Disks as they sit in the machine: by enclosure and slot, each with its state and how full it is.
import { keyOn, type OnNode } from "../api/nodes";
import type { Disk, DiskState, PoolMember } from "../api/types";
import { baseName, bytes } from "./format";
import { DISK_TONE, DiskBadge, Fill } from "./states";

/** A disk, whether the machine or a pool tells of it. */
export type Shown = OnNode & {
  /** What the node that is asked calls it: of another node `n2:/dev/sdb`, for `/dev/sdb` is one of its own. */
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

/** What people call it: each node may have an `sdb`. */
const nameOn = (node: string | null | undefined, name: string) => (node ? `${node}:${name}` : name);

export function ofDisk(disk: Disk, member?: PoolMember): Shown {
  return {
    id: disk.id || disk.guid || "",
    name: nameOn(disk.node, baseName(disk.id || disk.path || disk.guid || "disk")),
    node: disk.node,
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
  const node = disk?.node ?? member.node;
  return {
    // The pool's node tells of its members, and calls them as it does itself: its `/dev/sdb` would be another disk at the node that is asked.
    id: disk?.id ?? member.guid,
    name: nameOn(node, baseName(disk?.id ?? member.disk ?? member.guid)),
    node,
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
    // Each node may have an enclosure 1.
    const place = keyOn(disk, disk.enclosure);
    enclosures.set(place, [...(enclosures.get(place) ?? []), disk]);
  }
  // Of each node, those that nobody knows the enclosure of come last.
  const places = [...enclosures.values()].sort(([a], [b]) => collator.compare(a?.node ?? "", b?.node ?? "")
    || Number(!a?.enclosure) - Number(!b?.enclosure) || collator.compare(a?.enclosure ?? "", b?.enclosure ?? ""));
  return (
    <div className="enclosures">
      {places.map((here) => {
        const { node, enclosure } = here[0] ?? {};
        const of = node ? ` of node ${node}` : "";
        return (
          <section key={keyOn({ node }, enclosure)} className="enclosure" aria-label={enclosure ? `Enclosure ${enclosure}${of}` : `Disks${of} without an enclosure`}>
            <h3>{enclosure ? `Enclosure ${enclosure}${of}` : node ? `Node ${node}: no enclosure known` : "No enclosure known"}</h3>
            <ul className="slots">
              {here.sort((a, b) => collator.compare(a.slot ?? a.name, b.slot ?? b.name)).map((disk) => (
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
        );
      })}
    </div>
  );
}
