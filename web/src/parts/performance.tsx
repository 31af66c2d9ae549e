// Performance as charts: requests, throughput and latency of one thing, now or over a span of the past.
import { useState } from "react";
import { CLIENTS, isOfQos, useSeries, type QosRates, type Series } from "../api/counters";
import { useHistory, type Span } from "../api/history";
import { Chart, type Line } from "./chart";
import { Segments } from "./controls";
import { milliseconds, number, perSecond } from "./format";
import { Wait } from "./page";

const SPANS: { id: "now" | Span; title: string }[] = [
  { id: "now", title: "Now" },
  { id: "hour", title: "1 hour" },
  { id: "day", title: "24 hours" },
  { id: "week", title: "7 days" },
  { id: "month", title: "30 days" },
];

export function Performance({ of = CLIENTS }: { of?: string }) {
  const [span, setSpan] = useState<"now" | Span>("now");
  return (
    <>
      <Segments label="Time span" value={span} onChange={setSpan} options={SPANS} />
      {span === "now" ? <Live of={of} /> : <Past of={of} span={span} />}
    </>
  );
}

function Live({ of }: { of: string }) {
  const series = useSeries(of);
  if (series.time.length === 0) return <p className="waiting" role="status">The first rates come in a moment …</p>;
  return <Charts of={of} series={series} />;
}

function Past({ of, span }: { of: string; span: Span }) {
  const history = useHistory(of, span);
  return (
    <Wait of={history}>
      {({ series, from, to, since }) =>
        series.time.length === 0 ? (
          <p className="help">Nothing is kept of that time.</p>
        ) : (
          <>
            <Charts of={of} series={series} span={{ from, to }} />
            {since !== null && since > from + 60 && <p className="help">The node has kept this since {new Date(since * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC.</p>}
          </>
        )
      }
    </Wait>
  );
}

/** A limit as a line, where there was one at any time. */
function limit(series: Series, label: string, color: "most" | "least", of: (qos: QosRates) => number | null): Line[] {
  const values = series.qos.map((qos) => (qos ? of(qos) : null));
  return values.some((value) => value !== null) ? [{ label, color, values }] : [];
}

/** A policy or flow: what it had, with what holds for it drawn over that. */
function QosCharts({ series, span }: { series: Series; span?: { from: number; to: number } }) {
  const shared = { time: series.time, span };
  const both = (read: (number | null)[], write: (number | null)[]) => read.map((value, at) => (value === null ? null : value + (write[at] ?? 0)));
  return (
    <div className="charts">
      <Chart
        title="Normalised IOPS"
        least={10}
        {...shared}
        format={(value) => number(value ?? 0)}
        lines={[
          { label: "done", color: "read", values: series.qos.map((qos) => qos?.iops ?? null) },
          ...limit(series, "maximum", "most", (qos) => qos.maximum),
          ...limit(series, "minimum", "least", (qos) => qos.minimum),
        ]}
      />
      <Chart
        title="Throughput"
        least={1024 * 1024}
        binary
        {...shared}
        format={(value) => perSecond(value ?? 0)}
        lines={[
          { label: "reads and writes", color: "read", values: both(series.readBytes, series.writeBytes) },
          ...limit(series, "maximum", "most", (qos) => qos.bandwidth),
        ]}
      />
      <Chart
        title="Time of a request"
        least={1}
        {...shared}
        format={milliseconds}
        lines={[
          { label: "held back", color: "held", values: series.qos.map((qos) => qos?.held ?? null) },
          { label: "read on disk", color: "read", values: series.readLatency },
          { label: "write on disk", color: "write", values: series.writeLatency },
        ]}
      />
    </div>
  );
}

function Charts({ of, series, span }: { of: string; series: Series; span?: { from: number; to: number } }) {
  if (isOfQos(of)) return <QosCharts series={series} span={span} />;
  const shared = { time: series.time, span };
  return (
    <div className="charts">
      <Chart
        title="IOPS"
        least={10}
        {...shared}
        format={(value) => number(value ?? 0)}
        lines={[{ label: "read", color: "read", values: series.readIops }, { label: "write", color: "write", values: series.writeIops }]}
      />
      <Chart
        title="Throughput"
        least={1024 * 1024}
        binary
        {...shared}
        format={(value) => perSecond(value ?? 0)}
        lines={[{ label: "read", color: "read", values: series.readBytes }, { label: "write", color: "write", values: series.writeBytes }]}
      />
      <Chart
        title="Latency"
        least={1}
        {...shared}
        format={milliseconds}
        lines={[{ label: "read", color: "read", values: series.readLatency }, { label: "write", color: "write", values: series.writeLatency }]}
      />
    </div>
  );
}
