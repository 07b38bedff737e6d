/** From what was observed to the status of a Connector. Pure. */
import { sameJson, withCondition, type Condition, type ShownDevice, type Verdict } from '../nodes/status.ts';
import type { Connector } from './resource.ts';

const READY = 'ConnectorReady';

/** Stable reasons; dashboards and scripts match on them. */
export type ConnectorReason =
  | 'ConnectorCreated'
  | 'ConnectorCreating'
  | 'ConnectorCreationFailed'
  | 'ConnectorInvalid'
  | 'ConnectorTailnetUnavailable'
  | 'ConnectorNameTaken'
  | 'ConnectorTagsNotAllowed';

export interface ConnectorStatus {
  readonly conditions: readonly Condition[];
  /** What it does, as far as it is deployed. */
  readonly subnetRoutes: string;
  readonly isExitNode: boolean;
  readonly isAppConnector: boolean;
  readonly devices: readonly ShownDevice[];
  /** Of the first device, as older clients read it. */
  readonly hostname: string;
  readonly tailnetIPs: readonly string[];
}

/**
 * The new status, or undefined when nothing changes.
 *
 * @param devices undefined: nothing was deployed, so that what was said of the nodes stays.
 * @param nowIso RFC 3339 with seconds.
 */
export function nextStatus(
  { metadata, spec, status }: Connector,
  verdict: Verdict<ConnectorReason>,
  devices: readonly ShownDevice[] | undefined,
  nowIso: string,
): ConnectorStatus | undefined {
  const conditions = withCondition(status.conditions, READY, verdict, metadata.generation, nowIso);
  const { conditions: _conditions, ...before } = status;
  const [first] = devices ?? [];
  const shown =
    devices === undefined
      ? before
      : {
          subnetRoutes: (spec.subnetRouter?.advertiseRoutes ?? []).toSorted().join(','),
          isExitNode: spec.exitNode,
          isAppConnector: spec.appConnector !== undefined,
          devices,
          hostname: first?.hostname ?? '',
          tailnetIPs: first?.tailnetIPs ?? [],
        };
  const next = { conditions, ...shown };
  return sameJson(next, status) ? undefined : next;
}
