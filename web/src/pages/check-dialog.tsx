// Verifies the structures of a pool or volume, and repairs a volume after its plan was read.
import { useState } from "react";
import { api, ask } from "../api/client";
import type { CheckReport } from "../api/types";
import { Button, Check } from "../parts/controls";
import { ReadDialog, destroy } from "../parts/dialog";
import { Badge, type Tone } from "../parts/states";
import { ProblemBox } from "../parts/problem";

const TONE: Record<string, Tone> = { critical: "bad", error: "bad", warning: "warn", info: "calm" };

export function CheckDialog({ what, name, onClose }: { what: "pool" | "volume"; name: string; onClose: () => void }) {
  const [deep, setDeep] = useState(false);
  const [report, setReport] = useState<CheckReport | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const call = (body: { deep: boolean; repair: boolean; confirm?: string }) =>
    what === "pool"
      ? ask(api.POST("/v1/pools/{pool}/check", { params: { path: { pool: name } }, body }))
      : ask(api.POST("/v1/volumes/{volume}/check", { params: { path: { volume: name } }, body }));
  async function look() {
    setBusy(true);
    setProblem(null);
    try {
      setReport(await call({ deep, repair: false }));
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <ReadDialog title={`Check ${what} ${name}`} onClose={onClose} wide>
      <p>All structures are read and compared. Nothing is changed, and clients go on.</p>
      <Check value={deep} onChange={setDeep} help="Takes as long as reading everything.">Read all data, too</Check>
      <div className="buttons">
        <Button look="primary" isDisabled={busy} onPress={() => void look()}>{busy ? "Checking …" : "Check now"}</Button>
        {what === "volume" && report && !report.clean && (
          <Button
            look="danger"
            onPress={() => {
              onClose();
              destroy({
                title: `Repair volume ${name}`,
                button: "Repair",
                call: (confirm) => call({ deep, repair: true, confirm }).then((done) => ({ message: done.summary })),
              });
            }}
          >
            Repair …
          </Button>
        )}
      </div>
      {problem !== null && <ProblemBox error={problem} />}
      {report && (
        <section aria-label="Findings" role="status">
          <p><strong>{report.summary}</strong></p>
          <ul className="issues">
            {report.items.slice(0, 200).map((finding, index) => (
              <li key={index}>
                <Badge tone={TONE[finding.severity] ?? "calm"}>{finding.severity}</Badge>
                <div>
                  <p><strong>{finding.structure}</strong>, {finding.place}: {finding.detail}</p>
                  {finding.action && <p className="todo">→ {finding.action}</p>}
                </div>
              </li>
            ))}
          </ul>
        </section>
      )}
    </ReadDialog>
  );
}
