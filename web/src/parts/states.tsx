// States as people read them: a word, a colour and a mark, never the colour alone.
import type { ReactNode } from "react";
import type { DiskState, Issue, RedundancyState, Resiliency, Severity, Status, Verdict } from "../api/types";
import { to } from "../router";
import { bytes, duration, percent } from "./format";
import { Icon, type IconName } from "./icons";
import { Told } from "./toast";

export type Tone = "good" | "busy" | "warn" | "bad" | "calm";

export function Badge({ tone, children }: { tone: Tone; children: string }) {
  const icon: Record<Tone, IconName> = { good: "check", busy: "progress", warn: "warning", bad: "critical", calm: "info" };
  return (
    <span className={`badge ${tone}`}>
      <Icon name={icon[tone]} />
      {children}
    </span>
  );
}

const REDUNDANCY: Record<RedundancyState, [Tone, string]> = {
  full: ["good", "full"],
  restoring: ["busy", "restoring"],
  reduced: ["warn", "reduced"],
  unavailable: ["bad", "unavailable"],
};
export const Redundancy = ({ state }: { state: RedundancyState }) => <Badge tone={REDUNDANCY[state][0]}>{REDUNDANCY[state][1]}</Badge>;

export const DISK_TONE: Record<DiskState, Tone> = {
  online: "good",
  spare: "calm",
  free: "calm",
  "in-use": "calm",
  retiring: "warn",
  "other-pool": "warn",
  foreign: "warn",
  missing: "bad",
  failed: "bad",
};
export const DiskBadge = ({ state }: { state: DiskState }) => <Badge tone={DISK_TONE[state]}>{state}</Badge>;

export const Online = ({ online, word }: { online: boolean; word?: string }) => (
  <Badge tone={online ? "good" : "bad"}>{word ?? (online ? "online" : "offline")}</Badge>
);

/** What a resiliency keeps, and what it costs. */
export const RESILIENCY: Record<Resiliency, { title: string; copies: number; parity: number; survives: string }> = {
  simple: { title: "Simple", copies: 1, parity: 0, survives: "One copy: a lost disk loses data." },
  mirror2: { title: "Two-way mirror", copies: 2, parity: 0, survives: "Two copies: one disk may be lost." },
  mirror3: { title: "Three-way mirror", copies: 3, parity: 0, survives: "Three copies: two disks may be lost." },
  parity1: { title: "Single parity", copies: 0, parity: 1, survives: "One column of each stripe is parity: one disk may be lost." },
  parity2: { title: "Dual parity", copies: 0, parity: 2, survives: "Two columns of each stripe are parity: two disks may be lost." },
};

/** The promise as a picture: a square for each copy; hollow where copies lack somewhere. */
export function Copies({ resiliency, state }: { resiliency: Resiliency; state: RedundancyState }) {
  const { copies, parity, title, survives } = RESILIENCY[resiliency];
  const squares = copies || 2 + parity;
  const lost = state === "full" ? 0 : state === "unavailable" ? squares : 1;
  const says = {
    full: "every copy that was promised is there",
    restoring: "copies are being restored",
    reduced: "some data has fewer copies than promised",
    unavailable: "some data cannot be read now",
  }[state];
  return (
    <span className={`copies ${REDUNDANCY[state][0]}`} role="img" aria-label={`${title}. ${survives} Now: ${says}.`} title={`${survives} Now: ${says}.`}>
      {Array.from({ length: squares }, (_, index) => (
        <span key={index} className={[index >= squares - lost ? "lost" : "", !copies && index >= 2 ? "parity" : ""].join(" ").trim() || undefined}>
          {!copies && index >= 2 ? "P" : ""}
        </span>
      ))}
    </span>
  );
}

const SEVERITY: Record<Severity, [Tone, string]> = {
  critical: ["bad", "Critical"],
  error: ["bad", "Error"],
  warning: ["warn", "Warning"],
  info: ["calm", "Info"],
};

