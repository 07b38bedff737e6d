/** Errors about access requests. */
import { TailcastError } from '../errors.ts';
import { KubeRefusal } from '../operator/kube-client.ts';
import type { Petition } from '../proxy/gate/elevation.ts';
import { createSecretWork, showWords, TooManySecretsError } from '../secrets.ts';
import type { AccessRecord } from './record.ts';
import { describeDecision } from './request-object.ts';

const REMEDY = 'apply deploy/access to the cluster, as docs/access.md describes';

const MAX_DESCRIPTION = 300;

/**
 * Returns a description of the call that caused an access request, for the approvers: one line, without secrets. The
 * requester chooses the command, and could choose a command whose important words are hidden or cut off. The
 * description states whether this is the case.
 * @throws TailcastError `ACCESS_REQUEST_REFUSED` for a command with too many secrets
 */
export function describeRequest({ info, command, ask }: Pick<Petition, 'info' | 'command' | 'ask'>): string {
  const { verb, resource, subresource, name, namespace, path } = info;
  const kind = [resource, subresource].filter((part) => part !== '').join('/');
  const words = info.isResourceRequest
    ? [verb, kind, name, ...(namespace === '' ? [] : ['in', namespace])]
    : [verb, path];
  const shown = shownCommand(command, ask);
  const program = command.length === 0 ? '' : `: ${shown.words.join(' ')}`;
  const mark = shown.hidesCommand ? '(a hidden part may be a command) ' : '';
  const text = `${mark}${words.filter((word) => word !== '').join(' ')}${program}`;
  const more = text.length - MAX_DESCRIPTION;
  const end = more > 0 ? `… (${more} more characters)` : '';
  const line = text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, '\ufffd').slice(0, MAX_DESCRIPTION);
  return `${line.toWellFormed()}${end}`;
}

function shownCommand(command: Petition['command'], ask: Petition['ask']): ReturnType<typeof showWords> {
  try {
    return showWords(command, createSecretWork());
  } catch (error) {
    if (!(error instanceof TooManySecretsError)) throw error;
    const remedy = `request it first with: kubectl tailcast request ${flagsOf({ ask })}`;
    throw accessRefused(`the command has ${error.message}; ${remedy}`);
  }
}

/** Returns the error for an access request that does not have enough approvals yet. */
export function pending({ id, approvers, decisions }: AccessRecord, host: string): TailcastError {
  const missing = (approvers?.count ?? 1) - decisions.filter(({ verdict }) => verdict === 'approved').length;
  const what = `request ${id} needs ${missing} more approval${missing === 1 ? '' : 's'}`;
  const page = `page: https://${host}/-/recordings/access.html#${id}`;
  const wait = `wait for it with: kubectl tailcast requests --wait ${id}`;
  return new TailcastError('ACCESS_REQUEST_PENDING', `${what}; ${page}; ${wait}`);
}

/** Returns the error for access that was denied or revoked. */
export function blocked(record: AccessRecord): TailcastError {
  const { id, state, decisions } = record;
  const last = decisions.at(-1);
  const how = last === undefined ? state : describeDecision(last);
  const next = state === 'denied' ? '; send a new one with: kubectl tailcast request' : '';
  return accessRefused(`request ${id} was ${how}${next}`);
}

/** Returns the error for access that has expired or was revoked while it was used. */
export function ended(record: AccessRecord | undefined, id: string): TailcastError {
  const last = record?.decisions.at(-1);
  const how =
    record === undefined
      ? 'was removed'
      : record.state === 'granted' || record.state === 'expired' || last === undefined
        ? 'has expired'
        : `was ${describeDecision(last)}`;
  return new TailcastError('ACCESS_ENDED', `access request ${id} ${how}`);
}

/** Returns the error for access that the rules do not allow. */
export function accessRefused(detail: string): TailcastError {
  return new TailcastError('ACCESS_REQUEST_REFUSED', detail);
}

/** Returns the error for a check that failed. */
export function unavailable(detail: string, cause?: unknown): TailcastError {
  return new TailcastError('ACCESS_REQUEST_UNAVAILABLE', detail, { cause });
}

/** True if the API server certainly did not execute the call that caused this error. */
export function isRefusal(error: unknown): boolean {
  return error instanceof Error && error.cause instanceof KubeRefusal && error.cause.status < 500;
}

/** Returns a sentence with the remedy for a failure, if the remedy is known. */
export function problemOf(error: unknown): string | undefined {
  if (!(error instanceof KubeRefusal)) return undefined;
  if (error.status === 404) return `the cluster has no AccessRequest resource; ${REMEDY}`;
  if (error.status === 403 || error.status === 401)
    return `the gateway's account has no rights on accessrequests; ${REMEDY}`;
  return undefined;
}

/** Returns the command-line flags with which `kubectl tailcast request` requests this access. */
export function flagsOf({ ask: { groups, user, writes } }: Pick<Petition, 'ask'>): string {
  const named = groups.map((group) => `--group ${group}`);
  return [...named, ...(user === undefined ? [] : [`--user ${user}`]), ...(writes ? ['--writes'] : [])].join(
    ' ',
  );
}

const MAX_REASON = 500;

/**
 * @throws TailcastError `ACCESS_REQUEST_REFUSED` for a reason that is too long or has characters that cannot be printed
 */
export function checkReason(reason: string): string {
  if (reason.length > MAX_REASON) throw accessRefused(`the reason is longer than ${MAX_REASON} characters`);
  if (/[\p{C}\p{Zl}\p{Zp}]/u.test(reason))
    throw accessRefused('the reason has characters that cannot be printed');
  return reason.trim();
}
