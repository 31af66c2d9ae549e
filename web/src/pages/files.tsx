// The files of a volume, folder by folder.
import { useRef, useState } from "react";
import { api, ask, problemOf } from "../api/client";
import { refresh, useFiles } from "../api/queries";
import type { FileEntry } from "../api/types";
import { Button, Check, Field, wrongSize, type Action } from "../parts/controls";
import { FormDialog, ReadDialog, destroy, perform } from "../parts/dialog";
import { bytes, many, parseBytes, time } from "../parts/format";
import { Icon } from "../parts/icons";
import { Empty, Facts, Wait } from "../parts/page";
import { Table, type Column } from "../parts/table";
import { tell, tellProblem } from "../parts/toast";
import { to } from "../router";

/** Bytes that go in one request when a file is sent. */
const PIECE = 4 * 1024 * 1024;

const join = (folder: string, name: string) => `${folder === "/" ? "" : folder}/${name}`;
const at = (volume: string, path: string) => `${to("volumes", volume, "files")}?path=${encodeURIComponent(path)}`;
const contentOf = (volume: string, path: string) => `v1/volumes/${encodeURIComponent(volume)}/content?path=${encodeURIComponent(path)}`;

type Dialogs = { what: "create"; folder: boolean } | { what: "rename" | "clone" | "space"; entry: FileEntry } | null;

export function Files({ volume, path }: { volume: string; path: string }) {
  const files = useFiles(volume, path);
  const [open, setOpen] = useState<Dialogs>(null);
  const sent = useRef<HTMLInputElement>(null);
  const [sending, setSending] = useState<string | null>(null);
  const folders = path.split("/").filter(Boolean);
  const close = () => setOpen(null);

  async function send(file: File) {
    const target = join(path, file.name);
    try {
      for (let offset = 0; offset === 0 || offset < file.size; offset += PIECE) {
        setSending(`${file.name}: ${bytes(offset)} of ${bytes(file.size)}`);
        const url = `${contentOf(volume, target)}&offset=${offset}${offset === 0 ? "&truncate=true" : ""}`;
        const response = await fetch(url, {
          method: "PUT",
          headers: { "content-type": "application/octet-stream", "X-Holdfast-Request": "1" },
          body: file.slice(offset, offset + PIECE),
        });
        if (!response.ok) throw await problemOf(response);
      }
      tell(`${file.name} is at ${volume}:${target}, durably.`);
    } catch (error) {
      tellProblem(error);
    } finally {
      setSending(null);
      await refresh();
    }
  }

  const columns: Column<FileEntry>[] = [
    {
      title: "Name",
      wrap: true,
      value: (row) => row.name,
      cell: (row) => (
        <span className="file-name">
          <Icon name={row.kind === "directory" ? "folder" : "file"} />
          {row.kind === "directory"
            ? <a href={at(volume, row.path)}>{row.name}<span className="hidden"> (folder)</span></a>
            : row.name}
        </span>
      ),
    },
    { title: "Size", value: (row) => (row.kind === "directory" ? -1 : row.size_bytes), cell: (row) => (row.kind === "directory" ? "–" : bytes(row.size_bytes)), end: true },
    { title: "Takes", value: (row) => row.allocated_bytes, cell: (row) => (row.kind === "directory" ? "–" : bytes(row.allocated_bytes)), end: true, wide: true },
    { title: "Written (UTC)", value: (row) => row.written, cell: (row) => time(row.written), wide: true },
    { title: "Created (UTC)", value: (row) => row.created, cell: (row) => time(row.created), wide: true },
  ];
  const actions = (row: FileEntry) => {
    const list: Action[] = [];
    if (row.kind === "file") list.push({ id: "get", title: "Download", needs: "GET /v1/volumes/{volume}/content", run: () => download(volume, row) });
    list.push({ id: "space", title: "What it takes …", needs: "GET /v1/volumes/{volume}/space", run: () => setOpen({ what: "space", entry: row }) });
    list.push(
      { id: "rename", title: "Rename or move …", needs: "POST /v1/volumes/{volume}/rename", run: () => setOpen({ what: "rename", entry: row }) },
      { id: "clone", title: "Clone …", needs: "POST /v1/volumes/{volume}/clone", run: () => setOpen({ what: "clone", entry: row }) },
      {
        id: "delete",
        title: "Delete …", needs: "DELETE /v1/volumes/{volume}/files",
        danger: true,
        run: () => destroy({
          title: `Delete ${row.path}`,
          button: "Delete",
          call: (confirm) => ask(api.DELETE("/v1/volumes/{volume}/files", { params: { path: { volume }, query: { path: row.path } }, body: { confirm } })),
        }),
      },
    );
    return { label: `Actions for ${row.name}`, actions: list };
  };

  return (
    <>
      <div className="page-head">
        <nav className="crumbs" aria-label="Folders">
          <a href={at(volume, "/")}>{volume}:/</a>
          {folders.map((folder, index) => {
            const here = `/${folders.slice(0, index + 1).join("/")}`;
            return (
              <span key={here}>
                <a href={at(volume, here)} aria-current={index === folders.length - 1 ? "page" : undefined}>{folder}</a>
                {index < folders.length - 1 && " / "}
              </span>
            );
          })}
        </nav>
        <div className="page-actions">
            <Button needs="POST /v1/volumes/{volume}/files" icon="folder" onPress={() => setOpen({ what: "create", folder: true })}>New folder</Button>
            <Button needs="POST /v1/volumes/{volume}/files" icon="file" onPress={() => setOpen({ what: "create", folder: false })}>New file</Button>
            <Button needs="PUT /v1/volumes/{volume}/content" icon="up" isDisabled={sending !== null} onPress={() => sent.current?.click()}>Upload</Button>
            <input
              ref={sent}
              type="file"
              hidden
              onChange={(event) => {
                const file = event.target.files?.[0];
                event.target.value = "";
                if (file) void send(file);
              }}
            />
          </div>
      </div>
      {sending && <p role="status">Sending {sending} …</p>}
      <Wait of={files}>
        {({ items }) => (
          <Table
            label={`Files in ${path}`}
            rows={items}
            columns={columns}
            id={(row) => row.path}
            actions={actions}
            first={{ column: 0 }}
            empty={<Empty title="This folder is empty." />}
          />
        )}
      </Wait>
      {open?.what === "create" && <CreateDialog volume={volume} folder={path} directory={open.folder} onClose={close} />}
      {open?.what === "rename" && <RenameDialog volume={volume} entry={open.entry} onClose={close} />}
      {open?.what === "clone" && <CloneDialog volume={volume} entry={open.entry} onClose={close} />}
      {open?.what === "space" && <SpaceDialog volume={volume} entry={open.entry} onClose={close} />}
    </>
  );
}

