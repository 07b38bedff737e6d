/**
 * Thread that refreshes one OpenID Connect token with `KubeConfig` of @kubernetes/client-node. Loading the
 * package takes about 0.45 s of CPU and 85 MB of memory; the thread exits after the refresh, so its heap and its
 * sockets do not outlive the refresh.
 */
import type { RequestOptions } from 'node:https';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { parentPort, workerData } from 'node:worker_threads';
import { KubeConfig } from '@kubernetes/client-node';
import { z } from 'zod';

const { issuer, clientId, refreshToken, ca } = z
  .object({ issuer: z.string(), clientId: z.string(), refreshToken: z.string(), ca: z.string().optional() })
  .parse(workerData);
// KubeConfig requests tokens without a time limit if its own configuration contains the CA
if (ca !== undefined) setDefaultCACertificates([...getCACertificates('default'), ca]);
const config = {
  // KubeConfig 2.0.1 passes the issuer on unchanged, and its OpenID Connect package accepts only a URL object
  'idp-issuer-url': new URL(issuer),
  'client-id': clientId,
  'refresh-token': refreshToken,
  // KubeConfig refreshes at once if it cannot read the ID token
  'id-token': 'expired',
};
const kubeConfig = new KubeConfig();
kubeConfig.loadFromClusterAndUser(
  { name: 'cluster', server: 'https://cluster', skipTLSVerify: false },
  { name: 'user', authProvider: { name: 'oidc', config } },
);
const request: RequestOptions = {};
await kubeConfig.applyToHTTPSOptions(request);
// KubeConfig replaces the tokens in `config`
parentPort?.postMessage({ 'id-token': config['id-token'], 'refresh-token': config['refresh-token'] });
