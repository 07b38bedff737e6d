/** Loads the policy file of a gateway, and explains how the policy applies to one request. */
import { readConfigFile } from '../config/file.ts';
import { TailcastError } from '../errors.ts';
import { parseTarget } from '../kube/canonical-target.ts';
import { classifyRequest } from '../kube/interactive.ts';
import { parseRequestInfo, type RequestInfo } from '../kube/request-info.ts';
import { parsePolicy } from '../proxy/gate/policy-file.ts';
import {
  decide,
  DEFAULT_POLICY,
  isBodyRequired,
  policyClassOf,
  type Policy,
  type PolicyAction,
  type PolicyClass,
} from '../proxy/gate/policy.ts';
import type { InboundRequest } from '../proxy/gate/gate.ts';

/** @throws TailcastError `CONFIG_INVALID` with all problems of the file */
export function loadPolicy(path: string | undefined): Policy {
  if (path === undefined) return DEFAULT_POLICY;
  return parsePolicy(readConfigFile(path).entries, path);
}

export interface ExplainOptions extends Pick<InboundRequest, 'method' | 'target' | 'upgrade'> {
  readonly file: string | undefined;
}

/**
 * Returns lines that explain a request: its parsed form, its class, and the gateway's decision for callers with and
 * without enforced recording.
 *
 * @throws TailcastError `CONFIG_INVALID` if the policy file is invalid; if the request is rejected, the lines say so
 */
export function explainRequest({ method, target: raw, upgrade, file }: ExplainOptions): readonly string[] {
  const policy = loadPolicy(file);
  const asked = `${method} ${raw}${upgrade ? ' (upgrade)' : ''}`;
  try {
    const target = parseTarget(raw);
    const info = parseRequestInfo(method, target);
    const requestClass = classifyRequest(info, { upgrade, method });
    const policyClass = policyClassOf({ requestClass, info, target, upgrade });
    const lines = [asked, `  read as   ${readAs(info)}`];
    if (policyClass === undefined) {
      return [
        ...lines,
        `  class     ${requestClass}`,
        '  forwarded; sent to a recorder only if a grant sets enableEvents',
      ];
    }
    const sections = (['failClosed', 'failOpen', 'off'] as const).map((mode) => {
      const { action, because } = decide(policy, policyClass, { mode });
      return `  ${MODE_LABELS[mode]} ${effect(action, mode, { upgrade, policyClass })} (${because}: ${action})`;
    });
    return [...lines, `  class     ${policyClass}`, ...sections, ...limits(policy, policyClass)];
  } catch (error) {
    if (error instanceof TailcastError) return [asked, `  refused for everybody: ${error.message}`];
    throw error;
  }
}

type Mode = 'failClosed' | 'failOpen' | 'off';

const MODE_LABELS: Readonly<Record<Mode, string>> = {
  failClosed: 'enforced: ',
  failOpen: 'recorder: ',
  off: 'others:   ',
};

function effect(
  action: PolicyAction,
  mode: Mode,
  { upgrade, policyClass }: { readonly upgrade: boolean; readonly policyClass: PolicyClass },
): string {
  switch (action) {
    case 'refuse':
      return 'refused';
    case 'allow':
      return upgrade &&
        (policyClass === 'streamUpgrade' || policyClass === 'secretRead') &&
        mode === 'failClosed'
        ? 'forwarded, for reading only'
        : 'forwarded';
    case 'record':
      if (mode === 'failClosed' && !upgrade) return 'refused, as only an upgrade can be recorded';
      if (mode === 'off') return 'forwarded, because no recorder is named';
      return mode === 'failClosed' ? 'recorded, or refused' : 'recorded, or forwarded with a warning';
    case 'event':
      if (mode === 'off') return 'forwarded, because no recorder is named';
      return mode === 'failClosed' ? 'sent to a recorder, or refused' : 'sent to a recorder if one responds';
  }
}

function limits(policy: Policy, policyClass: PolicyClass): readonly string[] {
  const { refusedPorts } = policy;
  const mode = 'failClosed';
  if (policy.enforced[policyClass] === 'event' && isBodyRequired(policy, policyClass, { mode }))
    return ['  enforced: refused if the body cannot be read (workloads.unreadable: refuse)'];
  if (policyClass !== 'portForward' || refusedPorts.length === 0) return [];
  const shown = refusedPorts.map(({ first, last }) => (first === last ? String(first) : `${first}-${last}`));
  return [`  never to ports ${shown.join(', ')}`];
}

function readAs(info: RequestInfo): string {
  if (!info.isResourceRequest) return `${info.verb} ${info.path}`;
  const { verb, apiGroup, resource, subresource, namespace, name } = info;
  const what = [resource, subresource].filter((part) => part !== '').join('/');
  const group = apiGroup === '' ? '' : `.${apiGroup}`;
  const where = namespace === '' ? '' : ` in ${namespace}`;
  return `${verb} ${what}${group}${name === '' ? '' : ` ${name}`}${where}`;
}
