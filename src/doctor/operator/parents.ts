/** Checks the conditions of all resources, and returns remedies for conditions that are not true. */
import type { KubeObject } from '../../operator/kube-object.ts';
import { fullName } from '../../operator/object-cache.ts';
import type { Condition } from '../../operator/workload/status.ts';
import { isReady, parseProxyClass } from '../../operator/proxy-class/resource.ts';
import { problemsOf } from '../../operator/proxy-class/validation.ts';
import { failed, ok, skipped, warning, type Check, type CheckVerdict } from '../checks.ts';
import { conditionsIn, isShown, type ClusterView, type ParentKind } from './cluster-view.ts';

export interface ParentFacts {
  readonly view: ClusterView;
  /** Namespace of the operator. */
  readonly namespace: string;
  /** Default ProxyClass, for objects that name no ProxyClass. Empty if there is no default. */
  readonly defaultClass: string;
  readonly unixMs: () => number;
}

interface Kind {
  readonly kind: ParentKind;
  readonly id: string;
  readonly title: string;
  /** Pattern of the types of conditions that must all be true; undefined if the kind has no conditions. */
  readonly conditions: RegExp | undefined;
}

const PARENTS: readonly Kind[] = [
  { kind: 'Recorder', id: 'recorders', title: 'Recorders', conditions: /^RecorderReady$/ },
  { kind: 'Tailnet', id: 'tailnets', title: 'Tailnets', conditions: /^TailnetReady$/ },
  { kind: 'ProxyGroup', id: 'proxy-groups', title: 'ProxyGroups', conditions: /^ProxyGroupReady$/ },
  { kind: 'Connector', id: 'connectors', title: 'Connectors', conditions: /^ConnectorReady$/ },
  { kind: 'DNSConfig', id: 'dns-configs', title: 'DNSConfigs', conditions: /^NameserverReady$/ },
  { kind: 'Service', id: 'services', title: 'Services', conditions: /^Tailscale/ },
  { kind: 'Gateway', id: 'gateways', title: 'Gateways', conditions: /^(?:Accepted|Programmed)$/ },
  { kind: 'Ingress', id: 'ingresses', title: 'Ingresses', conditions: undefined },
];

/** Time in milliseconds after which a condition that is not true is reported as a failure. */
const PATIENCE_MS = 5 * 60_000;
const SHOWN = 5;
const LOG = 'check that an operator leads, and read its log';

export function parentChecks(facts: ParentFacts): readonly Check[] {
  return [classesCheck(facts), ...PARENTS.map((kind) => parentCheck(kind, facts))];
}

function classesCheck({ view, defaultClass }: ParentFacts): Check {
  return {
    id: 'proxy-classes',
    title: 'ProxyClasses',
    needs: ['resources'],
    remedy: LOG,
    async run() {
      const classes = (await view.classes()).map(parseProxyClass);
      if (defaultClass !== '' && !classes.some(({ metadata }) => metadata.name === defaultClass)) {
        return failed(
          `the default class ${defaultClass} does not exist: all resources without a class wait for it`,
          'create the class, or set another one with --default-proxy-class',
        );
      }
      const invalid = classes.flatMap((one) => {
        const problems = problemsOf(one);
        return problems.length === 0 ? [] : [`${one.metadata.name}: ${problems.join(', ')}`];
      });
      if (invalid.length > 0)
        return failed(some(invalid), 'fix these fields; resources with such a class wait');
      const unseen = classes.filter((one) => !isReady(one)).map(({ metadata }) => metadata.name);
      if (unseen.length > 0) return warning(`${some(unseen)}: not reconciled yet, so proxies wait`, LOG);
      return classes.length === 0 ? skipped('none') : ok(`${classes.length} valid`);
    },
  };
}

