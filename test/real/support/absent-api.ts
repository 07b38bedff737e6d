/**
 * An aggregated API whose server does not exist. The API server returns 503, so every proxy in front of it must return
 * 503, too.
 */
import { type Kubectl, runKubectl } from '../rig/kubectl.ts';
import type { Kubernetes } from '../rig/kubernetes.ts';
import type { Gateways } from './gateways.ts';

const GROUP = 'absent.rig.example';

interface Answer {
  readonly code: number;
  readonly stderr: string;
}

/** @returns the API server's own response, and the response through each gateway */
export async function checkAbsentApi(
  cluster: Kubernetes,
  gateways: Gateways,
  kubectl: Kubectl,
): Promise<{ readonly control: Answer; readonly seen: readonly Answer[] }> {
  const services = '/apis/apiregistration.k8s.io/v1/apiservices';
  await cluster.api('POST', services, {
    apiVersion: 'apiregistration.k8s.io/v1',
    kind: 'APIService',
    metadata: { name: `v1.${GROUP}` },
    spec: {
      group: GROUP,
      version: 'v1',
      groupPriorityMinimum: 1,
      versionPriority: 1,
      insecureSkipTLSVerify: true,
      service: { namespace: 'default', name: 'absent' },
    },
  });
  const ask = async (kubeconfig: string): Promise<Answer> => {
    const path = `/apis/${GROUP}/v1/things`;
    const { code, stderr } = await runKubectl(kubectl, ['get', '--raw', path], { kubeconfig });
    return { code, stderr: stderr.toString() };
  };
  try {
    let control = await ask(gateways.direct);
    // The aggregator routes the new group after a delay.
    for (let attempt = 0; !control.stderr.includes('ServiceUnavailable') && attempt < 40; attempt += 1) {
      await new Promise((done) => setTimeout(done, 250));
      control = await ask(gateways.direct);
    }
    const seen: Answer[] = [];
    for (const { kubeconfig } of gateways.all) seen.push(await ask(kubeconfig));
    return { control, seen };
  } finally {
    await cluster.api('DELETE', `${services}/v1.${GROUP}`);
  }
}
