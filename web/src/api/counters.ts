// Performance now: the node's counters each second, and the rates that differences of them are.
import { useEffect, useSyncExternalStore } from "react";
import { api, ask } from "./client";
import type { CounterKind, Counters, ObjectCounters, OperationCounters, QosCounters } from "./types";

/** What one kind of operation did between two looks. */
export type Rate = { iops: number; bytes: number; /** Mean, in milliseconds; null when there was none. */ latency: number | null };
/** What holds for a policy or flow of QoS, normalised; null where there is no limit. */
export type Limits = { minimum: number | null; maximum: number | null; bandwidth: number | null };
/** What QoS counts of a policy or flow beside its reads and writes. */
export type QosRates = Limits & { iops: number; /** Mean, in milliseconds; null when no request was let go on. */ held: number | null };
/** What a thing did between two looks. */
export type Rates = { read: Rate; write: Rate; other: Rate; errors: number; inFlight: number; /** Of policies and flows only. */ qos: QosRates | null };
/** Rates for a chart, oldest first; null where nothing was counted, and where there was no I/O to have a latency. */
export type Series = {
  /** Unix seconds. */
  time: number[];
  readIops: (number | null)[];
  writeIops: (number | null)[];
  readBytes: (number | null)[];
  writeBytes: (number | null)[];
  readLatency: (number | null)[];
  writeLatency: (number | null)[];
  /** Of policies and flows; null at all times for others. */
  qos: (QosRates | null)[];
};

/** So many looks are kept: ten minutes of one each second. */
const KEPT = 600;
/** What clients do: LUNs and shares together. */
export const CLIENTS = "clients";
const IDLE: Rate = { iops: 0, bytes: 0, latency: null };

export const keyOf = (kind: CounterKind, name: string) => `${kind}/${name}`;
/** Whether a key is that of a policy or flow, which is counted while it is in use. */
export const isOfQos = (key: string) => key.startsWith("qos-");

/** What a policy or flow did in a time in which it was not there: nothing, under the limits that it had before. */
export const unused = (before: Limits | null | undefined): Rates => ({
  read: IDLE, write: IDLE, other: IDLE, errors: 0, inFlight: 0,
  qos: { iops: 0, held: null, minimum: before?.minimum ?? null, maximum: before?.maximum ?? null, bandwidth: before?.bandwidth ?? null },
});

class Sampler {
  private before: Counters | null = null;
  /** Whether the look before had policies and flows. */
  private hadFlows = false;
  private listeners = new Set<() => void>();
  private wanted = new Map<string, number>([[CLIENTS, 1]]);
  private series = new Map<string, Series>([[CLIENTS, none()]]);
  private timer: ReturnType<typeof setTimeout> | null = null;
  private users = 0;
  /** Rates of everything, as of the last look. */
  latest = new Map<string, Rates>();
  version = 0;

  start() {
    this.users += 1;
    if (this.users === 1) void this.look();
    return () => {
      this.users -= 1;
      if (this.users === 0 && this.timer !== null) {
        clearTimeout(this.timer);
        this.timer = null;
      }
    };
  }

  subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Keeps a chart's worth of one thing from now on; of all things that would be too much where there are 10,000. */
  want(key: string) {
    this.wanted.set(key, (this.wanted.get(key) ?? 0) + 1);
    if (!this.series.has(key)) this.series.set(key, none());
    return () => {
      const left = (this.wanted.get(key) ?? 1) - 1;
      if (left > 0) this.wanted.set(key, left);
      else {
        this.wanted.delete(key);
        this.series.delete(key);
      }
    };
  }

  seriesOf(key: string): Series {
    return this.series.get(key) ?? none();
  }

  private async look() {
    const began = performance.now();
    if (!document.hidden) {
      try {
        // Policies and flows may be ten thousands, which the node has to describe: only a chart of one asks for them.
        const flows = [...this.wanted.keys()].some(isOfQos);
        this.take(await ask(api.GET("/v1/counters", { params: { query: { flows: flows ? "true" : undefined } } })), flows);
      } catch {
        // The node is away: status says so, and the chart has a gap.
        this.before = null;
      }
    }
    if (this.users === 0) return;
    const took = performance.now() - began;
    // Looking never takes more than a tenth of the time: a node with very many objects is asked less often.
    this.timer = setTimeout(() => void this.look(), Math.max(1000 - took, took * 9));
  }

  private take(now: Counters, flows: boolean) {
    const before = this.before;
    const haveFlows = flows && this.hadFlows;
    this.before = now;
    this.hadFlows = flows;
    if (!before || before.process !== now.process) return;
    const seconds = (now.monotonic_ns - before.monotonic_ns) / 1e9;
    if (seconds <= 0) return;
    const earlier = new Map(before.items.map((item) => [keyOf(item.kind, item.name), item]));
    const latest = new Map<string, Rates>();
    const clients: Rates[] = [];
    for (const item of now.items) {
      const key = keyOf(item.kind, item.name);
      const last = earlier.get(key);
      if (!last || item.kind === "processor") continue;
      const rates = between(last, item, seconds);
      latest.set(key, rates);
      if (item.kind === "lun" || item.kind === "share") clients.push(rates);
    }
    latest.set(CLIENTS, sum(clients));
    this.latest = latest;
    const time = Date.now() / 1000;
    for (const key of this.wanted.keys()) {
      // What is not among all that there are did nothing. It may be wanted only since this look was asked for.
      const rates = latest.get(key) ?? (isOfQos(key) && haveFlows ? unused(this.seriesOf(key).qos.at(-1)) : undefined);
      if (rates) this.series.set(key, append(this.seriesOf(key), time, rates));
    }
    this.version += 1;
    this.listeners.forEach((listener) => listener());
  }
}

