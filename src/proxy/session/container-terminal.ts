/**
 * Refuses to attach without a terminal (`tty=false`) to a container that has a terminal. The kubelet uses the terminal
 * of the container, whatever the request contains, but the session would have no notice and no question for a reason.
 * kubectl requests a terminal for such containers.
 */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { z } from 'zod';
import { readBounded } from '../../async/read-bounded.ts';
import { errorText, TailcastError } from '../../errors.ts';
import { withoutHeader } from '../../kube/headers.ts';
import type { Admission } from '../gate/gate.ts';
import { connectUnless, type ConnectUpstream } from './dial.ts';

/** Larger than every object that etcd stores. */
const MAX_POD_BYTES = 4 * 1024 ** 2;
const TIMEOUT_MS = 10_000;
/** Statuses that mean that the caller may not read the pod, or that the pod does not exist. */
const REFUSED: ReadonlySet<number> = new Set([401, 403, 404]);
/**
 * Client headers that the gateway does not copy into its own GET request for the pod: headers of the upgrade, and
 * headers that can change the format of the pod in the response.
 */
const REPLACED = [
  'x-stream-protocol-version',
  'sec-websocket-protocol',
  'sec-websocket-key',
  'sec-websocket-version',
  'sec-websocket-extensions',
  'accept',
  'accept-encoding',
];

const CONTAINERS = z.array(z.looseObject({ name: z.string(), tty: z.boolean().default(false) }));
const POD = z.looseObject({
  spec: z.looseObject({
    containers: CONTAINERS,
    initContainers: CONTAINERS.nullish(),
    ephemeralContainers: CONTAINERS.nullish(),
  }),
});

interface Upstream {
  readonly connect: ConnectUpstream;
  readonly basePath: string;
}

/** Refuses a hidden terminal, see {@link refuseHiddenTerminal}. */
export type RefuseHiddenTerminal = typeof refuseHiddenTerminal;

/**
 * Reads the pod as the caller. @throws TailcastError `POLICY_REFUSED` if the container has a terminal, or if the caller
 * may not read the pod; `UPSTREAM_UNAVAILABLE` if the API server does not return the pod
 */
export async function refuseHiddenTerminal(
  admission: Pick<Admission, 'target' | 'headers' | 'exec'>,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<void> {
  const during = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  const pod = await readPod(admission, upstream, during).catch((error: unknown) => {
    if (error instanceof TailcastError) throw error;
    const detail = `the pod cannot be read: ${errorText(error)}`;
    throw new TailcastError('UPSTREAM_UNAVAILABLE', detail, { cause: error });
  });
  if (hasTerminal(pod, admission.exec.container))
    throw new TailcastError(
      'POLICY_REFUSED',
      'the container has a terminal: request it with tty=true (kubectl attach -it)',
    );
}

async function readPod(
  { target, headers }: Pick<Admission, 'target' | 'headers'>,
  { connect, basePath }: Upstream,
  signal: AbortSignal,
): Promise<z.output<typeof POD>> {
  const path = `${basePath}/${target.segments.slice(0, -1).map(encodeURIComponent).join('/')}`;
  const fields = [...REPLACED.reduce(withoutHeader, headers), 'Accept', 'application/json'];
  const socket = await connectUnless(signal, connect);
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const options = { path, headers: fields, setHost: false, signal, createConnection: () => socket };
      httpRequest(options).on('response', resolve).on('error', reject).end();
    });
    const { statusCode = 0 } = response;
    if (REFUSED.has(statusCode)) {
      const advice = 'attach without -t needs the right to get the pod';
      throw new TailcastError('POLICY_REFUSED', `${advice} (status ${statusCode})`);
    }
    if (statusCode !== 200) throw new Error(`status ${statusCode}`);
    const text = await readBounded(response, MAX_POD_BYTES, () => new Error('it is too large'));
    return POD.parse(JSON.parse(text.toString()));
  } finally {
    socket.destroy();
  }
}

/** Returns true if the container has a terminal, or if the pod has no such container. */
function hasTerminal({ spec }: z.output<typeof POD>, name: string | undefined): boolean {
  const all = [...spec.containers, ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])];
  const found = all.filter((container) => name === undefined || container.name === name);
  return found.length === 0 || found.some(({ tty }) => tty);
}
