// What the node says has changed, as it changes: so that what somebody else does shows at once. The looks at intervals go on beside
// it, and are all there is where nobody can be listened to.
import { useEffect } from "react";
import { queries } from "./queries";

/** Milliseconds that events are gathered before anything is asked anew: a change is often several. */
const GATHER = 250;
/** What may look different when the health does. */
const HEALTH = ["status", "pools", "volumes", "disks", "luns", "shares"];

/** The first word of a path of the API, `volumes` of `/v1/volumes/vm`: what answers are kept under. */
function keyOf(subject: string): string {
  return subject.replace(/^\/?(v1\/)?/, "").split(/[/?]/, 1)[0] ?? "";
}

/** Listens for as long as the pages are looked at. A browser has few connections for all pages of a node: hidden ones keep none. */
export function useEvents() {
  useEffect(() => {
    let source: EventSource | null = null;
    let timer: ReturnType<typeof setTimeout> | null = null;
    const changed = new Set<string>();
    const look = (...keys: string[]) => {
      keys.forEach((key) => changed.add(key));
      timer ??= setTimeout(() => {
        timer = null;
        for (const key of changed) void queries.invalidateQueries({ queryKey: [key] });
        changed.clear();
      }, GATHER);
    };
    const subject = (event: MessageEvent<string>): string => {
      try {
        return String((JSON.parse(event.data) as { subject?: unknown }).subject ?? "");
      } catch {
        return "";
      }
    };
    const listen = () => {
      if (document.hidden) {
        source?.close();
        source = null;
      } else if (!source) {
        source = new EventSource("v1/events");
        source.addEventListener("changed", (event) => look(keyOf(subject(event)), "status", "audit"));
        source.addEventListener("job", () => look("jobs", "status"));
        source.addEventListener("finding", () => look("status"));
        source.addEventListener("health", () => look(...HEALTH));
      }
    };
    listen();
    document.addEventListener("visibilitychange", listen);
    return () => {
      document.removeEventListener("visibilitychange", listen);
      source?.close();
      if (timer) clearTimeout(timer);
    };
  }, []);
}
