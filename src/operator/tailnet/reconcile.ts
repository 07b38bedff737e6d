/** Reconciles one Tailnet: checks its credentials at the control server, and writes its condition. Effects only. */
import { z } from 'zod';
import { errorText } from '../../errors.ts';
import { FINALIZER, KINDS } from '../kube-object.ts';
import { secretData } from '../workload/node-state.ts';
import { removeFinalizer, report, type Reconciler, type ReconcilerDeps } from '../workload/reconciler.ts';
import { metadataSchema, statusSchema } from '../workload/schema.ts';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import { credentialsProblem } from './credentials.ts';
import type { Tailnets } from './tailnets.ts';

/** Interval between checks of credentials that the control server refuses, in milliseconds. */
const RECHECK_MS = 30_000;
/**
 * ID of an auth key that does not exist. The response to a query for this key shows whether the OAuth client may read
 * keys.
 */
const NO_KEY = 'tailcast-scope-check';

const tailnetSchema = z.object({
  metadata: metadataSchema,
  spec: z.object({ credentials: z.object({ secretName: z.string() }) }),
  status: statusSchema,
});

type Tailnet = z.infer<typeof tailnetSchema>;

export function createTailnetReconciler(
  deps: Pick<ReconcilerDeps, 'client' | 'clock' | 'leaving' | 'options'> & { readonly tailnets: Tailnets },
): Reconciler {
  const { client } = deps;
  return {
    async reconcile(name) {
      const object = await client.get(KINDS.tailnet, { name });
      if (object === undefined) return undefined;
      const tailnet = tailnetSchema.parse(object);
      const { metadata } = tailnet;
      if (metadata.deletionTimestamp !== undefined || deps.leaving === true) {
        // tailcast does not add this finalizer, but the reference (Tailscale's operator) does.
        await removeFinalizer(deps, { kind: KINDS.tailnet, finalizer: FINALIZER, metadata });
        return undefined;
      }
      const verdict = await verdictOf(tailnet);
      await report(deps, KINDS.tailnet, tailnet, { TailnetReady: verdict });
      return verdict.ready ? undefined : RECHECK_MS;
    },
  };

  async function verdictOf({ metadata, spec }: Tailnet): Promise<Verdict> {
    const { namespace } = deps.options;
    const { secretName } = spec.credentials;
    const secret = await client.get(KINDS.secret, { namespace, name: secretName });
    const problem = secret === undefined ? 'it does not exist' : credentialsProblem(secretData(secret));
    if (problem !== undefined)
      return failed('InvalidSecret', `Secret ${namespace}/${secretName}: ${problem}`);
    const answer = await deps.tailnets.of(metadata.name);
    if (answer.kind === 'gone') return failed('InvalidSecret', answer.message);
    const { control } = answer;
    const checks = [
      () => control.allDevices(),
      () => control.keyUsable(NO_KEY),
      () => control.services?.list(),
    ];
    const problems = new Set<string>();
    for (const check of checks)
      try {
        await check();
      } catch (error) {
        problems.add(errorText(error));
      }
    return problems.size === 0 ? succeeded('TailnetValid') : failed('InvalidOAuth', [...problems].join('; '));
  }
}
