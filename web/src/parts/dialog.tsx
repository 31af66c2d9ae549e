// Dialogs: forms that create and change, and the question before something is destroyed.
import { useEffect, useId, useRef, useState, useSyncExternalStore, type ReactNode } from "react";
import { Dialog, Form, Heading, Modal, ModalOverlay } from "react-aria-components";
import { ProblemError } from "../api/client";
import { refresh } from "../api/queries";
import type { Problem } from "../api/types";
import { Button, Field } from "./controls";
import { Icon } from "./icons";
import { ProblemBox } from "./problem";
import { Told, tell, tellProblem } from "./toast";

function Window({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ReactNode; wide?: boolean }) {
  return (
    <ModalOverlay className="overlay" isOpen onOpenChange={(open) => !open && onClose()}>
      <Modal className={wide ? "modal wide" : "modal"}>
        <Dialog className="dialog">
          <header>
            <Heading slot="title" level={2}>{title}</Heading>
            <Button look="quiet" icon="close" aria-label="Close" onPress={onClose} />
          </header>
          {children}
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}

/** A form in a dialog. It says what is wrong before it asks the node, and what will happen before it is sent. */
export function FormDialog({ title, onClose, children, preview, command, wrong, submit, button = "Create", wide }: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** What will happen, in sentences. */
  preview?: ReactNode;
  /** The same on the command line. */
  command?: string;
  /** Whether something is missing or wrong, so that it cannot be sent. */
  wrong: boolean;
  /** Does it; gives what to say when it is done. Where the node wants a confirmation, it is asked for and given here. */
  submit: (confirm?: string) => Promise<string>;
  button?: string;
  wide?: boolean;
}) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  async function send() {
    if (wrong || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      const said = await submit();
      await refresh();
      tell(said);
      onClose();
    } catch (error) {
      if (error instanceof ProblemError && error.problem.code === "confirmation-required") {
        onClose();
        destroy({ title, button, call: async (confirm) => ({ message: await submit(confirm) }) });
        return;
      }
      setProblem(error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <Window title={title} onClose={onClose} wide={wide ?? false}>
      <Form
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <div className="dialog-body">
          {children}
          {preview && (
            <section className="preview" aria-label="What will happen">
              <h3>What will happen</h3>
              {preview}
            </section>
          )}
          {command && <Command text={command} label="The same on the command line" />}
          {problem !== null && <ProblemBox error={problem} />}
        </div>
        <footer>
          <Button onPress={onClose}>Cancel</Button>
          <Button look="primary" type="submit" isDisabled={wrong || busy}>{busy ? "Working …" : button}</Button>
        </footer>
      </Form>
    </Window>
  );
}

/** Something to read, without a form. */
export function ReadDialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ReactNode; wide?: boolean }) {
  return (
    <Window title={title} onClose={onClose} wide={wide ?? false}>
      <div className="dialog-body">{children}</div>
      <footer><Button look="primary" onPress={onClose}>Close</Button></footer>
    </Window>
  );
}

