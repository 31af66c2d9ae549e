// Is the data safe, is performance kept, does space last? In this order, at one look.
import { useState } from "react";
import { api, ask } from "../api/client";
import { usePools, useStatus } from "../api/queries";
import type { Issue, PoolForecast, Status } from "../api/types";
import { Button, ButtonLink, Field } from "../parts/controls";
import { FormDialog, perform } from "../parts/dialog";
import { bytes, duration, many, percent } from "../parts/format";
import { Icon, type IconName } from "../parts/icons";
import { Progress } from "../parts/jobs";
import { Card, Page, Wait } from "../parts/page";
import { Performance } from "../parts/performance";
import { Fill, Issues, overall, type Tone } from "../parts/states";
import { to } from "../router";

const MARK: Record<Tone, IconName> = { good: "check", busy: "progress", warn: "warning", bad: "critical", calm: "info" };

export function Overview() {
  const status = useStatus();
  return (
    <Page title="Overview">
      <Wait of={status}>
        {(now) => (
          <div className="overview">
            <Health status={now} />
            <div className="two">
              <Capacity status={now} />
              <Jobs status={now} />
            </div>
            <Card title="Performance" aside={<span className="help">what clients do with LUNs and shares</span>}>
              <Performance />
            </Card>
            <Counts status={now} />
            <p className="node-line">
              Node {now.node}, Holdfast {now.version}, up {duration(now.uptime_seconds)}, disk I/O by {now.io_engine}
              {now.ready ? "" : ", still starting"}
            </p>
          </div>
        )}
      </Wait>
    </Page>
  );
}

/** The button of a line: that somebody knows of it, or takes that back. */
function Acknowledge({ issue, ask: open }: { issue: Issue; ask: () => void }) {
  const id = issue.id;
  if (!id || !issue.since) return null;
  return issue.acknowledged ? (
    <Button
      look="quiet"
      needs="POST /v1/findings/{finding}/unacknowledge"
      aria-label={`Take back the acknowledgement: ${issue.subject}`}
      onPress={() => void perform(() => ask(api.POST("/v1/findings/{finding}/unacknowledge", { params: { path: { finding: id } } })), "It is not acknowledged any more.")}
    >
      Take back
    </Button>
  ) : (
    <Button look="quiet" needs="POST /v1/findings/{finding}/acknowledge" aria-label={`Acknowledge: ${issue.subject}`} onPress={open}>Acknowledge …</Button>
  );
}

function AcknowledgeDialog({ issue, onClose }: { issue: Issue; onClose: () => void }) {
  const [note, setNote] = useState("");
  return (
    <FormDialog
      title={`Acknowledge: ${issue.subject}`}
      onClose={onClose}
      button="Acknowledge"
      wrong={false}
      submit={async () => {
        await ask(api.POST("/v1/findings/{finding}/acknowledge", { params: { path: { finding: issue.id ?? "" } }, body: { note } }));
        return "It is acknowledged until it clears or gets worse.";
      }}
    >
      <p>It stays in the list, last, and does not make the sentence above it worse, until it clears or gets worse. What the data is, and what cannot be read, is said all the same.</p>
      <Field label="Note for others" value={note} onChange={setNote} help="Who sees to it, and when." autoFocus />
    </FormDialog>
  );
}

function Health({ status }: { status: Status }) {
  const { tone } = overall(status);
  // The worst matters at once, notes do not.
  const [known, setKnown] = useState<Issue | null>(null);
  const quiet = status.issues.every((issue) => issue.severity === "info");
  return (
    <section className={`card health ${tone}`} aria-label="Health">
      <div className="sentence" role="status">
        <Icon name={MARK[tone]} />
        <p>{status.summary}</p>
      </div>
      {status.issues.length > 0 && <Issues issues={status.issues} aside={(issue) => <Acknowledge issue={issue} ask={() => setKnown(issue)} />} />}
      {known && <AcknowledgeDialog issue={known} onClose={() => setKnown(null)} />}
      {status.issues.length === 0 && status.verdict === "fully-redundant" && <p className="help">There is nothing to do.</p>}
      {status.verdict === "empty" && quiet && (
        <p><ButtonLink needs="POST /v1/pools" href={to("setup")} look="primary" icon="wand">Set up storage</ButtonLink></p>
      )}
    </section>
  );
}

