/** Common parts of the suites of a {@link WorkloadSite}. */
import { afterAll, describe } from 'vitest';
import { networkProblem } from '../rig/network.ts';
import { clientPod, startWorkloadSite, type WorkloadSite } from './workload-site.ts';

export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}

/** An object of the API server, with the fields that the suites read. */
export interface Resource {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly finalizers?: readonly string[];
  };
  readonly spec: {
    readonly clusterIP?: string;
    readonly externalName?: string;
    readonly [key: string]: unknown;
  };
  readonly status?: {
    readonly conditions?: readonly Condition[];
    readonly devices?: readonly { readonly hostname: string; readonly tailnetIPs?: readonly string[] }[];
    readonly loadBalancer?: {
      readonly ingress?: readonly { readonly hostname?: string; readonly ip?: string }[];
    };
    readonly [key: string]: unknown;
  };
}

/** Maximum time until a change in the cluster takes effect. */
const PATIENT = { timeoutMs: 150_000 } as const;

export interface SiteTools {
  /** Starts the site, which stops after the suite. */
  start(...options: Parameters<typeof startWorkloadSite>): Promise<WorkloadSite>;
  /** Starts a pod `client`, which is a tailnet node, and waits until it has joined. */
  startClient(): Promise<void>;
  /** Sends a request to the API server. */
  api(method: string, path: string, body?: unknown): Promise<unknown>;
  read(path: string): Promise<Resource>;
  list(path: string): Promise<readonly Resource[]>;
  /** Waits for a result. */
  until<T>(what: string, check: () => Promise<T | undefined>): Promise<T>;
  /** Waits until a condition of an object has this status or reason. Default: the first condition. */
  said(path: string, what: string, type?: string): Promise<Resource>;
}

/** Describes a suite whose pods have their own networks. If that is impossible, prints why the suite is skipped. */
export function describeSite(suite: string, title: string, define: (tools: SiteTools) => void): void {
  const problem = networkProblem();
  if (problem !== undefined) process.stderr.write(`${suite}: skipped: ${problem}\n`);
  describe.skipIf(problem !== undefined)(`${title}${problem === undefined ? '' : `: ${problem}`}`, () => {
    let site: WorkloadSite;
    afterAll(() => site?.rig.stop(), 60_000);
    const api: SiteTools['api'] = (...request) => site.cluster.api(...request);
    const read = async (path: string): Promise<Resource> => (await api('GET', path)) as Resource;
    const until: SiteTools['until'] = (what, check) => site.rig.until(what, check, PATIENT);
    define({
      start: async (...options) => (site = await startWorkloadSite(...options)),
      async startClient() {
        const { tailnet, node } = site;
        const key = await tailnet.authKey({ tags: ['tag:client'] });
        await api('POST', '/api/v1/namespaces/default/pods', clientPod('client', key, tailnet.controlUrl));
        await until('the client', () => node('client'));
      },
      api,
      read,
      list: async (path) => ((await api('GET', path)) as { items: readonly Resource[] }).items,
      until,
      said: (path, what, type) =>
        until(`${path}: ${type ?? 'the condition'} ${what}`, async () => {
          const object = await read(path);
          const condition = conditionOf(object, type);
          if (condition?.status === what || condition?.reason === what) return object;
          throw new Error(JSON.stringify(object.status?.conditions));
        }),
    });
  });
}

/** Returns the condition of a type. Default: the first condition. */
export function conditionOf({ status }: Resource, type?: string): Condition | undefined {
  return status?.conditions?.find((one) => type === undefined || one.type === type);
}
