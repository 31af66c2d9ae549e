// What just happened, at the edge of the page: that a change was made, or the problem that it met.
import { useEffect, useSyncExternalStore } from "react";
import { asProblem } from "../api/client";
import { Button } from "./controls";
import { Icon } from "./icons";
import { ProblemText } from "./problem";
import type { ProblemError } from "../api/client";

type Note = { id: number; text: string } | { id: number; problem: ProblemError["problem"] };

let notes: Note[] = [];
let last = 0;
const listeners = new Set<() => void>();

function set(next: Note[]) {
  notes = next;
  listeners.forEach((listener) => listener());
}

/** Says that something was done; goes away by itself. */
export function tell(text: string) {
  last += 1;
  set([...notes.slice(-3), { id: last, text }]);
}

/** Says what went wrong; stays until it is put away. */
export function tellProblem(error: unknown) {
  const problem = asProblem(error);
  last += 1;
  // The same problem again, from a page that looks again and again, is said once.
  set([...notes.filter((note) => !("problem" in note) || note.problem.detail !== problem.detail).slice(-3), { id: last, problem }]);
}

const putAway = (id: number) => set(notes.filter((note) => note.id !== id));

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => notes);
  return (
    <section className="toasts" aria-label="Messages">
      <div role="status">{shown.map((note) => "text" in note && <Message key={note.id} id={note.id} text={note.text} />)}</div>
      <div role="alert">
        {shown.map((note) => "problem" in note && (
          <div key={note.id} className="toast problem">
            <Icon name="critical" />
            <ProblemText problem={note.problem} />
            <Button look="quiet" icon="close" aria-label="Put away" onPress={() => putAway(note.id)} />
          </div>
        ))}
      </div>
    </section>
  );
}

/** Milliseconds that a message without a problem stays. */
const STAYS = 6_000;

function Message({ id, text }: { id: number; text: string }) {
  useEffect(() => {
    const timer = setTimeout(() => putAway(id), STAYS);
    return () => clearTimeout(timer);
  }, [id]);
  return (
    <div className="toast done">
      <Icon name="check" />
      <p><Told text={text} /></p>
      <Button look="quiet" icon="close" aria-label="Put away" onPress={() => putAway(id)} />
    </div>
  );
}

/** A sentence of the node: what it has in backticks is to be typed. */
export function Told({ text }: { text: string }) {
  return text.split("`").map((piece, index) => (index % 2 === 1 ? <code key={index}>{piece}</code> : piece));
}
