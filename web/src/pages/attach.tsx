// How a LUN or a share is attached from the systems that run virtual machines, with this node's own names filled in.
import { useState } from "react";
import { usePortals, useSmb, useTargets } from "../api/queries";
import type { Lun } from "../api/types";
import { Command } from "../parts/dialog";
import { Choice } from "../parts/controls";

const SYSTEMS = [
  { id: "hyper-v", title: "Hyper-V (Windows)" },
  { id: "proxmox", title: "Proxmox VE" },
  { id: "kvm", title: "KVM (libvirt, QEMU)" },
  { id: "vmware", title: "VMware ESXi" },
] as const;
type System = (typeof SYSTEMS)[number]["id"];

/** `10.0.0.1:3260` and `[::]:445` in two parts. */
function split(address: string | null | undefined): { host: string; port: string } {
  const found = /^\[?(.*?)\]?:(\d+)$/.exec(address ?? "");
  const host = found?.[1] ?? "";
  // An address for all interfaces is none that a client could use: the name in the browser leads here.
  const usable = host === "" || host === "0.0.0.0" || host === "::" ? window.location.hostname : host;
  return { host: usable, port: found?.[2] ?? "" };
}

function Pick({ system, onChange }: { system: System; onChange: (system: System) => void }) {
  return <Choice label="Attach it from" value={system} onChange={onChange} options={SYSTEMS.map((one) => ({ ...one }))} />;
}

export function AttachLun({ lun }: { lun: Lun }) {
  const portals = usePortals();
  const targets = useTargets();
  const [system, setSystem] = useState<System>("hyper-v");
  const map = lun.map?.[0];
  if (!map) return <p>No initiator sees it yet: map it to a target and a group of initiators first.</p>;
  const portal = portals.data?.items.find((one) => one.listening) ?? portals.data?.items[0];
  if (!portal) return <p>The node listens on no address for iSCSI: add a portal in the settings first.</p>;
  const { host, port } = split(portal.listening ?? portal.address);
  const target = targets.data?.items.find((one) => one.name === map.target);
  const chap = target !== undefined && target.chap_users.length > 0 && !target.chap_off;
  return (
    <div className="stack">
      <Pick system={system} onChange={setSystem} />
      {lunText(system, host, port, map.target, map.number, lun.name, chap).map(([label, text]) => <Command key={label} label={label} text={text} />)}
      {chap && <p className="help">The target asks for CHAP: USER and SECRET are one of its users.</p>}
      {map.group !== "everyone" && <p className="help">Only initiators of the group {map.group} see it: add the host’s initiator name there.</p>}
    </div>
  );
}

