// A problem of the node (RFC 9457) as people read it: what was wrong, where, what to do.
import type { ProblemError } from "../api/client";
import { asProblem } from "../api/client";
import { Icon } from "./icons";
import { Told } from "./toast";

export function ProblemText({ problem }: { problem: ProblemError["problem"] }) {
  return (
    <div className="problem-text">
      <strong>{problem.title}</strong>
      <p><Told text={problem.detail} /></p>
      {problem.destroys && problem.destroys.length > 0 && problem.code !== "confirmation-required" && (
        <ul>{problem.destroys.map((line) => <li key={line}><Told text={line} /></li>)}</ul>
      )}
      {problem.todo && <p className="todo"><span aria-hidden="true">→ </span><Told text={problem.todo} /></p>}
    </div>
  );
}

/** A problem in the place of what could not be shown or done. */
export function ProblemBox({ error }: { error: unknown }) {
  return (
    <div className="problem-box" role="alert">
      <Icon name="critical" />
      <ProblemText problem={asProblem(error)} />
    </div>
  );
}