/** Lines for a terminal, with a button that copies them. */
export function Command({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const region = useId();
  return (
    <div className="command">
      <div className="command-head">
        <span id={region}>{label}</span>
        <Button
          look="quiet"
          icon={copied ? "check" : "copy"}
          aria-label={`Copy: ${label}`}
          onPress={() => {
            // Without TLS browsers have no clipboard for pages; the text can still be marked.
            navigator.clipboard?.writeText(text).then(() => setCopied(true), () => undefined);
          }}
        >
          {copied ? "Copied" : "Copy"}
        </Button>
      </div>
      <pre tabIndex={0} aria-labelledby={region}><code>{text}</code></pre>
    </div>
  );
}

/** Something that takes, stops or destroys. */
export type Deed = {
  /** `Destroy volume vm` */
  title: string;
  /** What the button says: `Destroy`. */
  button: string;
  /** What it means, said where the node does not ask for confirmation itself, or not always. */
  means?: string;
  /** Does it. Without `confirm` the node says what would be lost and which name confirms it, and does nothing. */
  call: (confirm?: string) => Promise<{ message?: string } | unknown>;
  /** Whether the node always asks for confirmation; where it does not, these pages do, and then the node if it has more to say. */
  asks?: boolean;
  done?: string;
  then?: () => void;
};

let deed: Deed | null = null;
const listeners = new Set<() => void>();
function setDeed(next: Deed | null) {
  deed = next;
  listeners.forEach((listener) => listener());
}
const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** Asks, and does it when the name was typed. */
export const destroy = (what: Deed) => setDeed(what);

/** Does something that takes nothing away, and says how it went. */
export async function perform(call: () => Promise<{ message?: string } | unknown>, said?: string) {
  try {
    const done = await call();
    await refresh();
    tell(said ?? messageOf(done) ?? "Done.");
  } catch (error) {
    tellProblem(error);
  }
}

function messageOf(done: unknown): string | undefined {
  return typeof done === "object" && done !== null && "message" in done && typeof done.message === "string" ? done.message : undefined;
}

/** The one question before something is destroyed; part of the frame. */
export function Question() {
  const asked = useSyncExternalStore(subscribe, () => deed);
  return asked && <Asking key={asked.title} deed={asked} onClose={() => setDeed(null)} />;
}

type Confirmation = Problem & { confirm: string };

/** What the node wants to have confirmed, if that is its answer. */
function confirmation(error: unknown): Confirmation | null {
  const wanted = error instanceof ProblemError && error.problem.code === "confirmation-required" && error.problem.confirm;
  return wanted ? (error.problem as Confirmation) : null;
}

type Stage = { at: "asking" } | { at: "plain" } | { at: "named"; problem: Confirmation } | { at: "failed"; error: unknown };

function Asking({ deed, onClose }: { deed: Deed; onClose: () => void }) {
  const [stage, setStage] = useState<Stage>(deed.asks === false ? { at: "plain" } : { at: "asking" });
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const probed = useRef(false);

  const finish = async (done: unknown) => {
    await refresh();
    tell(deed.done ?? messageOf(done) ?? "Done.");
    onClose();
    deed.then?.();
  };
  // The node is asked without a confirmation: it answers with what would be lost, and does nothing.
  useEffect(() => {
    if (deed.asks === false || probed.current) return;
    probed.current = true;
    deed.call().then(finish, (error: unknown) => {
      const asked = confirmation(error);
      setStage(asked ? { at: "named", problem: asked } : { at: "failed", error });
    });
  });

  async function act(confirm?: string) {
    setBusy(true);
    setProblem(null);
    try {
      await finish(await deed.call(confirm));
    } catch (error) {
      // What only the node knows, such as which hosts use it now: nothing was done, and it is asked for once more.
      const asked = confirmation(error);
      if (asked && confirm === undefined) setStage({ at: "named", problem: asked });
      else setProblem(error);
    } finally {
      setBusy(false);
    }
  }

  const name = stage.at === "named" ? stage.problem.confirm : null;
  const ready = stage.at === "plain" || (name !== null && typed === name);
  return (
    <Window title={`${deed.title}?`} onClose={onClose}>
      <Form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready && !busy) void act(name ?? undefined);
        }}
      >
        <div className="dialog-body">
          {stage.at === "asking" && <p role="status">Asking the node what this would take …</p>}
          {stage.at === "failed" && <ProblemBox error={stage.error} />}
          {stage.at === "plain" && <p>{deed.means}</p>}
          {stage.at === "named" && (
            <>
              {!stage.problem.destroys?.length && <p><Told text={stage.problem.detail} /></p>}
              {stage.problem.destroys && stage.problem.destroys.length > 0 && (
                <section className="preview danger" aria-label="What will happen">
                  <h3><Icon name="warning" /> What will happen</h3>
                  <ul>{stage.problem.destroys.map((line) => <li key={line}><Told text={line} /></li>)}</ul>
                </section>
              )}
              <Field
                label={`Type ${stage.problem.confirm} to confirm`}
                value={typed}
                onChange={setTyped}
                autoFocus
                wrong={typed !== "" && !stage.problem.confirm.startsWith(typed) ? "This is another name." : null}
              />
            </>
          )}
          {problem !== null && <ProblemBox error={problem} />}
        </div>
        <footer>
          <Button onPress={onClose}>{stage.at === "failed" ? "Close" : "Cancel"}</Button>
          {stage.at !== "failed" && (
            <Button look="danger" type="submit" isDisabled={!ready || busy}>{busy ? "Working …" : deed.button}</Button>
          )}
        </footer>
      </Form>
    </Window>
  );
}