function lunText(system: System, host: string, port: string, iqn: string, number: number, name: string, chap: boolean): [string, string][] {
  switch (system) {
    case "hyper-v":
      return [
        ["In PowerShell, as administrator of the host", [
          "Set-Service MSiSCSI -StartupType Automatic; Start-Service MSiSCSI",
          `New-IscsiTargetPortal -TargetPortalAddress ${host} -TargetPortalPortNumber ${port}`,
          `Connect-IscsiTarget -NodeAddress ${iqn} -IsPersistent $true${chap ? " -AuthenticationType ONEWAYCHAP -ChapUsername USER -ChapSecret SECRET" : ""}`,
          "Get-Disk | Where-Object BusType -eq iSCSI | Select-Object Number, SerialNumber, Size",
        ].join("\n")],
        ["Then give the disk to a VM (or format it, for VHDX files)", "Add-VMHardDiskDrive -VMName VM -DiskNumber NUMBER   # that of this LUN in the list: the host may have others"],
      ];
    case "proxmox":
      return [
        ["On a node of the cluster", `pvesm add iscsi ${name} --portal ${host}:${port} --target ${iqn} --content none`],
        ["An LVM on it, for the disks of VMs", [`pvesm list ${name}                  # names the volume of LUN ${number}`, `pvesm add lvm ${name}-vms --vgname ${name} --base ${name}:VOLUME --shared 1 --content images`].join("\n")],
      ];
    case "kvm":
      return [
        ["The host’s own initiator", [
          `iscsiadm -m discovery -t sendtargets -p ${host}:${port}`,
          ...(chap ? [
            `iscsiadm -m node -T ${iqn} -o update -n node.session.auth.authmethod -v CHAP`,
            `iscsiadm -m node -T ${iqn} -o update -n node.session.auth.username -v USER`,
            `iscsiadm -m node -T ${iqn} -o update -n node.session.auth.password -v SECRET`,
          ] : []),
          `iscsiadm -m node -T ${iqn} -p ${host}:${port} --login`,
          `ls -l /dev/disk/by-path/*${iqn}-lun-${number}`,
        ].join("\n")],
        ["Or QEMU by itself, without the kernel", `qemu-system-x86_64 -drive file=iscsi://${chap ? "USER%SECRET@" : ""}${host}:${port}/${iqn}/${number},format=raw,if=virtio,cache=none …`],
      ];
    case "vmware":
      return [
        ["On the host (ESXi Shell)", [
          "esxcli iscsi software set --enabled=true",
          "esxcli iscsi adapter list                 # names the software adapter, as in vmhba64",
          ...(chap ? ["esxcli iscsi adapter auth chap set --adapter=vmhba64 --direction=uni --level=required --authname=USER --secret=SECRET"] : []),
          `esxcli iscsi adapter discovery sendtarget add --adapter=vmhba64 --address=${host}:${port}`,
          "esxcli storage core adapter rescan --adapter=vmhba64",
        ].join("\n")],
        ["Then", `Make a VMFS datastore on LUN ${number}, or give it to a VM as a raw device mapping.`],
      ];
  }
}

export function AttachShare({ share, user }: { share: string; user: string }) {
  const smb = useSmb();
  const [system, setSystem] = useState<System>("hyper-v");
  const listener = smb.data?.listeners.find((one) => one.listening) ?? smb.data?.listeners[0];
  if (smb.data && !listener) return <p>The node listens on no address for SMB: say one in the settings first.</p>;
  const { host, port } = split(listener?.listening ?? listener?.address);
  const own = port !== "" && port !== "445";
  return (
    <div className="stack">
      <Pick system={system} onChange={setSystem} />
      {shareText(system, host, port, share, user).map(([label, text]) => <Command key={label} label={label} text={text} />)}
      {own && system === "hyper-v" && <p className="warn-text">Windows knows SMB’s own port only: this node serves shares on {port}. Let it listen on 445 (Settings) before Windows comes.</p>}
    </div>
  );
}

function shareText(system: System, host: string, port: string, share: string, user: string): [string, string][] {
  const own = port !== "" && port !== "445" ? `,port=${port}` : "";
  switch (system) {
    case "hyper-v":
      return [
        ["In PowerShell: see that it is reached", [`New-SmbMapping -RemotePath \\\\${host}\\${share} -UserName ${user} -Password (Read-Host)`, `Get-ChildItem \\\\${host}\\${share}`].join("\n")],
        ["A VM whose files are on it (the host’s computer account needs a right, too)", `New-VM -Name VM -Generation 2 -MemoryStartupBytes 2GB -Path \\\\${host}\\${share} -NewVHDPath \\\\${host}\\${share}\\VM\\disk.vhdx -NewVHDSizeBytes 60GB`],
      ];
    case "proxmox":
      return [["On a node of the cluster", `pvesm add cifs ${share} --server ${host} --share ${share} --username ${user} --password PASSWORD --smbversion 3.11 --content images${own ? ` --options ${own.slice(1)}` : ""}`]];
    case "kvm":
      return [["The host’s kernel", [`mkdir -p /mnt/${share}`, `mount -t cifs //${host}/${share} /mnt/${share} -o username=${user},vers=3.1.1,seal,persistenthandles${own}`].join("\n")]];
    case "vmware":
      return [["ESXi knows no SMB", "Give ESXi a LUN instead: it attaches iSCSI and NFS only."]];
  }
}