function parentCheck(parent: Kind, facts: ParentFacts): Check {
  const { kind, id, title } = parent;
  return {
    id,
    title,
    needs: ['resources'],
    remedy: LOG,
    async run() {
      const objects = await facts.view.parents(kind);
      if (objects === undefined) return skipped('disabled');
      if (objects.length === 0) return skipped('none');
      const findings = objects.flatMap((object) => examineParent(parent, object, facts) ?? []);
      return verdictOf(findings, objects.length);
    },
  };
}

interface Finding {
  readonly text: string;
  readonly remedy: string;
  /** True if the problem may disappear without a change, or may be intended. */
  readonly isYoung: boolean;
}

function verdictOf(findings: readonly Finding[], count: number): CheckVerdict {
  if (findings.length === 0) return ok(`${count} ready`);
  // Problems that may disappear without a change, or may be intended, are shown last.
  const ordered = findings.toSorted((a, b) => Number(a.isYoung) - Number(b.isYoung));
  const summary = some(ordered.map(({ text }) => text));
  const remedy = [...new Set(ordered.slice(0, SHOWN).map((finding) => finding.remedy))].join('; ');
  return ordered.every(({ isYoung }) => isYoung) ? warning(summary, remedy) : failed(summary, remedy);
}

function examineParent(
  { kind, conditions }: Kind,
  object: KubeObject,
  { namespace, unixMs }: ParentFacts,
): Finding | undefined {
  const { metadata } = object;
  const name = fullName(object);
  const isYoung = (since: string | undefined): boolean => unixMs() - Date.parse(since ?? '') < PATIENCE_MS;
  const pods = `check its pods (kubectl -n ${namespace} get pods -l tailscale.com/parent-resource=${metadata.name})`;
  const described =
    `kubectl${metadata.namespace === undefined ? '' : ` -n ${metadata.namespace}`} describe ` +
    `${kind.toLowerCase()} ${metadata.name} shows the reason`;
  const { deletionTimestamp, creationTimestamp } = metadata;
  if (deletionTimestamp !== undefined) {
    const text = `${name}: in deletion since ${deletionTimestamp}`;
    const remedy =
      `its pods and nodes must disappear first: ${LOG}, and check that the control server ` +
      `responds; ${pods}`;
    return { text, remedy, isYoung: isYoung(deletionTimestamp) };
  }
  if (conditions === undefined) {
    if (isShown(object)) return undefined;
    const text = `${name}: not reachable from the tailnet yet`;
    return { text, remedy: described, isYoung: isYoung(creationTimestamp) };
  }
  const wanted = conditionsIn(object).filter(({ type }) => conditions.test(type));
  if (wanted.length === 0)
    return { text: `${name}: not reconciled yet`, remedy: LOG, isYoung: isYoung(creationTimestamp) };
  const open = wanted.find(({ status }) => status !== 'True');
  if (open !== undefined) {
    const waits = isWaiting(open);
    return {
      text: `${name}: ${open.message === open.reason ? open.reason : `${open.reason}: ${open.message}`}`,
      remedy: waits ? pods : described,
      isYoung: waits && isYoung(open.lastTransitionTime),
    };
  }
  const partial = wanted.find(({ reason }) => reason.endsWith('Partial'));
  if (partial !== undefined)
    return {
      text: `${name}: ${partial.message}`,
      remedy: 'follow this message, or ignore it',
      isYoung: true,
    };
  const stale = wanted.find((one) => (one.observedGeneration ?? 0) < (metadata.generation ?? 0));
  if (stale === undefined) return undefined;
  return { text: `${name}: changed, and not reconciled since`, remedy: LOG, isYoung: true };
}

/** True if the condition indicates that the operator is still working on the resource. */
function isWaiting({ reason, message }: Condition): boolean {
  return (
    /Pending$|Creating$|NotReady$|NotReadyToRouteTraffic$|PartiallyReady/.test(reason) ||
    /\bwaiting\b/.test(message)
  );
}

/** Joins the first texts, and appends the number of the omitted texts. */
export function some(texts: readonly string[]): string {
  const more = texts.length - SHOWN;
  return texts.slice(0, SHOWN).join('; ') + (more > 0 ? `; and ${more} more` : '');
}
