// Performance as charts: requests, throughput and latency of one thing, now or over a span of the past.
import { useState } from "react";
import { CLIENTS, useSeries, type Series } from "../api/counters";
import { useHistory, type Span } from "../api/history";
import { Chart } from "./chart";
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
  return <Charts series={series} />;
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
            <Charts series={series} span={{ from, to }} />
            {since !== null && since > from + 60 && <p className="help">The node has kept this since {new Date(since * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC.</p>}
          </>
        )
      }
    </Wait>
  );
}

function Charts({ series, span }: { series: Series; span?: { from: number; to: number } }) {
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
