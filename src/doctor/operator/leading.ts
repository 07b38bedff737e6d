/** Checks that an operator has the Lease, and its version. */
import { z } from 'zod';
import { KINDS, type KubeObject } from '../../operator/kube-object.ts';
import { leaseSchema } from '../../operator/leader.ts';
import { failed, ok, skipped, warning, type Check, type CheckVerdict } from '../checks.ts';
import type { ClusterView } from './cluster-view.ts';

export interface LeadingFacts {
  readonly view: ClusterView;
  readonly namespace: string;
  /** Undefined without an election. */
  readonly lease: string | undefined;
  /** Version and image of this program. */
  readonly version: string;
  readonly image: string;
  readonly unixMs: () => number;
}

const podSchema = z.object({
  spec: z.object({ containers: z.array(z.object({ name: z.string(), image: z.string().default('') })) }),
});

/** Maximum difference between two synchronised clocks. */
const SKEW_MS = 30_000;
const START =
  'check that its pod runs and that its log contains “leading” (kubectl -n <namespace> get pods, logs)';

export function leadingChecks(facts: LeadingFacts): readonly Check[] {
  const { view, namespace, lease: name } = facts;
  const remedy = START.replace('<namespace>', namespace);
  const lease = async (signal: AbortSignal): Promise<KubeObject | undefined> =>
    name === undefined ? undefined : view.get(KINDS.lease, { namespace, name }, signal);
  return [
    {
      id: 'leader',
      title: 'leader',
      needs: ['credential'],
      remedy,
      async run(signal) {
        if (name === undefined) return skipped('no election: --lease=off');
        return leaseVerdict(await lease(signal), facts, remedy);
      },
    },
    {
      id: 'versions',
      title: 'versions',
      needs: ['leader'],
      remedy,
      async run(signal) {
        const found = await lease(signal);
        const holder = found === undefined ? '' : leaseSchema.parse(found).spec.holderIdentity;
        // The holder is the name of a pod, and an id that is unique per start.
        const [podName = ''] = holder.split('_');
        const pod =
          podName === '' ? undefined : await view.get(KINDS.pod, { namespace, name: podName }, signal);
        if (pod === undefined)
          return skipped(`this is ${facts.version}; this namespace has no pod of the operator`);
        return imageVerdict(
          podSchema.parse(pod).spec.containers.map(({ image }) => image),
          facts,
        );
      },
    },
  ];
}

function leaseVerdict(
  lease: KubeObject | undefined,
  { lease: name, unixMs }: LeadingFacts,
  remedy: string,
): CheckVerdict {
  if (lease === undefined) return failed(`there is no Lease ${name}: no operator has started yet`, remedy);
  const { holderIdentity, leaseDurationSeconds, renewTime, acquireTime, leaseTransitions } =
    leaseSchema.parse(lease).spec;
  if (holderIdentity === '') return failed('no operator leads: the last one released the Lease', remedy);
  const overdueMs = unixMs() - Date.parse(renewTime) - leaseDurationSeconds * 1000;
  if (!(overdueMs < SKEW_MS))
    return failed(
      `${holderIdentity} has not renewed its Lease since ${renewTime}, so no operator leads`,
      remedy,
    );
  return ok(`${holderIdentity} since ${acquireTime}, after ${leaseTransitions} others`);
}

function imageVerdict(
  images: readonly string[],
  { version, image }: Pick<LeadingFacts, 'version' | 'image'>,
): CheckVerdict {
  if (
    images.includes(image) ||
    images.some((one) => one.endsWith(`:v${version}`) || one.includes(`:v${version}@`))
  )
    return ok(`${version}, like the operator`);
  return warning(
    `this is ${version}, and the operator runs ${images.join(', ')}`,
    'run doctor from the operator’s image, or upgrade the operator',
  );
}