/** Since when it is so, where that is a while, and who knows of it. */
function Known({ issue }: { issue: Issue }) {
  const age = issue.since ? Date.now() / 1000 - issue.since : 0;
  const known = issue.acknowledged;
  const parts = [
    age >= 60 ? `since ${duration(age)}` : "",
    known ? `acknowledged by ${known.by}${known.note ? `: ${known.note}` : ""}` : "",
  ].filter(Boolean);
  return parts.length > 0 && <p className="help">{parts.join("; ")}</p>;
}

/** What is wrong and what to do, in the node's order: the worst first, and last what somebody knows of. `aside` is what can be done with each. */
export function Issues({ issues, aside }: { issues: readonly Issue[]; aside?: (issue: Issue) => ReactNode }) {
  return (
    <ul className="issues">
      {issues.map((issue, index) => {
        const place = placeOf(issue.subject);
        return (
          <li key={`${issue.subject} ${index}`} className={issue.acknowledged ? "known" : undefined}>
            <Badge tone={SEVERITY[issue.severity][0]}>{SEVERITY[issue.severity][1]}</Badge>
            <div>
              <p>
                {place ? <a href={place}>{issue.subject}</a> : <strong>{issue.subject}</strong>}: <Told text={issue.detail} />
              </p>
              {issue.todo && <p className="todo"><span aria-hidden="true">→ </span><span className="hidden">What to do: </span><Told text={issue.todo} /></p>}
              <Known issue={issue} />
            </div>
            {aside?.(issue)}
          </li>
        );
      })}
    </ul>
  );
}

/** The page of what an issue is about; issues name it in words: `disk X of pool Y`, `volume V`. */
function placeOf(subject: string): string | null {
  const pool = /^(?:disk .* of )?pool (\S+)$/.exec(subject)?.[1];
  if (pool) return to("pools", pool);
  const found = /^(volume|LUN|share|target) (\S+)$/.exec(subject);
  if (!found) return subject.startsWith("disk ") ? to("disks") : null;
  const pages: Record<string, string> = { volume: "volumes", LUN: "luns", share: "shares", target: "targets" };
  const page = pages[found[1] ?? ""];
  return page && found[2] ? to(page, found[2]) : null;
}

const VERDICT: Record<Verdict, Tone> = {
  "fully-redundant": "good",
  restoring: "busy",
  reduced: "warn",
  unavailable: "bad",
  empty: "calm",
};

/** How the whole looks, as the sentence above it says: by its data where that is not as promised, else by the worst line that nobody has
 *  acknowledged. A critical one is never quiet. */
export function overall({ verdict, issues }: Pick<Status, "verdict" | "issues">): { tone: Tone; word: string } {
  const loud = issues.filter((issue) => !issue.acknowledged || issue.severity === "critical").map((issue) => issue.severity);
  const data = { tone: VERDICT[verdict], word: verdict.replaceAll("-", " ") };
  if (data.tone === "bad") return data;
  if (loud.includes("critical")) return { tone: "bad", word: "fault" };
  if (data.tone === "warn") return data;
  if (loud.includes("error")) return { tone: "bad", word: "fault" };
  if (loud.includes("warning")) return { tone: "warn", word: "warning" };
  return data;
}

/** How full something is. */
export function Fill({ label, used, kept = 0, whole, warn = 70, bad = 90 }: {
  label: string;
  used: number;
  /** Free, but kept for something. */
  kept?: number;
  whole: number;
  /** Percent in use from which on the bar is a warning, and an error. */
  warn?: number;
  bad?: number;
}) {
  const part = percent(used, whole);
  const tone = part >= bad ? "bad" : part >= warn ? "warn" : "good";
  return (
    <div className={`fill ${tone}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(part)} aria-valuetext={`${bytes(used)} of ${bytes(whole)}`}>
      <span style={{ width: `${Math.max(part, used > 0 ? 0.5 : 0)}%` }} />
      {kept > 0 && <span className="kept" style={{ width: `${percent(kept, whole)}%` }} />}
    </div>
  );
}
