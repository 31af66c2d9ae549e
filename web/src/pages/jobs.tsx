// Work that takes long: repair, drain, replace, rebalance, checks.
import { numbered } from "../api/nodes";
import { useJobs } from "../api/queries";
import { bytes, duration, percent, perSecond, time } from "../parts/format";
import { JobState, Progress, jobName } from "../parts/jobs";
import { Card, Empty, Page, Wait } from "../parts/page";
import { Table } from "../parts/table";

export default function Jobs() {
  const jobs = useJobs();
  return (
    <Page title="Jobs" lead="Work that takes long. It goes on while nobody looks, and gives way to clients.">
      <Wait of={jobs}>
        {({ items }) => {
          const running = items.filter((job) => job.state === "running");
          return (
            <>
              {running.length > 0 && <Card title="Running">{running.slice(0, 20).map((job) => <Progress key={numbered(job)} job={job} />)}</Card>}
              <Table
                label="Jobs"
                rows={items}
                id={numbered}
                first={{ column: 2, down: true }}
                empty={<Empty title="There was no such work since the node started." />}
                columns={[
                  { title: "Job", value: jobName, wrap: true },
                  { title: "State", value: (row) => row.state, cell: (row) => <JobState job={row} /> },
                  { title: "Started (UTC)", value: (row) => row.started, cell: (row) => time(row.started) },
                  { title: "Done", value: (row) => percent(row.done_bytes, row.total_bytes), cell: (row) => `${bytes(row.done_bytes)} of ${bytes(row.total_bytes)}`, end: true },
                  { title: "Speed", value: (row) => row.bytes_per_second, cell: (row) => (row.state === "running" ? perSecond(row.bytes_per_second) : "–"), end: true, wide: true },
                  { title: "Left", value: (row) => row.eta_seconds ?? 0, cell: (row) => (row.eta_seconds === null || row.eta_seconds === undefined ? "–" : duration(row.eta_seconds)), end: true, wide: true },
                  { title: "Note", value: (row) => row.message ?? "", wide: true, wrap: true },
                ]}
              />
            </>
          );
        }}
      </Wait>
    </Page>
  );
}
