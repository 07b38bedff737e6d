import { badRequest } from './api-status.ts';
import { at, stringMapAt, type ApiObject } from './json.ts';
import type { Resource } from './resources.ts';

/** Returns true if an object matches a selector. */
export type Selector = (object: ApiObject) => boolean;

const LABEL_KEY = /^[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?$/;

/**
 * Parses a `labelSelector`: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, joined by commas. Throws
 * a 400 error for invalid text. Source: apimachinery `pkg/labels/selector.go`.
 */
export function parseLabelSelector(text: string): Selector {
  const terms = splitOutsideParentheses(text)
    .filter((term) => term !== '')
    .map(labelTerm);
  return (object) => {
    const labels = stringMapAt(object, 'metadata', 'labels');
    return terms.every((term) => term(labels));
  };
}

type LabelTerm = (labels: ReadonlyMap<string, string>) => boolean;

function labelTerm(term: string): LabelTerm {
  const set = /^(\S+)\s+(in|notin)\s*\(([^()]*)\)$/.exec(term);
  if (set !== null) {
    const [, key = '', operator, list = ''] = set;
    checkKey(key, term);
    const values = list.split(',').map((value) => value.trim());
    return operator === 'in'
      ? (labels) => values.includes(labels.get(key) ?? '\0')
      : (labels) => !values.includes(labels.get(key) ?? '\0');
  }
  const equality = /^([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)$/.exec(term);
  if (equality !== null) {
    const [, key = '', operator, value = ''] = equality;
    checkKey(key, term);
    return operator === '!=' ? (labels) => labels.get(key) !== value : (labels) => labels.get(key) === value;
  }
  const negated = term.startsWith('!');
  const key = negated ? term.slice(1).trim() : term;
  checkKey(key, term);
  return (labels) => labels.has(key) !== negated;
}

function checkKey(key: string, term: string): void {
  if (!LABEL_KEY.test(key)) {
    throw badRequest(
      `unable to parse requirement: found '${term}', expected: a label key, an operator and values`,
    );
  }
}

function splitOutsideParentheses(text: string): string[] {
  return [...text.matchAll(/((?:\([^()]*\)|[^,()]|[()])*)(?:,|$)/g)].map(([, term = '']) => term.trim());
}

/** Fields that field selectors may use in addition to `metadata.name` and `metadata.namespace`, by `Kind`. */
const SELECTABLE: Readonly<Record<string, readonly string[]>> = {
  Pod: [
    'spec.nodeName',
    'spec.restartPolicy',
    'spec.schedulerName',
    'spec.serviceAccountName',
    'spec.hostNetwork',
    'status.phase',
    'status.podIP',
    'status.nominatedNodeName',
  ],
  Event: [
    'involvedObject.kind',
    'involvedObject.namespace',
    'involvedObject.name',
    'involvedObject.uid',
    'involvedObject.apiVersion',
    'involvedObject.resourceVersion',
    'involvedObject.fieldPath',
    'reason',
    'reportingComponent',
    'source',
    'type',
  ],
  Namespace: ['status.phase'],
  Node: ['spec.unschedulable'],
  Secret: ['type'],
  Service: ['spec.clusterIP', 'spec.type'],
  ReplicaSet: ['status.replicas'],
};

/**
 * Parses a `fieldSelector`: `a=b`, `a==b`, `a!=b`, joined by commas (all must match). Throws a 400 error like the API
 * server for a field that cannot be selected.
 */
export function parseFieldSelector(text: string, resource: Resource): Selector {
  const terms = text
    .split(',')
    .filter((term) => term !== '')
    .map((term) => {
      const match = /^([^=!]+)(==|=|!=)(.*)$/.exec(term);
      if (match === null) throw badRequest(`invalid field selector "${text}": can't understand '${term}'`);
      const [, field = '', operator, value = ''] = match;
      const fields = ['metadata.name', 'metadata.namespace', ...(SELECTABLE[resource.kind] ?? [])];
      if (!fields.includes(field)) {
        throw badRequest(
          `Unable to find "${resource.group}/${resource.version}, Resource=${resource.plural}" that match label ` +
            'selector "", field selector ' +
            `"${text}": field label not supported: ${field}`,
        );
      }
      const path = field.split('.');
      return (object: ApiObject): boolean => (fieldText(object, path) === value) !== (operator === '!=');
    });
  return (object) => terms.every((term) => term(object));
}

function fieldText(object: ApiObject, path: readonly string[]): string {
  const value = at(object, ...path);
  if (value === undefined || value === null) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
