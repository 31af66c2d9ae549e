// What the pages look at, and how often. One place, so that two pages that show the same thing ask once.
import { QueryClient, keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";
import { ProblemError, api, ask } from "./client";
import type { OnNode } from "./nodes";
import { LEAST_ROLE } from "./roles";
import type { Role } from "./types";

/** Milliseconds between looks: at what changes by itself, and at what only people change. */
const OFTEN = 2_000;
const SELDOM = 10_000;

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // A problem is an answer, not something to ask again for at once; the next look comes by itself.
      retry: false,
      refetchIntervalInBackground: false,
      staleTime: 1_000,
      placeholderData: keepPreviousData,
    },
  },
});

export const useStatus = () =>
  useQuery({ queryKey: ["status"], queryFn: () => ask(api.GET("/v1/status")), refetchInterval: OFTEN });
/** Tells whether a thing is at the node that is asked: its counters are of its own things only. */
export function useIsHere(): (row: OnNode) => boolean {
  const here = useStatus().data?.node;
  return ({ node }) => !node || node === here;
}
export const useJobs = () =>
  useQuery({ queryKey: ["jobs"], queryFn: () => ask(api.GET("/v1/jobs")), refetchInterval: OFTEN });
export const useDisks = () =>
  useQuery({ queryKey: ["disks"], queryFn: () => ask(api.GET("/v1/disks")), refetchInterval: OFTEN });
export const usePools = () =>
  useQuery({ queryKey: ["pools"], queryFn: () => ask(api.GET("/v1/pools")), refetchInterval: OFTEN });
export const usePool = (pool: string) =>
  useQuery({
    queryKey: ["pools", pool],
    queryFn: () => ask(api.GET("/v1/pools/{pool}", { params: { path: { pool } } })),
    refetchInterval: OFTEN,
    placeholderData: undefined,
  });
/** All pools with their disks and spaces. */
export function usePoolDetails() {
  const pools = usePools();
  const names = pools.data?.items.map((pool) => pool.name) ?? [];
  const details = useQueries({
    queries: names.map((pool) => ({
      queryKey: ["pools", pool],
      queryFn: () => ask(api.GET("/v1/pools/{pool}", { params: { path: { pool } } })),
      refetchInterval: OFTEN,
    })),
  });
  return { pools, details };
}
export const useVolumes = () =>
  useQuery({ queryKey: ["volumes"], queryFn: () => ask(api.GET("/v1/volumes")), refetchInterval: OFTEN });
export const useFiles = (volume: string, path: string) =>
  useQuery({
    queryKey: ["volumes", volume, "files", path],
    queryFn: () => ask(api.GET("/v1/volumes/{volume}/files", { params: { path: { volume }, query: { path } } })),
    refetchInterval: SELDOM,
    placeholderData: undefined,
  });
export const useLuns = () =>
  useQuery({ queryKey: ["luns"], queryFn: () => ask(api.GET("/v1/luns")), refetchInterval: SELDOM });
export const useTargets = () =>
  useQuery({ queryKey: ["targets"], queryFn: () => ask(api.GET("/v1/targets")), refetchInterval: SELDOM });
export const useInitiatorGroups = () =>
  useQuery({
    queryKey: ["initiator-groups"],
    queryFn: () => ask(api.GET("/v1/initiator-groups")),
    refetchInterval: SELDOM,
  });
export const usePortals = () =>
  useQuery({ queryKey: ["portals"], queryFn: () => ask(api.GET("/v1/portals")), refetchInterval: SELDOM });
export const useIscsi = () => useQuery({ queryKey: ["iscsi"], queryFn: () => ask(api.GET("/v1/iscsi")) });
export const useShares = () =>
  useQuery({ queryKey: ["shares"], queryFn: () => ask(api.GET("/v1/shares")), refetchInterval: SELDOM });
export const useUsers = () =>
  useQuery({ queryKey: ["users"], queryFn: () => ask(api.GET("/v1/users")), refetchInterval: SELDOM });
export const useUserGroups = () =>
  useQuery({ queryKey: ["user-groups"], queryFn: () => ask(api.GET("/v1/user-groups")), refetchInterval: SELDOM });
export const useSmb = () =>
  useQuery({ queryKey: ["smb"], queryFn: () => ask(api.GET("/v1/smb")), refetchInterval: SELDOM });
export const useSessions = () =>
  useQuery({ queryKey: ["sessions"], queryFn: () => ask(api.GET("/v1/sessions")), refetchInterval: OFTEN });
