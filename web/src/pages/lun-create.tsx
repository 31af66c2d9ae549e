// Making a LUN, and who is to see it.
import { useState } from "react";
import { api, ask } from "../api/client";
import { useInitiatorGroups, useLuns, useTargets, useVolumes } from "../api/queries";
import type { InitiatorGroup, Target, Volume } from "../api/types";
import { Check, Choice, Field, wrongName, wrongSize } from "../parts/controls";
import { FormDialog } from "../parts/dialog";
import { bytes, many, parseBytes, quote } from "../parts/format";

/** Stands for every initiator, a group that the node makes where there is none. */
const EVERYONE = " everyone";
const NOBODY = " nobody";

/** Who is to see a LUN, as it is being chosen. */
export function useMapping(nobody = false) {
  const [group, setGroup] = useState(nobody ? NOBODY : "");
  const [target, setTarget] = useState("");
  const [number, setNumber] = useState("");
  const wrongNumber = number === "" || (/^\d+$/.test(number) && Number(number) <= 16383) ? null : "A number from 0 to 16383.";
  return {
    group, setGroup, target, setTarget, number, setNumber, wrongNumber,
    ready: group !== "" && wrongNumber === null,
    body: {
      everyone: group === EVERYONE,
      group: group === EVERYONE ? undefined : group,
      target: target || undefined,
      number: number === "" ? undefined : Number(number),
    },
    maps: group !== NOBODY,
    says(groups: readonly InitiatorGroup[]): string {
      if (group === NOBODY) return "No initiator sees it until it is mapped.";
      const found = groups.find((one) => one.name === group);
      if (group === EVERYONE || found?.any) return "Every initiator that reaches the target sees it.";
      return `It is seen by ${many(found?.initiators?.length ?? 0, "initiator")} of ${group}.`;
    },
  };
}

export function MapFields({ mapping, groups, targets, nobody }: { mapping: ReturnType<typeof useMapping>; groups: readonly InitiatorGroup[]; targets: readonly Target[]; nobody?: boolean }) {
  return (
    <div className="fields">
      <Choice
        label="Who sees it"
        value={mapping.group}
        onChange={mapping.setGroup}
        options={[
          ...(nobody ? [{ id: NOBODY, title: "Nobody yet" }] : []),
          ...groups.filter((group) => !group.any).map((group) => ({ id: group.name, title: group.name, detail: many(group.initiators?.length ?? 0, "initiator") })),
          { id: EVERYONE, title: "Everyone", detail: "every initiator that reaches the target" },
        ]}
      />
      {targets.length > 1 && (
        <Choice
          label="Target"
          value={mapping.target || (targets[0]?.name ?? "")}
          onChange={mapping.setTarget}
          options={targets.map((target) => ({ id: target.name, title: target.alias || target.name, detail: target.name }))}
        />
      )}
      <Field label="Number" value={mapping.number} onChange={mapping.setNumber} wrong={mapping.wrongNumber} help="The lowest free one where it is empty." />
    </div>
  );
}

/** What a LUN of this size does to its volume, in sentences. */
export function LunPreview({ volume, size, reserve }: { volume: Volume | undefined; size: number; reserve: boolean }) {
  if (!volume) return null;
  const free = volume.free_bytes ?? 0;
  return (
    <ul>
      <li>A disk of {bytes(size)}, a file on volume {volume.name}, as redundant as it is ({volume.resiliency}).</li>
      {reserve ? <li>All its space is taken now.</li> : <li>It is thin: space is taken when data is written.</li>}
      {size > free && <li className="warn-text">The volume has {bytes(free)} free. {reserve ? "That is too little." : "That is less than the LUN may come to need: grow the volume before it is full."}</li>}
    </ul>
  );
}

export function LunCreateDialog({ onClose }: { onClose: () => void }) {
  const volumes = useVolumes();
  const luns = useLuns();
  const groups = useInitiatorGroups();
  const targets = useTargets();
  const mapping = useMapping(true);
  const [name, setName] = useState("");
  const [size, setSize] = useState("");
  const [picked, setPicked] = useState("");
  const [block, setBlock] = useState<"512" | "4096">("512");
  const [reserve, setReserve] = useState(false);
  const all = volumes.data?.items.filter((volume) => volume.online) ?? [];
  const volume = all.find((one) => one.name === picked) ?? all[0];
  const wanted = parseBytes(size) ?? 0;
  const wrong = wrongName(name, luns.data?.items.map((lun) => lun.name));
  const badSize = wrongSize(size, { atLeast: 1024 * 1024 }) ?? (wanted % Number(block) ? `This is no multiple of ${block} bytes.` : null);
  const noTarget = mapping.maps && targets.data?.items.length === 0;
  const ready = wrong === null && badSize === null && volume !== undefined && mapping.ready && !noTarget;
  return (
    <FormDialog
      title={`Create LUN ${name}`.trim()}
      onClose={onClose}
      wide
      wrong={!ready}
      preview={badSize === null && <><LunPreview volume={volume} size={wanted} reserve={reserve} /><p>{mapping.says(groups.data?.items ?? [])}</p></>}
      command={ready ? lunCommand({ name, volume: volume.name, size, block, reserve, mapping }) : undefined}
      submit={async () => {
        await ask(api.POST("/v1/luns", {
          body: { name, volume: volume?.name, size_bytes: wanted, block_size: Number(block), reserve, map: mapping.maps ? [mapping.body] : [] },
        }));
        return `LUN ${name} is there.`;
      }}
    >
      {volumes.data && all.length === 0 && <p>There is no volume to put it on. Create one first.</p>}
      {noTarget && <p>There is no target to show it at. Create one on the page Targets and initiators.</p>}
      <div className="fields">
        <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
        <Field label="Size" value={size} onChange={setSize} wrong={size ? badSize : null} placeholder="100 GiB" required />
        {all.length > 1 && <Choice label="Volume" value={volume?.name ?? ""} onChange={setPicked} options={all.map((one) => ({ id: one.name, title: one.name, detail: `${bytes(one.free_bytes ?? 0)} free` }))} />}
        <Choice label="Logical block" value={block} onChange={setBlock} options={[{ id: "512", title: "512 bytes", detail: "Every system knows it; ESXi and older Windows know no other." }, { id: "4096", title: "4096 bytes" }]} />
      </div>
      <MapFields mapping={mapping} groups={groups.data?.items ?? []} targets={targets.data?.items ?? []} nobody />
      <Check value={reserve} onChange={setReserve} help="Its writes find room however full the volume and its pool become, until a snapshot or clone shares what it has.">Reserve its space now</Check>
    </FormDialog>
  );
}

function lunCommand({ name, volume, size, block, reserve, mapping }: { name: string; volume: string; size: string; block: string; reserve: boolean; mapping: ReturnType<typeof useMapping> }) {
  const who = !mapping.maps ? "" : mapping.body.everyone ? " --everyone" : ` --group ${quote(mapping.group)}`;
  return [
    `holdfast lun create ${quote(name)} --volume ${quote(volume)} --size ${quote(size.replaceAll(" ", ""))}`,
    block === "4096" && " --block-size 4096",
    reserve && " --reserve",
    who,
    mapping.maps && mapping.target && ` --target ${quote(mapping.target)}`,
    mapping.maps && mapping.number && ` --number ${mapping.number}`,
  ].filter(Boolean).join("");
}
