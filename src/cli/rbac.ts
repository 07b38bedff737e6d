/** `tailcast policy rbac`: prints the RBAC rules of a gateway's account, for `kubectl apply -f -`. */
import { stringify } from 'yaml';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';
import { impersonationRbac } from '../kube/impersonation-rbac.ts';
import { print } from './output.ts';
import type { Options } from './tool.ts';

/** Valid name of a Kubernetes object: RFC 1123 labels, joined by dots. */
const OBJECT_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

/** @throws TailcastError `USAGE` for an invalid Kubernetes name */
export async function printRbac(options: Options, context: CommandContext): Promise<void> {
  const objects = impersonationRbac({
    users: texts(options['user']),
    groups: texts(options['group']),
    constrained: options['constrained'] === true,
    auditExtras: options['auditExtras'] === true,
    namespace: objectName(options['namespace'], '--namespace'),
    account: objectName(options['account'], '--account'),
  });
  const documents = objects.map((object) => stringify(object, { aliasDuplicateObjects: false }));
  await print(context.stdout, documents.join('---\n'));
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

function objectName(value: unknown, option: string): string {
  if (typeof value === 'string' && OBJECT_NAME.test(value)) return value;
  throw new TailcastError('USAGE', `${option} is not a name that Kubernetes accepts`);
}
