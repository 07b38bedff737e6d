/**
 * Worker thread that refreshes one OpenID Connect token with `KubeConfig` of @kubernetes/client-node. Loading this
 * package takes about 0.45 s of CPU time and 85 MB of memory. The thread exits after the refresh, which frees its
 * memory and sockets.
 */
import type { RequestOptions } from 'node:https';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { parentPort, workerData } from 'node:worker_threads';
import { KubeConfig } from '@kubernetes/client-node';
import { z } from 'zod';

const { issuer, clientId, refreshToken, ca } = z
  .object({ issuer: z.string(), clientId: z.string(), refreshToken: z.string(), ca: z.string().optional() })
  .parse(workerData);
// The CA is set here, because KubeConfig requests tokens without a time limit if its configuration contains a CA.
if (ca !== undefined) setDefaultCACertificates([...getCACertificates('default'), ca]);
const config = {
  // KubeConfig 2.0.1 passes the issuer unchanged to its OpenID Connect package, which accepts only a URL object.
  'idp-issuer-url': new URL(issuer),
  'client-id': clientId,
  'refresh-token': refreshToken,
  // KubeConfig refreshes immediately if the ID token is not a valid JSON Web Token.
  'id-token': 'expired',
};
const kubeConfig = new KubeConfig();
kubeConfig.loadFromClusterAndUser(
  { name: 'cluster', server: 'https://cluster', skipTLSVerify: false },
  { name: 'user', authProvider: { name: 'oidc', config } },
);
const request: RequestOptions = {};
await kubeConfig.applyToHTTPSOptions(request);
// KubeConfig has replaced the tokens in `config`.
parentPort?.postMessage({ 'id-token': config['id-token'], 'refresh-token': config['refresh-token'] });
