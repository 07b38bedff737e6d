/** Sends JSON requests to a control server. The size of each response is limited. */
import { jsonOrUndefined } from '../wire/json-value.ts';
import { TailcastError, errorText } from '../errors.ts';
import { readBounded } from '../async/read-bounded.ts';

const TIMEOUT_MS = 30_000;
/** Maximum size of a response, in bytes. The largest response is the list of all nodes, with about 1 KiB per node. */
const MAX_ANSWER_BYTES = 64 * 1024 ** 2;

/** Options of the adapter for a control server. */
export interface ControlOptions {
  /** Address of the API, e.g. `https://api.tailscale.com`. */
  readonly baseUrl: string;
  readonly loginServer: string;
  readonly nowMs: () => number;
  /** Aborts all requests. */
  readonly signal: AbortSignal;
}

export interface ControlAnswer {
  readonly status: number;
  /** Parsed JSON; undefined for an invalid or empty body. */
  readonly body: unknown;
}

/** Sends one request. Returns the response for any status, including 400 and above. */
export type ControlRequest = (request: {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Path relative to the base address, with a leading slash. */
  readonly path: string;
  readonly authorization?: string;
  readonly json?: object;
  readonly form?: Readonly<Record<string, string>>;
}) => Promise<ControlAnswer>;

/**
 * @param base address of the server, e.g. `https://control.example.com`
 * @throws TailcastError `CONTROL_FAILED` from each request without a complete response; the error message contains no
 * secrets
 */
export function createControlRequest(base: string, signal: AbortSignal): ControlRequest {
  const root = base.replace(/\/+$/, '');
  return async ({ method, path, authorization, json, form }) => {
    const headers: Record<string, string> = { accept: 'application/json', 'user-agent': 'tailcast-operator' };
    if (authorization !== undefined) headers['authorization'] = authorization;
    if (json !== undefined) headers['content-type'] = 'application/json';
    const body = json === undefined ? form && new URLSearchParams(form) : JSON.stringify(json);
    try {
      const response = await fetch(`${root}${path}`, {
        method,
        headers,
        redirect: 'error',
        signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
        ...(body === undefined ? {} : { body }),
      });
      return { status: response.status, body: jsonOrUndefined(await boundedText(response)) };
    } catch (error) {
      throw new TailcastError('CONTROL_FAILED', `${method} ${path}: ${causeOf(error)}`, { cause: error });
    }
  };
}

/** Returns the error for an unexpected response. */
export function refused(what: string, { status, body }: ControlAnswer): TailcastError {
  const message = typeof body === 'object' && body !== null && 'message' in body ? String(body.message) : '';
  return new TailcastError('CONTROL_FAILED', `${what}: ${status} ${message.slice(0, 300)}`.trimEnd());
}

async function boundedText({ body }: Response): Promise<string> {
  const tooLong = (): Error => new RangeError(`a response exceeds ${MAX_ANSWER_BYTES} bytes`);
  return body === null ? '' : (await readBounded(body, MAX_ANSWER_BYTES, tooLong)).toString();
}

/** The error of `fetch` says only "fetch failed". The reason is in the error's cause. */
function causeOf(error: unknown): string {
  return error instanceof Error && error.cause !== undefined ? errorText(error.cause) : errorText(error);
}
