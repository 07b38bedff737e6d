/** tailcast on a tailnet in front of a cluster, with a bucket; the base of suites about tailnet users. */
import { ensurePeer } from '../rig/build.ts';
import { type Kubectl, findKubectls } from '../rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import type { Rig } from '../rig/rig.ts';
import { type S3Server, startS3 } from '../rig/s3.ts';
import { type NodeOptions, type Tailnet, type TailnetNode, startTailnet } from '../rig/tailnet.ts';
import { type Archive, openArchive } from './archive.ts';
import {
  type SiteGateway,
  type SiteRecorder,
  createBucket,
  kubeconfigAt,
  sitePolicy,
  startSiteGateway,
  startSiteRecorder,
} from './site.ts';

export const BUCKET = 'recordings';

export interface TailnetSite {
  readonly cluster: Kubernetes;
  readonly tailnet: Tailnet;
  readonly s3: S3Server;
  /** Node of the gateway's tailscaled. */
  readonly proxy: TailnetNode;
  /** The recorder runs next to the tailscaled of node `recorder`, and stores recordings in `BUCKET`. */
  readonly recorder: SiteRecorder;
  readonly gateway: SiteGateway;
  readonly archive: Archive;
  /** The newest kubectl. */
  readonly kubectl: Kubectl;
  /** Returns a kubeconfig with which a user at node `from` reaches the gateway. */
  kubeconfig(from: string): string;
}

/**
 * Starts the site in the rig, with the nodes `proxy` and `recorder` and those of `people`. Callers have no grant
 * until `tailnet.setPolicy`.
 *
 * @param options.gatewayHost listening address of the gateway; all addresses except 127.0.0.1 need the PROXY protocol
 * @param options.recorder more settings of the recorder
 */
export async function startTailnetSite(
  rig: Rig,
  people: readonly NodeOptions[],
  options: { readonly gatewayHost?: string; readonly recorder?: Readonly<Record<string, string>> } = {},
): Promise<TailnetSite> {
  const { gatewayHost: host, recorder: settings } = options;
  const [cluster, tailnet, s3] = await Promise.all([
    startKubernetes(rig, { node: { webSockets: true } }),
    startTailnet(rig, {
      nodes: [{ name: 'proxy', tags: ['tag:k8s'] }, { name: 'recorder', tags: ['tag:recorder'] }, ...people],
      policy: sitePolicy([]),
    }),
    startS3(rig),
  ]);
  await createBucket(s3, BUCKET);
  const proxy = tailnet.node('proxy');
  const [recorder, gateway] = await Promise.all([
    startSiteRecorder(rig, {
      name: 'recorder',
      node: tailnet.node('recorder'),
      s3,
      bucket: BUCKET,
      settings,
    }),
    startSiteGateway(rig, { name: 'gateway', node: proxy, cluster, ...(host === undefined ? {} : { host }) }),
  ]);
  const kubectl = (await findKubectls()).at(-1)!;
  return {
    cluster,
    tailnet,
    s3,
    proxy,
    recorder,
    gateway,
    archive: openArchive(recorder.url),
    kubectl,
    kubeconfig: (from) =>
      kubeconfigAt(tailnet.node(from), { node: proxy, port: gateway.port, ca: gateway.ca, cluster }),
  };
}

/** Builds the required peers. Builds run first, so that their time does not count as start time. */
export async function ensureTailnetSite(): Promise<void> {
  for (const peer of ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw'] as const)
    await ensurePeer(peer);
}
