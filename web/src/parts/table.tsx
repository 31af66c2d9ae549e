// A table of things: sorted and filtered here, and with only the rows in sight on the page, so that 10,000 rows do not stall it.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState, type ReactNode } from "react";
import { Input, Label, SearchField } from "react-aria-components";
import { nodeOf } from "../api/nodes";
import { Actions, Button, type Action } from "./controls";

export type Column<T> = {
  title: string;
  /** What it sorts and filters by. */
  value: (row: T) => string | number;
  /** What is shown; the value where there is none. */
  cell?: (row: T) => ReactNode;
  /** Numbers stand to the right. */
  end?: boolean;
  /** Left out on narrow screens. */
  wide?: boolean;
  /** Sentences, which may take several lines. */
  wrap?: boolean;
};

/** From so many rows on only those in sight are made. */
const ALL = 100;
/** Height of a row in such a table, in CSS pixels; style/tables.css has the same. */
const ROW = 44;

/** Stands after the first column where rows say their node: in a cluster, where a list has what all nodes have. */
const NODE: Column<unknown> = { title: "Node", value: (row) => nodeOf(row) ?? "" };

export function Table<T>({ label, rows, columns: given, id, actions, empty, first }: {
  label: string;
  rows: readonly T[];
  columns: Column<T>[];
  id: (row: T) => string;
  actions?: (row: T) => { label: string; actions: Action[] };
  /** Said in the place of rows when there are none at all. */
  empty: ReactNode;
  /** The column that it is sorted by at first, and whether from the highest down. */
  first?: { column: number; down?: boolean };
}) {
  const inCluster = rows.some((row) => nodeOf(row) !== null);
  // It is the last by number, so that the others keep theirs when the first row with a node comes.
  const columns = useMemo(() => (inCluster ? [...given, NODE] : given), [given, inCluster]);
  const order = columns.map((_, index) => index);
  if (inCluster) order.splice(1, 0, ...order.splice(-1));
  const [sort, setSort] = useState(first ?? { column: -1, down: false });
  const [filter, setFilter] = useState("");
  const box = useRef<HTMLDivElement>(null);

  const shown = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length
      ? rows.filter((row) => {
          const text = columns.map((column) => column.value(row)).join(" ").toLowerCase();
          return words.every((word) => text.includes(word));
        })
      : [...rows];
    const by = columns[sort.column];
    if (by) {
      const order = sort.down ? -1 : 1;
      const keyed = found.map((row) => ({ row, key: by.value(row) }));
      keyed.sort((a, b) => order * compare(a.key, b.key));
      return keyed.map(({ row }) => row);
    }
    return found;
  }, [rows, columns, filter, sort.column, sort.down]);

  const large = shown.length > ALL;
  const virtual = useVirtualizer({
    count: large ? shown.length : 0,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
    enabled: large,
  });
  if (rows.length === 0) return empty;

  const items = virtual.getVirtualItems();
  const range = large
    ? items.map((item) => ({ row: shown[item.index] as T, index: item.index }))
    : shown.map((row, index) => ({ row, index }));
  const above = large ? (items[0]?.start ?? 0) : 0;
  const below = large ? virtual.getTotalSize() - (items.at(-1)?.end ?? 0) : 0;
  const width = columns.length + (actions ? 1 : 0);

  return (
    <div className="table-part">
      {rows.length > 8 && (
        <SearchField className="search" value={filter} onChange={setFilter}>
          <Label className="hidden">Filter {label}</Label>
          <Input placeholder="Filter" />
          <span className="count" role="status">
            {shown.length === rows.length ? rows.length.toLocaleString("en") : `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`}
          </span>
        </SearchField>
      )}
      <div ref={box} className={large ? "table-box large" : "table-box"} tabIndex={0} role="region" aria-label={`${label}, table`}>
        <table aria-rowcount={shown.length + 1}>
          <thead>
            <tr>
              {order.map((index) => [columns[index] as Column<T>, index] as const).map(([column, index]) => (
                <th
                  key={index}
                  scope="col"
                  className={classes(column)}
                  aria-sort={sort.column === index ? (sort.down ? "descending" : "ascending") : undefined}
                >
                  <Button look="quiet" onPress={() => setSort({ column: index, down: sort.column === index ? !sort.down : Boolean(column.end) })}>
                    {column.title}
                    <span className="sort" aria-hidden="true">{sort.column === index ? (sort.down ? "▼" : "▲") : ""}</span>
                  </Button>
                </th>
              ))}
              {actions && <th scope="col" className="row-actions"><span className="hidden">Actions</span></th>}
            </tr>
          </thead>
          <tbody>
            {above > 0 && <tr aria-hidden="true"><td colSpan={width} style={{ height: above, padding: 0 }} /></tr>}
            {range.map(({ row, index }) => {
              const offered = actions?.(row);
              return (
                <tr key={id(row)} aria-rowindex={index + 2}>
                  {order.map((index, at) => {
                    const column = columns[index] as Column<T>;
                    const content = column.cell ? column.cell(row) : column.value(row);
                    return at === 0
                      ? <th key={index} scope="row" className={classes(column)}>{content}</th>
                      : <td key={index} className={classes(column)}>{content}</td>;
                  })}
                  {actions && <td className="row-actions">{offered && <Actions label={offered.label} actions={offered.actions} />}</td>}
                </tr>
              );
            })}
            {below > 0 && <tr aria-hidden="true"><td colSpan={width} style={{ height: below, padding: 0 }} /></tr>}
          </tbody>
        </table>
        {shown.length === 0 && <p className="empty">Nothing fits “{filter}”.</p>}
      </div>
    </div>
  );
}

const collator = new Intl.Collator("en", { numeric: true });
const compare = (a: string | number, b: string | number) =>
  typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));

const classes = <T,>(column: Column<T>) => [column.end && "end", column.wide && "wide-only", column.wrap && "wrap"].filter(Boolean).join(" ") || undefined;
