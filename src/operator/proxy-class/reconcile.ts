/** Reconciles one ProxyClass: validates it, and writes its condition. Effects only. */
import { KINDS } from '../kube-object.ts';
import { report, type Reconciler, type ReconcilerDeps } from '../workload/reconciler.ts';
import { failed, succeeded } from '../workload/status.ts';
import { parseProxyClass, READY } from './resource.ts';
import { problemsOf, warningsOf } from './validation.ts';

export function createProxyClassReconciler(
  deps: Pick<ReconcilerDeps, 'client' | 'events' | 'clock'>,
): Reconciler {
  return {
    async reconcile(name) {
      const object = await deps.client.get(KINDS.proxyClass, { name });
      if (object === undefined) return undefined;
      const proxyClass = parseProxyClass(object);
      const { metadata } = proxyClass;
      if (metadata.deletionTimestamp !== undefined) return undefined;
      const target = { kind: KINDS.proxyClass, metadata };
      const problems = problemsOf(proxyClass);
      const message = `ProxyClass is not valid: ${problems.join('; ')}`;
      if (problems.length > 0) await deps.events.warn(target, { reason: 'ProxyClassInvalid', message });
      for (const warning of warningsOf(proxyClass)) {
        await deps.events.warn(target, { reason: 'CustomTSEnvVar', message: warning });
      }
      const verdict =
        problems.length > 0 ? failed('ProxyClassInvalid', message) : succeeded('ProxyClassValid');
      await report(deps, KINDS.proxyClass, proxyClass, { [READY]: verdict });
      return undefined;
    },
  };
}
