// Work that takes long: how far it is, how fast, how long it still takes.
import { onNode } from "../api/nodes";
import type { Job } from "../api/types";
import { bytes, duration, percent, perSecond } from "./format";
import { Badge, type Tone } from "./states";

const STATE: Record<Job["state"], Tone> = { running: "busy", done: "good", failed: "bad", cancelled: "calm" };

export function JobState({ job }: { job: Job }) {
  return <Badge tone={STATE[job.state]}>{job.state}</Badge>;
}

export const jobName = (job: Job) => `${job.kind.replace("-", " ")} of ${job.subject}`;

export function Progress({ job }: { job: Job }) {
  const title = onNode(job, jobName(job));
  const part = percent(job.done_bytes, job.total_bytes);
  const rest = [
    `${bytes(job.done_bytes)} of ${bytes(job.total_bytes)}`,
    job.bytes_per_second > 0 && perSecond(job.bytes_per_second),
    job.eta_seconds !== null && job.eta_seconds !== undefined && `${duration(job.eta_seconds)} left`,
  ].filter(Boolean).join(", ");
  return (
    <div className="job">
      <div className="job-head">
        <strong>{title}</strong>
        <span>{Math.floor(part)} %</span>
      </div>
      <div className="fill good" role="progressbar" aria-label={title} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.floor(part)} aria-valuetext={rest}>
        <span style={{ width: `${part}%` }} />
      </div>
      <p className="help">{rest}{job.message ? `. ${job.message}` : ""}</p>
    </div>
  );
}