/** Largest piece that is asked for at once, and the largest file that a page keeps together in memory. */
const LARGEST = 256 * 1024 * 1024;

/** Fetches a file in pieces and hands it to the browser. */
function download(volume: string, entry: FileEntry) {
  if (entry.size_bytes > LARGEST) {
    tellProblem(new TooLarge(`${entry.name} has ${bytes(entry.size_bytes)}: more than a page can hand over at once. Use a share, or \`holdfast file get ${volume}:${entry.path} FILE\`.`));
    return;
  }
  void (async () => {
    const pieces: BlobPart[] = [];
    try {
      for (let offset = 0; offset < entry.size_bytes; offset += PIECE) {
        const len = Math.min(PIECE, entry.size_bytes - offset);
        const response = await fetch(`${contentOf(volume, entry.path)}&offset=${offset}&len=${len}`);
        if (!response.ok) throw await problemOf(response);
        pieces.push(await response.arrayBuffer());
      }
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(pieces));
      link.download = entry.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    } catch (error) {
      tellProblem(error);
    }
  })();
}

class TooLarge extends Error {}

function CreateDialog({ volume, folder, directory, onClose }: { volume: string; folder: string; directory: boolean; onClose: () => void }) {
  const [name, setName] = useState("");
  const [size, setSize] = useState(directory ? "0" : "");
  const [reserve, setReserve] = useState(false);
  const wrong = name.trim() === "" ? "Give it a name." : /[/\\]/.test(name) ? "A name has no slashes." : null;
  const badSize = directory ? null : wrongSize(size, { atLeast: 0 });
  return (
    <FormDialog
      title={directory ? "New folder" : "New file"}
      onClose={onClose}
      wrong={wrong !== null || badSize !== null}
      preview={wrong === null && badSize === null && <p>{volume}:{join(folder, name)} is made{directory ? "." : `, with ${bytes(parseBytes(size) ?? 0)} of zeros${reserve ? ", all of it reserved" : ""}.`}</p>}
      submit={async () => {
        await ask(api.POST("/v1/volumes/{volume}/files", {
          params: { path: { volume } },
          body: { path: join(folder, name), kind: directory ? "directory" : "file", size_bytes: directory ? undefined : (parseBytes(size) ?? undefined), reserve: reserve && !directory },
        }));
        return `${name} is there.`;
      }}
    >
      <Field label="Name" value={name} onChange={setName} wrong={name ? wrong : null} required autoFocus />
      {!directory && <Field label="Size" value={size} onChange={setSize} wrong={size ? badSize : null} placeholder="0" required />}
      {!directory && <Check value={reserve} onChange={setReserve}>Reserve its space now</Check>}
    </FormDialog>
  );
}

