// What several nodes list together: what a row is called, so that the one that is meant is the one that something is done to.

/** A row of a list over all nodes of a cluster; a node of its own says no node. */
export type OnNode = { node?: string | null };

/**
 * What a thing with a number is called in requests and as a key: each node counts by itself, so `7` alone is that of the node that is
 * asked, and `n2:7` that of node n2.
 */
export const numbered = ({ node, id }: OnNode & { id: number }): string => (node ? `${node}:${id}` : String(id));

/** A key for what is unique on its node only. */
export const keyOn = ({ node }: OnNode, ...parts: (string | null | undefined)[]): string => [node, ...parts].map((part) => part ?? "").join(" ");

/** A title that says of which node the thing is, where there are several. */
export const onNode = ({ node }: OnNode, title: string): string => (node ? `${title} on node ${node}` : title);

/** The node that any row says; null where rows say none. */
export function nodeOf(row: unknown): string | null {
  const node = typeof row === "object" && row !== null && "node" in row ? row.node : null;
  return typeof node === "string" && node !== "" ? node : null;
}

/** A node that has not told of what it has, and what is missing because of it. */
export type Unanswered = { node: string; detail: string };

/** Those of an answer; none where it is no list. */
export function unansweredOf(answer: unknown): readonly Unanswered[] {
  const list = typeof answer === "object" && answer !== null && "unanswered" in answer ? answer.unanswered : null;
  return Array.isArray(list) ? list as Unanswered[] : [];
}
