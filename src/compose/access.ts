/**
 * Opens a gateway's stores of access requests. All gateways of a cluster must share the key that signs the records in
 * these stores.
 */
import { randomBytes } from 'node:crypto';
import { AccessRequests } from '../access/requests.ts';
import { createRecordSeal } from '../access/record.ts';
import { encodeStep } from '../access/evidence.ts';
import { makeDirectories } from '../directories.ts';
import { errorText } from '../errors.ts';
import { connectCluster } from '../operator/cluster-connection.ts';
import { createKubeClient } from '../operator/kube-client.ts';
import { KEY_BYTES, loadSecret } from '../recording/journal/journal-key.ts';
import { keyFileOf } from './journals.ts';
import type { GatewayParts } from './gateway-parts.ts';

/**
 * Creates the stores of access requests. A store starts its watch of the API server at the first call from a caller
 * with a rule for access requests.
 *
 * @returns undefined in `noauth` mode; also undefined if the gateway serves several clusters and has neither a
 *   kubeconfig nor a service account
 * @throws TailcastError `CONFIG_INVALID` if the key file is missing or invalid
 */
export async function openAccess(parts: GatewayParts): Promise<AccessRequests | undefined> {
  const { config, environment, stateDirectory, requestEvents, log, signal, stack } = parts;
  if (config.mode === 'noauth') return undefined;
  const isInPod = environment.has('KUBERNETES_SERVICE_HOST') && environment.has('KUBERNETES_SERVICE_PORT');
  if (config.clusters !== undefined && config.kubeconfig === undefined && !isInPod) return undefined;
  const file = keyFileOf(config, stateDirectory, environment);
  const secret = await makeDirectories(stateDirectory)
    .then(() => loadSecret(file))
    .catch((error: unknown) => {
      if (config.lateKeyFile !== undefined) throw error;
      log.warn({ file, error: errorText(error) }, 'access requests become invalid when this process stops');
      return randomBytes(KEY_BYTES);
    });
  const connection = connectCluster(config, environment);
  stack.defer(() => connection.close());
  return new AccessRequests({
    client: createKubeClient(connection, signal),
    seal: createRecordSeal(secret),
    record: (step) => requestEvents.send(step.record.recording, encodeStep(step, Date.now())),
    log,
    unixMs: Date.now,
    monotonicMs: () => performance.now(),
    signal,
  });
}