const wrongPath = (path: string) => (path.startsWith("/") && path.length > 1 ? null : "Write the whole path, as in /folder/name.");

function RenameDialog({ volume, entry, onClose }: { volume: string; entry: FileEntry; onClose: () => void }) {
  const [target, setTarget] = useState(entry.path);
  const wrong = wrongPath(target) ?? (target === entry.path ? "This is its name now." : null);
  return (
    <FormDialog
      title={`Rename ${entry.name}`}
      button="Rename"
      onClose={onClose}
      wrong={wrong !== null}
      preview={wrong === null && <p>{entry.path} becomes {target}. LUNs and shares that name the old path do not follow.</p>}
      submit={async () => {
        await ask(api.POST("/v1/volumes/{volume}/rename", { params: { path: { volume } }, body: { from: entry.path, to: target } }));
        return `It is called ${target} now.`;
      }}
    >
      <Field label="New path" value={target} onChange={setTarget} wrong={target === entry.path ? null : wrong} required autoFocus />
    </FormDialog>
  );
}

function CloneDialog({ volume, entry, onClose }: { volume: string; entry: FileEntry; onClose: () => void }) {
  const [target, setTarget] = useState(`${entry.path}-clone`);
  const wrong = wrongPath(target);
  return (
    <FormDialog
      title={`Clone ${entry.name}`}
      button="Clone"
      onClose={onClose}
      wrong={wrong !== null}
      preview={<p>{target} has the same content and shares its space: only what is written to either of them takes more.</p>}
      submit={async () => {
        const where = { params: { path: { volume } }, body: { from: entry.path, to: target } };
        if (entry.kind === "directory") await ask(api.POST("/v1/volumes/{volume}/tree-clone", where));
        else await ask(api.POST("/v1/volumes/{volume}/clone", where));
        return `${target} is there.`;
      }}
    >
      <Field label="Path of the clone" value={target} onChange={setTarget} wrong={wrong} required autoFocus />
    </FormDialog>
  );
}

function SpaceDialog({ volume, entry, onClose }: { volume: string; entry: FileEntry; onClose: () => void }) {
  const [said, setSaid] = useState<[string, string][] | null>(null);
  return (
    <ReadDialog title={`What ${entry.name} takes`} onClose={onClose}>
      <p>What a file or folder takes beyond what others have, too. In a large folder this reads much.</p>
      {said ? <Facts facts={said} /> : (
        <div className="buttons">
          <Button
            look="primary"
            onPress={() => void perform(async () => {
              const use = await ask(api.GET("/v1/volumes/{volume}/space", { params: { path: { volume }, query: { path: entry.path } } }));
              setSaid([
                ["Files", many(use.files, "file")],
                ["Sizes added up", bytes(use.logical_bytes)],
                ["Takes", bytes(use.allocated_bytes)],
                ["That no other has", bytes(use.unique_bytes)],
                ["Shared with others", bytes(use.shared_bytes)],
              ]);
            }, "Counted.")}
          >
            Count
          </Button>
        </div>
      )}
    </ReadDialog>
  );
}
