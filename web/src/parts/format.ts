// Sizes, rates and times as the command line writes them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const;

/** `20.0 GiB`: three digits that count. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (unit < UNITS.length - 1 && value >= (unit === 0 ? 1000 : 999.5)) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) return `${Math.round(value)} B`;
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${UNITS[unit]}`;
}

/** Bytes in `20G`, `20 GiB`, `512` or `1.5 TiB`; null for what is no size. Units are powers of 1024, as on the command line. */
export function parseBytes(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([kmgtpe]?)i?b?\s*$/i.exec(text);
  if (!found) return null;
  const power = "kmgtpe".indexOf((found[2] ?? "").toLowerCase()) + 1;
  const count = Math.round(Number(found[1]) * 1024 ** (found[2] ? power : 0));
  return Number.isSafeInteger(count) ? count : null;
}

export const perSecond = (count: number) => `${bytes(count)}/s`;

/** `12,345`, `0.4`. */
export function number(value: number): string {
  if (value > 0 && value < 10) return value.toFixed(1).replace(/\.0$/, "");
  return Math.round(value).toLocaleString("en");
}

/** Milliseconds with as many digits as count. */
export function milliseconds(value: number | null): string {
  if (value === null) return "–";
  return `${value < 1 ? value.toFixed(3) : value < 100 ? value.toFixed(2) : value.toFixed(0)} ms`;
}

/** A duration in its two largest units: `3 min 20 s`. */
export function duration(seconds: number): string {
  const total = Math.max(0, Math.round(seconds));
  const days = Math.floor(total / 86_400);
  const hours = Math.floor(total / 3600) % 24;
  const minutes = Math.floor(total / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return `${minutes} min ${total % 60} s`;
  return `${total} s`;
}

/** A time as `2026-01-31 13:45:00`, in UTC as everywhere in Holdfast. */
export function time(unixSeconds: number): string {
  if (!unixSeconds) return "–";
  return new Date(unixSeconds * 1000).toISOString().slice(0, 19).replace("T", " ");
}

/** `1 disk`, `4 disks`. */
export function many(count: number, word: string): string {
  if (count === 1) return `1 ${word}`;
  return `${count.toLocaleString("en")} ${/[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}s`}`;
}

export function percent(part: number, whole: number): number {
  return whole > 0 ? Math.min(100, (part / whole) * 100) : 0;
}

/** The last part of a path: what people call a disk by. */
export const baseName = (path: string) => path.slice(path.lastIndexOf("/") + 1) || path;

/** How a command line takes a word that may have blanks or quotes. */
export function quote(word: string): string {
  return /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
