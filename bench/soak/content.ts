/** Content of the soak's API server. A number determines the content, so that both ends can check it. */

/** A program that runs in a pod and has known output. */
export const SHELL = 'soak-shell';
export const SMALL_PATH = '/api/v1/namespaces/default/configmaps/small';
export const WATCH_PATH = '/api/v1/namespaces/default/pods?watch=true';
/** Size of a write. Writes of this size split lines and multi-byte characters. */
export const PIECE_BYTES = 61;
export const PIECE_MS = 250;
export const EVENT_MS = 1000;

export const SMALL_BODY = Buffer.from(
  JSON.stringify({ kind: 'ConfigMap', apiVersion: 'v1', data: { text: 'x'.repeat(1950) } }),
);

const LEAST_BYTES = 1500;
const MOST_BYTES = 9000;

/**
 * The complete output of a shell: valid UTF-8, lines of different lengths, colours, and characters of up to 4 bytes.
 */
export function shellOutput(shell: number): Buffer {
  const bytes = LEAST_BYTES + ((shell * 2_654_435_761) % (MOST_BYTES - LEAST_BYTES));
  const lines: string[] = [];
  for (let line = 0, length = 0; length < bytes; line++) {
    const text = `\u001b[3${line % 8}mshell ${shell} line ${line} ${'é→🚢ß'.repeat((shell + line) % 7)}\u001b[0m\r\n`;
    lines.push(text);
    length += Buffer.byteLength(text);
  }
  return Buffer.from(lines.join(''));
}

/** One event of a watch, with its line feed: about 500 bytes. */
export function watchEvent(number: number): string {
  const metadata = { name: 'web', resourceVersion: String(number), annotations: { pad: 'y'.repeat(380) } };
  return `${JSON.stringify({ type: 'MODIFIED', object: { kind: 'Pod', apiVersion: 'v1', metadata } })}\n`;
}
