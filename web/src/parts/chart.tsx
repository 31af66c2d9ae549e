// A chart over time, drawn by uPlot.
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "./theme";

/** A limit is drawn over what was done, in steps and without an area; its dashes tell it from others without colour. */
export type Line = { label: string; color: "read" | "write" | "held" | "most" | "least"; values: (number | null)[] };

const DASHES: Partial<Record<Line["color"], number[]>> = { most: [9, 4], least: [2, 4] };

const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
/** Seconds that a chart shows at least, so that the first looks do not fill it. */
const SPAN = 120;

export function Chart({ title, time, span, lines, format, least, binary = false }: {
  title: string;
  /** Unix seconds. */
  time: number[];
  /** What the chart shows of time, where that is not the last minutes up to now. */
  span?: { from: number; to: number };
  lines: Line[];
  format: (value: number | null) => string;
  /** What the scale reaches at least, so that next to nothing does not look like much. */
  least: number;
  /** Whether the marks of the scale are powers of two, as fits bytes. */
  binary?: boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  const [at, setAt] = useState<number | null>(null);
  const shape = lines.map((line) => `${line.label}:${line.color}`).join();

  useEffect(() => {
    const place = box.current;
    if (!place) return;
    const style = getComputedStyle(place);
    const ink = style.getPropertyValue("--ink-soft");
    const grid = style.getPropertyValue("--line");
    const made = new uPlot(
      {
        width: place.clientWidth,
        height: 150,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: {
          x: { time: true, auto: false },
          y: { range: (_plot, _min, max) => [0, Math.max((max ?? 0) * 1.1, least)] },
        },
        axes: [
          { stroke: ink, grid: { show: false }, ticks: { stroke: grid, width: 1 }, space: 70, values: (plot, all) => all.map((unix) => clock(unix, (plot.scales.x?.max ?? 0) - (plot.scales.x?.min ?? 0))) },
          { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { show: false }, size: 74, space: 30, ...(binary && { incrs: POWERS }), values: (_plot, all) => all.map((value) => (value === 0 ? "0" : format(value))) },
        ],
        series: [
          {},
          ...lines.map((line) => {
            const color = style.getPropertyValue(`--${line.color}`);
            const shared = { label: line.label, stroke: color, width: 2, points: { show: false }, spanGaps: false };
            const dash = DASHES[line.color];
            return dash ? { ...shared, dash, paths: uPlot.paths.stepped?.({ align: -1 }) } : { ...shared, fill: `${color}22` };
          }),
        ],
        hooks: { setCursor: [(plot) => setAt(plot.cursor.idx ?? null)] },
      },
      [[], ...lines.map(() => [])],
      place,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height: 150 }));
    watch.observe(place);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
    // The lines' values come by the next effect; only other lines or other colours need another chart.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [theme, shape]);

  useEffect(() => {
    const chart = plot.current;
    const first = time[0];
    const last = time.at(-1);
    if (!chart || first === undefined || last === undefined) return;
    chart.setData([time, ...lines.map((line) => line.values)] as uPlot.AlignedData, false);
    chart.setScale("x", span ? { min: span.from, max: span.to } : { min: Math.min(first, last - SPAN), max: last });
  });

  const shown = at !== null && at < time.length ? at : time.length - 1;
  const said = lines.map((line) => `${line.label} ${format(line.values[shown] ?? null)}`).join(", ");
  return (
    <figure className="chart">
      <figcaption>
        <strong>{title}</strong>
        {lines.map((line) => (
          <span key={line.label} className={`legend ${line.color}`}>
            {line.label} <b>{format(line.values[shown] ?? null)}</b>
          </span>
        ))}
      </figcaption>
      <div ref={box} className="plot" role="img" aria-label={`${title} ${span ? `since ${clock(span.from, span.to - span.from)}` : "of the last minutes"}; ${span ? "at its end" : "now"} ${said}`} />
    </figure>
  );
}

/** A moment, as exactly as a chart of so many seconds needs it; in UTC. */
const clock = (unix: number, seconds: number) => {
  const text = new Date(unix * 1000).toISOString();
  if (seconds > 2 * 86_400) return text.slice(5, 10);
  return seconds > 1800 ? text.slice(11, 16) : text.slice(11, 19);
};
