// Making a volume, with what it will take and survive said before.
import { useState } from "react";
import { api, ask } from "../api/client";
import { usePools, useVolumes } from "../api/queries";
import type { Pool, Resiliency } from "../api/types";
import { Check, Choice, Choices, Field, wrongName, wrongSize } from "../parts/controls";
import { FormDialog } from "../parts/dialog";
import { bytes, parseBytes, quote } from "../parts/format";
import { RESILIENCY } from "../parts/states";

export const RESILIENCIES: Resiliency[] = ["mirror2", "mirror3", "parity1", "parity2", "simple"];
/** Disks that a resiliency needs at least. */
const LEAST: Record<Resiliency, number> = { simple: 1, mirror2: 2, mirror3: 3, parity1: 3, parity2: 4 };

/** What a volume of this size and promise does to its pool, in sentences. */
export function VolumePreview({ pool, size, resiliency, fixed }: { pool: Pool | undefined; size: number; resiliency: Resiliency; fixed: boolean }) {
  const { copies, parity, survives } = RESILIENCY[resiliency];
  const takes = copies ? size * copies : size;
  const online = pool ? pool.disks - pool.disks_missing : 0;
  return (
    <ul>
      <li>{survives}</li>
      <li>
        {fixed ? "It takes " : "Full, it takes "}{copies ? bytes(takes) : `${bytes(size)} and parity (${parity} of each stripe's columns)`} of the pool{copies > 1 && `: ${bytes(size)} in ${copies} copies`}.
        {!fixed && " It is thin: space is taken when data is written."}
      </li>
      {pool && takes > pool.free_bytes && (
        <li className="warn-text">
          Pool {pool.name} has {bytes(pool.free_bytes)} free. {fixed ? "That is too little." : "That is less than the volume may come to need: add disks before it is full."}
        </li>
      )}
      {pool && online < LEAST[resiliency] && <li className="warn-text">This needs {LEAST[resiliency]} disks; pool {pool.name} has {online}.</li>}
    </ul>
  );
}

export function VolumeCreateDialog({ pool: given, onClose }: { pool: string | null; onClose: () => void }) {
  const pools = usePools();
  const volumes = useVolumes();
  const all = pools.data?.items ?? [];
  const [name, setName] = useState("");
  const [picked, setPicked] = useState(given ?? "");
  const [size, setSize] = useState("");
  const [resiliency, setResiliency] = useState<Resiliency>("mirror2");
  const [fixed, setFixed] = useState(false);
  const [cache, setCache] = useState(false);
  const pool = all.find((one) => one.name === picked) ?? all[0];
  const wrong = wrongName(name, volumes.data?.items.map((volume) => volume.name));
  const badSize = wrongSize(size);
  const bytesWanted = parseBytes(size) ?? 0;
  return (
    <FormDialog
      title={`Create volume ${name}`.trim()}
      onClose={onClose}
      wide
      wrong={wrong !== null || badSize !== null || !pool}
      preview={badSize === null && <VolumePreview pool={pool} size={bytesWanted} resiliency={resiliency} fixed={fixed} />}
      command={wrong === null && badSize === null && pool
        ? `holdfast volume create ${quote(name)} --size ${quote(size.replaceAll(" ", ""))} --pool ${quote(pool.name)} --resiliency ${resiliency}${fixed ? " --fixed" : ""}${cache ? " --read-cache on" : ""}`
        : undefined}
      submit={async () => {
        await ask(api.POST("/v1/volumes", {
          body: { name, pool: pool?.name, size_bytes: bytesWanted, resiliency, provisioning: fixed ? "fixed" : "thin", ...(cache && { cache: { read_cache: true } }) },
        }));
        return `Volume ${name} is there.`;
      }}
    >
      {all.length === 0 && pools.data && <p>There is no pool to put it on. Make one first.</p>}
      <div className="fields">
        <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
        <Field label="Size" value={size} onChange={setSize} wrong={size ? badSize : null} placeholder="100 GiB" help="What its files can hold, as in 100 GiB or 2T." required />
        {all.length > 1 && <Choice label="Pool" value={pool?.name ?? ""} onChange={setPicked} options={all.map((one) => ({ id: one.name, title: one.name, detail: `${bytes(one.free_bytes)} free` }))} />}
      </div>
      <Choices
        label="How its data survives"
        value={resiliency}
        onChange={setResiliency}
        options={RESILIENCIES.map((id) => ({ id, title: RESILIENCY[id].title, detail: RESILIENCY[id].survives }))}
      />
      <Check value={fixed} onChange={setFixed} help="Writes never fail because the pool is full. Otherwise space is taken at the first write.">Take all space now</Check>
      <Check value={cache} onChange={setCache} help="Of this node; what is read again is answered from memory.">Use the read cache</Check>
    </FormDialog>
  );
}
