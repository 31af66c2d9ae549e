// The few pictures that the pages need, drawn here: nothing is fetched from anywhere.

const PATHS = {
  overview: "M3 12l9-8 9 8M6 10v10h12V10",
  disk: "M4 6h16v12H4zM4 14h16M8 17h.01M16 17h.01",
  nodes: "M4 4h7v5H4zM13 15h7v5h-7zM4 15h7v5H4zM7.500 9v6M11 17.500h2",
  pool: "M12 3c5 0 8 1.6 8 3.5S17 10 12 10 4 8.400 4 6.500 7 3 12 3zM4 6.500v11C4 19.400 7 21 12 21s8-1.600 8-3.500v-11M4 12c0 1.900 3 3.500 8 3.500s8-1.600 8-3.500",
  volume: "M4 5h16v14H4zM4 10h16M8 7.500h.01",
  lun: "M5 4h14v16H5zM9 8h6M9 12h6M9 16h2",
  target: "M12 21a9 9 0 100-18 9 9 0 000 18zM12 16a4 4 0 100-8 4 4 0 000 8z",
  share: "M3 7h7l2 2h9v10H3zM8 14h8",
  user: "M12 12a4 4 0 100-8 4 4 0 000 8zM4 20c0-4 4-6 8-6s8 2 8 6",
  snapshot: "M4 7h4l2-2h4l2 2h4v12H4zM12 16a3 3 0 100-6 3 3 0 000 6z",
  session: "M9 7H6a5 5 0 000 10h3M15 7h3a5 5 0 010 10h-3M8 12h8",
  gauge: "M4 18a9 9 0 1116 0M12 14l4-5",
  job: "M12 3a9 9 0 109 9M12 7v5l3 2",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4v6M8 14v6",
  changes: "M4 6h12M4 12h8M4 18h6M15 15l2.500 2.500L21 13",
  wand: "M4 20L15 9M14 4v3M18 8h3M17 4l1 1M19 12l1 1",
  menu: "M4 6h16M4 12h16M4 18h16",
  close: "M6 6l12 12M18 6L6 18",
  down: "M6 9l6 6 6-6",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  check: "M5 12.500l4.500 4.500L19 7",
  warning: "M12 4L2.500 20h19zM12 10v4M12 17h.01",
  critical: "M8 3h8l5 5v8l-5 5H8l-5-5V8zM12 8v5M12 16h.01",
  info: "M12 21a9 9 0 100-18 9 9 0 000 18zM12 11v5M12 8h.01",
  progress: "M20 12a8 8 0 11-3-6.200M20 3v4h-4",
  add: "M12 5v14M5 12h14",
  folder: "M3 7h7l2 2h9v10H3z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  moon: "M20 14A8 8 0 1110 4a6 6 0 0010 10z",
  out: "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4",
  copy: "M8 8h11v12H8zM5 16V4h11",
  up: "M12 20V5M6 11l6-6 6 6",
} as const;

export type IconName = keyof typeof PATHS;

/** A picture beside text that says the same; screen readers pass it by. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
