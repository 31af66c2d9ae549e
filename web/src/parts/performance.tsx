// Performance as charts: requests, throughput and latency of one thing, over the last minutes.
import { CLIENTS, useSeries } from "../api/counters";
import { Chart } from "./chart";
import { milliseconds, number, perSecond } from "./format";

export function Performance({ of = CLIENTS }: { of?: string }) {
  const series = useSeries(of);
  if (series.time.length === 0) return <p className="waiting" role="status">The first rates come in a moment …</p>;
  return (
    <div className="charts">
      <Chart
        title="IOPS"
        least={10}
        time={series.time}
        format={(value) => number(value ?? 0)}
        lines={[{ label: "read", color: "read", values: series.readIops }, { label: "write", color: "write", values: series.writeIops }]}
      />
      <Chart
        title="Throughput"
        least={1024 * 1024}
        binary
        time={series.time}
        format={(value) => perSecond(value ?? 0)}
        lines={[{ label: "read", color: "read", values: series.readBytes }, { label: "write", color: "write", values: series.writeBytes }]}
      />
      <Chart
        title="Latency"
        least={1}
        time={series.time}
        format={milliseconds}
        lines={[{ label: "read", color: "read", values: series.readLatency }, { label: "write", color: "write", values: series.writeLatency }]}
      />
    </div>
  );
}
