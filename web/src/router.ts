// Where one is: the part of the address after `#`, so that the node needs to know one page only.
import { useSyncExternalStore } from "react";

/** A place: `/volumes/vm/files?path=/luns` has three parts and one value. */
export type Place = { path: string; parts: string[]; query: URLSearchParams };

function read(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(safeDecode);
  return { path: path || "/", parts, query: new URLSearchParams(query) };
}

/** What does not decode is taken as it is: an address that was typed wrong leads to a page that says so. */
function safeDecode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const subscribe = (listener: () => void) => {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
};

export function usePlace(): Place {
  const hash = useSyncExternalStore(subscribe, () => window.location.hash);
  return read(hash);
}

/** The address of a page; names may hold anything. */
export function to(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** The page of a volume; names of volumes are unique in their pool only. */
export function toVolume(pool: string, name: string, ...tab: string[]): string {
  return `${to("volumes", name, ...tab)}?pool=${encodeURIComponent(pool)}`;
}

export function go(address: string) {
  window.location.hash = address.replace(/^#/, "");
}
