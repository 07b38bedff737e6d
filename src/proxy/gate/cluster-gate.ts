/**
 * The gate of a gateway with several clusters: chooses the cluster of a request before any other decision, and passes
 * the request to the gate of that cluster. Each cluster has its own gate, so a cached result never applies to another
 * cluster.
 */
import { TailcastError } from '../../errors.ts';
import { parseTarget } from '../../kube/canonical-target.ts';
import { chooseCluster, isMounted, type GatewayCluster, type ClusterSnapshot } from './cluster.ts';
import { checkEnvelope, type Gate } from './gate.ts';

/** A cluster with its gate. */
export interface GatedCluster extends GatewayCluster {
  readonly gate: Gate;
}

export interface ClusterGateDeps {
  /** Returns the current clusters. */
  readonly current: () => ClusterSnapshot<GatedCluster>;
  /** Gate for requests to the gateway itself, and for requests whose cluster does not exist. */
  readonly own: Gate;
}

/** Creates the gate. The gate throws the errors of `Gate`, and `CLUSTER_*` errors. */
export function createClusterGate({ current, own }: ClusterGateDeps): Gate {
  return {
    async admit(request, signal, identified) {
      const { host } = checkEnvelope(request);
      const snapshot = current();
      const { cluster, named, target } = chooseCluster(snapshot, { ...request, host });
      if (cluster !== undefined) {
        if (!cluster.kcp && isMounted(target)) {
          throw new TailcastError('REQUEST_NOT_CANONICAL', 'its path names a cluster twice');
        }
        return cluster.gate.admit(named === undefined ? request : { ...request, target }, signal, identified);
      }
      // an unknown cluster gets the same checks in the same order as a cluster for which the caller has no
      // rule, so that the error does not reveal which clusters exist
      const { rawHeaders } = request;
      parseTarget(named?.includes('%') === true ? request.target : target);
      await own.recognise(
        { ...request, target, rawHeaders: withoutImpersonation(rawHeaders) },
        false,
        signal,
      );
      throw new TailcastError(named === undefined ? missing(request.target) : 'CLUSTER_REFUSED');
    },
    async recognise(request, page, signal) {
      const { host } = checkEnvelope(request);
      const { cluster } = chooseCluster(current(), { ...request, host });
      return (cluster?.gate ?? own).recognise(request, page, signal);
    },
    async confirm(admission, peer, signal) {
      const before = admission.cluster;
      if (before === undefined) return own.confirm(admission, peer, signal);
      const now = current().byName.get(before.name);
      if (now === undefined || now.id !== before.id) {
        throw new TailcastError('ACCESS_ENDED', `the cluster ${before.name} was removed from the gateway`);
      }
      return now.gate.confirm(admission, peer, signal);
    },
  };
}

function withoutImpersonation(rawHeaders: readonly string[]): readonly string[] {
  return rawHeaders.filter((_, index) => {
    const name = rawHeaders[index - (index % 2)] ?? '';
    return !name.toLowerCase().startsWith('impersonate');
  });
}

/** Returns the error for a request without a cluster. Paths of the gateway itself never name a cluster. */
function missing(target: string): 'NOT_FOUND' | 'CLUSTER_MISSING' {
  return /^\/-(?:[/?]|$)/.test(target) ? 'NOT_FOUND' : 'CLUSTER_MISSING';
}
