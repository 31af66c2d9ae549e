// Performance then: what the node has kept of its counters, as the series of a chart.
import { useQuery } from "@tanstack/react-query";
import { CLIENTS, errorsOf, isOfQos, none, operationsOf, qosOf, rateOf, sum, unused, type Rates, type Series } from "./counters";
import { api, ask } from "./client";
import type { History, ObjectCounters } from "./types";

/** Spans that can be looked back on, and their length in seconds. */
export const SPANS = { hour: 3600, day: 86_400, week: 7 * 86_400, month: 30 * 86_400 } as const;
export type Span = keyof typeof SPANS;
/** A chart is some 700 points wide. */
const POINTS = 720;

/** What one thing did in a span that ends now. It is asked for anew as often as a step ends, but not more than each ten seconds. */
export function useHistory(key: string, span: Span | null) {
  const seconds = span ? SPANS[span] : 0;
  const step = Math.max(1, Math.ceil(seconds / POINTS));
  return useQuery({
    queryKey: ["history", key, span],
    enabled: span !== null,
    refetchInterval: Math.max(10, step) * 1000,
    queryFn: async (): Promise<{ series: Series; from: number; to: number; since: number | null }> => {
      const to = Date.now();
      const from = to - seconds * 1000;
      const [kind, name] = key === CLIENTS ? ["lun,share", undefined] : [key.slice(0, key.indexOf("/")), key.slice(key.indexOf("/") + 1)];
      const sums = name === undefined ? "true" : undefined;
      const history = await ask(
        api.GET("/v1/history", { params: { query: { from_unix_ms: String(from), to_unix_ms: String(to), kind, name, sum: sums } } }),
      );
      const since = history.since_unix_ms ? history.since_unix_ms / 1000 : null;
      return { series: seriesOf(history, name, isOfQos(key)), from: from / 1000, to: to / 1000, since };
    },
  });
}

const grown = (item: ObjectCounters, seconds: number): Rates => ({
  read: rateOf(item.read, seconds),
  write: rateOf(item.write, seconds),
  other: rateOf(item.other, seconds),
  errors: errorsOf(item),
  inFlight: item.in_flight ?? 0,
  qos: qosOf(item.qos, operationsOf(item), seconds),
});

/** A step that is not there is a gap; a thing that is not in a step did nothing, under the limits that it had before. */
function seriesOf(history: History, name: string | undefined, ofQos: boolean): Series {
  const series = none();
  let limits: Rates["qos"] = null;
  let last: number | null = null;
  for (const step of history.steps) {
    const time = step.time_unix_ms / 1000;
    if (last !== null && time - last > history.step_seconds * 1.5) add(series, last + history.step_seconds, null);
    const items = step.items.filter((item) => name === undefined || item.name === name);
    // What is not there beside the sum of others may be one of these.
    const unknown = name !== undefined && items.length === 0 && step.items.some((item) => item.name === "_Others");
    const idle = ofQos && items.length === 0;
    const rates: Rates | null = step.seconds > 0 && !unknown ? (idle ? unused(limits) : sum(items.map((item) => grown(item, step.seconds)))) : null;
    limits = rates?.qos ?? limits;
    add(series, time, rates);
    last = time;
  }
  return series;
}

function add(series: Series, time: number, rates: Rates | null) {
  series.time.push(time);
  series.readIops.push(rates?.read.iops ?? null);
  series.writeIops.push(rates?.write.iops ?? null);
  series.readBytes.push(rates?.read.bytes ?? null);
  series.writeBytes.push(rates?.write.bytes ?? null);
  series.readLatency.push(rates?.read.latency ?? null);
  series.writeLatency.push(rates?.write.latency ?? null);
  series.qos.push(rates?.qos ?? null);
}

