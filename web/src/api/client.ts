// How the pages ask the node: typed by its OpenAPI document, and every failure a problem that says what, where, what to do.
import createClient from "openapi-fetch";
import type { paths } from "./schema";
import type { Problem } from "./types";

/** A request that failed, with what the node said about it. */
export class ProblemError extends Error {
  constructor(
    readonly problem: Pick<Problem, "title" | "detail" | "status"> & Partial<Problem>,
  ) {
    super(problem.detail);
  }
}

// Other sites' pages cannot send a header of their own: this one tells the node that a change comes from its own pages.
export const api = createClient<paths>({ baseUrl: "", headers: { "X-Holdfast-Request": "1" } });

/** Called when the node wants a login: set by the frame, which shows the login page. */
let onLoginNeeded: () => void = () => {};
export function whenLoginNeeded(then: () => void) {
  onLoginNeeded = then;
}

/** The node could not be asked at all. */
const SILENT = {
  title: "The node does not answer",
  detail: "No answer came from this node.",
  status: 0,
  code: "unavailable" as const,
  todo: "See whether it runs (`systemctl status holdfast` on it) and whether the network to it does. The pages go on by themselves when it is back.",
};

/** The problem in a failed answer; one is made of it where the node did not send one. */
export async function problemOf(response: Response): Promise<ProblemError> {
  const type = response.headers.get("content-type") ?? "";
  if (type.includes("json")) {
    const body: unknown = await response.json().catch(() => null);
    if (isProblem(body)) return failed(response, body);
  }
  if (response.status >= 502 && response.status <= 504) return new ProblemError({ ...SILENT, status: response.status });
  return failed(response, {
    title: `The node answered ${response.status}`,
    detail: response.statusText || "It did not say why.",
    status: response.status,
  });
}

function failed(response: Response, problem: ProblemError["problem"]): ProblemError {
  if (response.status === 401) onLoginNeeded();
  return new ProblemError(problem);
}

function isProblem(value: unknown): value is Problem {
  return typeof value === "object" && value !== null && "title" in value && "detail" in value;
}

/** What a request was answered with; throws a `ProblemError` otherwise. */
export async function ask<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await answer.catch((reason: unknown) => {
    throw isAbort(reason) ? reason : new ProblemError(SILENT);
  });
  if (response.ok) return data as T;
  if (isProblem(error)) throw failed(response, error);
  if (response.status >= 502 && response.status <= 504) throw new ProblemError({ ...SILENT, status: response.status });
  throw failed(response, {
    title: `The node answered ${response.status}`,
    detail: typeof error === "string" && error ? error : response.statusText || "It did not say why.",
    status: response.status,
  });
}

function isAbort(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "AbortError";
}

/** Any failure as a problem that can be shown. */
export function asProblem(error: unknown): ProblemError["problem"] {
  if (error instanceof ProblemError) return error.problem;
  return {
    title: "A fault of these pages",
    detail: error instanceof Error ? error.message : String(error),
    status: 0,
    todo: "Load the page again. If it comes back, report it with what you did.",
  };
}
