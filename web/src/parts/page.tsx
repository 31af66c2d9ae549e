// What every page is made of: a heading with what can be done, cards, facts, and the states of waiting and failing.
import type { UseQueryResult } from "@tanstack/react-query";
import { useEffect, useId, type ReactNode } from "react";
import { unansweredOf } from "../api/nodes";
import { Icon } from "./icons";
import { ProblemBox } from "./problem";

export function Page({ title, lead, actions, children, up }: {
  title: string;
  /** One sentence under the title. */
  lead?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** The page that this one belongs to. */
  up?: { href: string; title: string };
}) {
  useEffect(() => {
    document.title = `${title} – Holdfast`;
  }, [title]);
  return (
    <>
      {up && <nav className="up" aria-label="Up"><a href={up.href}>← {up.title}</a></nav>}
      <header className="page-head">
        <div>
          <h1 tabIndex={-1}>{title}</h1>
          {lead && <p className="lead">{lead}</p>}
        </div>
        {actions && <div className="page-actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

export function Card({ title, children, aside, className }: { title: string; children: ReactNode; aside?: ReactNode; className?: string }) {
  const heading = useId();
  return (
    <section className={className ? `card ${className}` : "card"} aria-labelledby={heading}>
      <div className="card-head">
        <h2 id={heading}>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}

/** Names and values in two columns; what is null is left out. */
export function Facts({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {facts.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The nodes that have not told of what they have: without it a list that lacks theirs would look whole. */
function Silent({ answer }: { answer: unknown }) {
  const nodes = unansweredOf(answer);
  if (nodes.length === 0) return null;
  return (
    <div className="notice" role="status">
      <Icon name="warning" />
      <div>{nodes.map(({ node, detail }) => <p key={node}><strong>Node {node}</strong>: {detail}</p>)}</div>
    </div>
  );
}

/** What was asked for, when it is there; until then that it is asked for, or the problem. */
export function Wait<T>({ of, children }: { of: UseQueryResult<T>; children: (data: T) => ReactNode }) {
  if (of.data !== undefined) {
    return (
      <>
        {of.error && <ProblemBox error={of.error} />}
        <Silent answer={of.data} />
        {children(of.data)}
      </>
    );
  }
  if (of.error) return <ProblemBox error={of.error} />;
  return <p className="waiting" role="status">Asking the node …</p>;
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p><strong>{title}</strong></p>
      {children}
    </div>
  );
}
