/** Describes failures of tailscaled's socket, with remedies for typical failures. Pure. */
import { errorText } from '../errors.ts';

/** @param thrown error of a connection to `socketPath`, or of the attempt to connect */
export function describeFailure(thrown: unknown, socketPath: string): string {
  const sentence = SENTENCES.get(errorCode(thrown) ?? '');
  return sentence?.(socketPath) ?? `talking to ${socketPath} failed: ${errorText(thrown)}`;
}

function notListening(path: string): string {
  return `nothing is listening on ${path}: start tailscaled, or name the socket it listens on`;
}

function notAllowed(path: string): string {
  return (
    `the socket ${path} may not be opened by this user: use the user ID of tailscaled, or give access to ` +
    'its directory'
  );
}

function hungUp(path: string): string {
  return `tailscaled closed the connection on ${path} without a response: see its log`;
}

const SENTENCES: ReadonlyMap<string, (path: string) => string> = new Map([
  [
    'ENOENT',
    (path: string) => `there is no socket at ${path}: start tailscaled, or name the socket it listens on`,
  ],
  ['EACCES', notAllowed],
  ['EPERM', notAllowed],
  ['ECONNREFUSED', notListening],
  ['ENOTSOCK', notListening],
  ['ECONNRESET', hungUp],
  ['EPIPE', hungUp],
  [
    'TimeoutError',
    (path: string) =>
      `no response from ${path} in time: check whether tailscaled is running and not overloaded`,
  ],
  ['AbortError', (path: string) => `the request to ${path} was cancelled`],
]);

/** @param status HTTP status of an unexpected response; `body` is its text */
export function describeRefusal(status: number, body: string, socketPath: string): string {
  const text = firstLine(body);
  switch (status) {
    case 403:
      return [
        `${socketPath} refused this user (${text}): run with the user ID of tailscaled,`,
        'name this user in TS_PERMIT_CERT_UID for certificates, or make it the operator',
      ].join(' ');
    case 404:
      return `${socketPath} does not support this request (${text}): upgrade tailscaled`;
    case 429:
      return `the CA limits requests of ${socketPath} (${text}): wait for the next attempt`;
    default:
      return `${socketPath} responded with status ${status} (${text}): see the log of tailscaled`;
  }
}

function errorCode(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error)) return undefined;
  if (thrown.name === 'AbortError' || thrown.name === 'TimeoutError') return thrown.name;
  return 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : undefined;
}

/** Shortens a text and removes control characters, for log lines and terminals. */
function firstLine(body: string): string {
  const line = body.trim().split(/[\r\n]/, 1)[0] ?? '';
  // eslint-disable-next-line no-control-regex
  const clean = line.replace(/[\u0000-\u001f\u007f-\u009f]/g, ' ').slice(0, 200);
  return clean === '' ? 'no text' : clean;
}