export const none = (): Series => ({
  time: [], readIops: [], writeIops: [], readBytes: [], writeBytes: [], readLatency: [], writeLatency: [], qos: [],
});

function append(series: Series, time: number, rates: Rates): Series {
  const add = <T,>(list: T[], value: T) => [...list.slice(-(KEPT - 1)), value];
  return {
    time: add(series.time, time),
    readIops: add(series.readIops, rates.read.iops),
    writeIops: add(series.writeIops, rates.write.iops),
    readBytes: add(series.readBytes, rates.read.bytes),
    writeBytes: add(series.writeBytes, rates.write.bytes),
    readLatency: add(series.readLatency, rates.read.latency),
    writeLatency: add(series.writeLatency, rates.write.latency),
    qos: add(series.qos, rates.qos),
  };
}

function between(before: ObjectCounters, now: ObjectCounters, seconds: number): Rates {
  return {
    read: rate(before.read, now.read, seconds),
    write: rate(before.write, now.write, seconds),
    other: rate(before.other, now.other, seconds),
    errors: errorsOf(now) - errorsOf(before),
    inFlight: now.in_flight ?? 0,
    qos: qosBetween(before, now, seconds),
  };
}

/** What QoS counted, where so many nanoseconds of waiting and normalised I/Os were added; limits are those of now. */
export function qosOf(grown: QosCounters | null | undefined, operations: number, seconds: number): QosRates | null {
  if (!grown) return null;
  return {
    iops: grown.normalized / seconds,
    held: operations > 0 ? grown.held_ns / operations / 1e6 : null,
    minimum: grown.min_iops ?? null,
    maximum: grown.max_iops ?? null,
    bandwidth: grown.max_bandwidth ?? null,
  };
}

function qosBetween(before: ObjectCounters, now: ObjectCounters, seconds: number): QosRates | null {
  if (!before.qos || !now.qos) return null;
  const operations = operationsOf(now) - operationsOf(before);
  const grown = { ...now.qos, normalized: now.qos.normalized - before.qos.normalized, held_ns: now.qos.held_ns - before.qos.held_ns };
  // A policy that nobody used for a while counts from zero again.
  return operations < 0 || grown.normalized < 0 ? qosOf({ ...grown, normalized: 0, held_ns: 0 }, 0, seconds) : qosOf(grown, operations, seconds);
}

/** Reads and writes. */
export const operationsOf = (item: ObjectCounters) => (item.read?.operations ?? 0) + (item.write?.operations ?? 0);

/** The rate of what grew by so much. */
export const rateOf = (grown: OperationCounters | null | undefined, seconds: number): Rate =>
  grown
    ? { iops: grown.operations / seconds, bytes: grown.bytes / seconds, latency: grown.operations > 0 ? grown.latency_ns / grown.operations / 1e6 : null }
    : IDLE;

function rate(before: OperationCounters | null | undefined, now: OperationCounters | null | undefined, seconds: number): Rate {
  if (!before || !now) return IDLE;
  const operations = now.operations - before.operations;
  // A thing that began anew counts from zero again.
  if (operations < 0) return IDLE;
  const grown = { operations, bytes: now.bytes - before.bytes, errors: 0, latency_ns: now.latency_ns - before.latency_ns };
  return rateOf(grown, seconds);
}

export const errorsOf = (item: ObjectCounters) =>
  (item.read?.errors ?? 0) + (item.write?.errors ?? 0) + (item.other?.errors ?? 0);

export function sum(all: Rates[]): Rates {
  const total = (of: (rates: Rates) => Rate): Rate => {
    const iops = all.reduce((sum, rates) => sum + of(rates).iops, 0);
    const time = all.reduce((sum, rates) => sum + of(rates).iops * (of(rates).latency ?? 0), 0);
    return {
      iops,
      bytes: all.reduce((sum, rates) => sum + of(rates).bytes, 0),
      latency: iops > 0 ? time / iops : null,
    };
  };
  return {
    read: total((rates) => rates.read),
    write: total((rates) => rates.write),
    other: total((rates) => rates.other),
    errors: all.reduce((sum, rates) => sum + rates.errors, 0),
    inFlight: all.reduce((sum, rates) => sum + rates.inFlight, 0),
    // Limits of several have no sum that would hold for all.
    qos: all.length === 1 ? (all[0]?.qos ?? null) : null,
  };
}

const sampler = new Sampler();

/** Looks at the counters for as long as the caller is shown. */
export function useSampling() {
  useEffect(() => sampler.start(), []);
}

/** The rates of everything as of the last look, by `keyOf`. */
export function useRates(): Map<string, Rates> {
  useSyncExternalStore(sampler.subscribe, () => sampler.version);
  return sampler.latest;
}

/** Minutes of rates of one thing: those since it was first shown; of `CLIENTS`, since the pages were opened. */
export function useSeries(key: string): Series {
  useEffect(() => sampler.want(key), [key]);
  useSyncExternalStore(sampler.subscribe, () => sampler.version);
  return sampler.seriesOf(key);
}
