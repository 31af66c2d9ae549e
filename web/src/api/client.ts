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
  return failed(response, type.includes("json") ? await response.json().catch(() => null) : null);
}

function failed(response: Response, body: unknown): ProblemError {
  const { status } = response;
  // A login that is refused is a 401, too; who is not logged in needs not be told to.
  if (status === 401 && !response.url.endsWith("/v1/login")) onLoginNeeded();
  if (isProblem(body)) return new ProblemError(body);
  if (status >= 502 && status <= 504) return new ProblemError({ ...SILENT, status });
  const detail = typeof body === "string" && body ? body : response.statusText || "It did not say why.";
  return new ProblemError({ title: `The node answered ${status}`, detail, status });
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
  throw failed(response, error);
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