export const useOpens = () =>
  useQuery({ queryKey: ["opens"], queryFn: () => ask(api.GET("/v1/opens")), refetchInterval: OFTEN });
export const usePolicies = () =>
  useQuery({ queryKey: ["qos", "policies"], queryFn: () => ask(api.GET("/v1/qos/policies")), refetchInterval: OFTEN });
export const useFlows = () =>
  useQuery({ queryKey: ["qos", "flows"], queryFn: () => ask(api.GET("/v1/qos/flows")), refetchInterval: OFTEN });
export const useQosVolumes = () =>
  useQuery({ queryKey: ["qos", "volumes"], queryFn: () => ask(api.GET("/v1/qos/volumes")), refetchInterval: OFTEN });
export const useQos = () => useQuery({ queryKey: ["qos"], queryFn: () => ask(api.GET("/v1/qos")) });
export const useCache = () =>
  useQuery({ queryKey: ["cache"], queryFn: () => ask(api.GET("/v1/cache")), refetchInterval: OFTEN });
export const useSnapshots = (volume: string) =>
  useQuery({
    queryKey: ["volumes", volume, "snapshots"],
    queryFn: () => ask(api.GET("/v1/volumes/{volume}/snapshots", { params: { path: { volume } } })),
    refetchInterval: SELDOM,
    placeholderData: undefined,
  });
export const useSchedules = (volume: string) =>
  useQuery({
    queryKey: ["volumes", volume, "schedules"],
    queryFn: () => ask(api.GET("/v1/volumes/{volume}/snapshot-schedules", { params: { path: { volume } } })),
    refetchInterval: SELDOM,
    placeholderData: undefined,
  });

export const useClusterPlace = () =>
  useQuery({ queryKey: ["cluster", "place"], queryFn: () => ask(api.GET("/v1/cluster/place")), refetchInterval: OFTEN });
export const useCluster = () =>
  useQuery({ queryKey: ["cluster"], queryFn: () => ask(api.GET("/v1/cluster")), refetchInterval: OFTEN });
export const useHttp = () =>
  useQuery({ queryKey: ["http"], queryFn: () => ask(api.GET("/v1/http")), refetchInterval: SELDOM });
export const useNotifiers = (wanted: boolean) =>
  useQuery({ queryKey: ["notifiers"], queryFn: () => ask(api.GET("/v1/notifiers")), refetchInterval: SELDOM, enabled: wanted });
export const useTokens = (wanted: boolean) =>
  useQuery({ queryKey: ["tokens"], queryFn: () => ask(api.GET("/v1/tokens")), refetchInterval: SELDOM, enabled: wanted });
export const useAudit = (limit: number, wanted: boolean) =>
  useQuery({
    queryKey: ["audit", limit],
    queryFn: () => ask(api.GET("/v1/audit", { params: { query: { limit: String(limit) } } })),
    refetchInterval: OFTEN,
    enabled: wanted,
  });

/** Who is using the pages, and what they may do. */
export type Me = { user: string; role: Role; local: boolean };

/** An operation of the API, as in `POST /v1/pools`. */
export type Operation = keyof typeof LEAST_ROLE;
const ROLES: readonly Role[] = ["metrics", "viewer", "operator", "administrator"];

/** Tells whether this user may ask for an operation. Whoever may not is not offered it; the node refuses in any case. */
export function useMay(): (operation: Operation) => boolean {
  // It only listens: the frame asks. A button that asked anew would make the login page ask for ever.
  const role = useQuery({ queryKey: ["me"], queryFn: whoAmI, enabled: false }).data?.role;
  return (operation) => role !== undefined && ROLES.indexOf(role) >= ROLES.indexOf(LEAST_ROLE[operation]);
}

/** Asks who this is. Whoever reaches the node's Unix socket is its administrator and has no name there. */
export async function whoAmI(): Promise<Me> {
  let response: Response;
  try {
    response = await fetch("v1/me", { headers: { accept: "application/json" } });
  } catch {
    await ask(Promise.reject(new TypeError("no answer")));
    throw new Error("unreachable");
  }
  if (response.status === 404) return { user: "local", role: "administrator", local: true };
  if (!response.ok) throw new ProblemError({ title: "Log in", detail: "The node wants to know who you are.", status: response.status });
  const me = (await response.json()) as { user: string; role: Role; proof: string };
  return { user: me.user, role: me.role, local: me.proof !== "session" };
}
export const useMe = () => useQuery({ queryKey: ["me"], queryFn: whoAmI, staleTime: 60_000, placeholderData: undefined });

/** Looks at everything again, after a change. */
export const refresh = () => queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "me" });