function Capacity({ status }: { status: Status }) {
  const pools = usePools();
  const used = status.capacity_bytes - status.free_bytes;
  return (
    <Card title="Capacity" aside={<a href={to("pools")}>{many(status.counts.pools, "pool")}</a>}>
      {status.capacity_bytes === 0 ? (
        <p className="help">{status.counts.pools === 0 ? "There is no pool yet." : "No pool can be looked into now."}</p>
      ) : (
        <>
          <p className="figure">{bytes(status.free_bytes)} <small>free of {bytes(status.capacity_bytes)}</small></p>
          <Fill label="Capacity in use" used={used} whole={status.capacity_bytes} />
          <ul className="plain-list">
            {pools.data?.items.slice(0, 6).map((pool) => (
              <li key={pool.guid}>
                <a href={to("pools", pool.name)}>{pool.name}</a>
                <span>
                  {bytes(pool.free_bytes)} free, {percent(pool.allocated_bytes, pool.capacity_bytes).toFixed(0)} % in use
                  {pool.forecast && <small className="help"> {outlook(pool.forecast)}</small>}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
      <Without status={status} />
    </Card>
  );
}

/** The pools that the figures are without: figures that have become smaller do not mean that something is gone. */
function Without({ status }: { status: Status }) {
  const without = status.not_counted ?? [];
  return without.length > 0 && <p className="warn-text">Without {without.map((pool) => `${pool.pool} (${pool.why})`).join(", ")}.</p>;
}

/** When a pool will be full, in a few words. */
function outlook({ full_in_days: days, growth_bytes_per_day: growth }: PoolForecast): string {
  if (days !== null && days !== undefined) return `full in about ${many(days, "day")} at ${bytes(growth)} a day`;
  return growth < 0 ? `empties by ${bytes(-growth)} a day` : "does not grow";
}

function Jobs({ status }: { status: Status }) {
  const running = status.jobs.filter((job) => job.state === "running");
  return (
    <Card title="Running jobs" aside={<a href={to("jobs")}>all jobs</a>}>
      {running.length === 0 && <p className="help">Nothing is being repaired, moved or checked.</p>}
      {/* Jobs of other nodes say theirs in the subject; numbers alone are not unique. */}
      {running.slice(0, 5).map((job) => <Progress key={`${job.subject} ${job.id}`} job={job} />)}
    </Card>
  );
}

function Counts({ status }: { status: Status }) {
  const { counts } = status;
  const without = (status.not_counted ?? []).map((pool) => pool.pool);
  const inPools = without.length > 0 ? `without ${without.join(", ")}` : null;
  const online = (all: number, up: number) => (all === up ? "all online" : `${up} online`);
  const tiles: [string, number, string, string | null, boolean][] = [
    ["pools", counts.pools, "pool", null, true],
    ["disks", counts.disks, "disk", inPools ?? "in pools", without.length === 0],
    ["volumes", counts.volumes, "volume", inPools, without.length === 0],
    ["luns", counts.luns, "LUN", counts.luns ? online(counts.luns, counts.luns_online) : null, counts.luns === counts.luns_online],
    ["shares", counts.shares ?? 0, "share", counts.shares ? online(counts.shares, counts.shares_online ?? 0) : null, counts.shares === counts.shares_online],
    ["sessions", counts.sessions, "session", null, true],
  ];
  return (
    <nav className="tiles" aria-label="What there is">
      {tiles.map(([page, count, word, note, good]) => (
        <a key={page} className="tile" href={to(page)}>
          <b>{count.toLocaleString("en")}</b> {many(count, word).replace(/^\S+ /, "")}
          {note && <small className={good ? undefined : "warn-text"}>{note}</small>}
        </a>
      ))}
    </nav>
  );
}
