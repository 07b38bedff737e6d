/** The commands that request, list and decide access through the gateway of a kubeconfig context. */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';
import { parseDuration } from '../tailnet/access-rules.ts';
import { contextPortal } from './context-archive.ts';
import { formatDuration, plain, print, printJson } from './output.ts';
import { decodeBody, requestApi } from './recorder-archive.ts';
import type { Options } from './tool.ts';
import { textOf, textsOf } from './arguments.ts';

const REQUEST = z.object({
  id: z.string(),
  state: z.string(),
  access: z.string(),
  requester: z.string(),
  node: z.string(),
  /** Cluster of the request; absent if the gateway serves only one cluster. */
  cluster: z.string().exactOptional(),
  /** Namespaces to which the access applies; empty for all namespaces. */
  namespaces: z.array(z.string()),
  reason: z.string(),
  /** The gateway's description of the call that caused the request. */
  call: z.string(),
  durationSeconds: z.number(),
  /** Time at which granted access ends, or at which a pending request can no longer be decided. */
  expiresAt: z.string(),
  decisions: z.array(z.object({ verdict: z.string(), by: z.string(), reason: z.string() })),
  isMine: z.boolean(),
  mayDecide: z.boolean(),
});
type Request = z.infer<typeof REQUEST>;
const LIST = z.object({ requests: z.array(REQUEST) });

const POLL_MS = 1000;

/** Runs `tailcast request`. @returns the exit code */
export async function requestAccess(options: Options, context: CommandContext): Promise<number> {
  const duration = textOf(options['for']);
  const ms = duration === undefined ? undefined : parseDuration(duration);
  if (duration !== undefined && ms === undefined)
    throw new TailcastError('USAGE', `--for ${duration} is not a duration such as 30m or 4h`);
  const query = new URLSearchParams(textsOf(options['group']).map((group) => ['group', group]));
  for (const [name, value] of [
    ['user', textOf(options['user'])],
    ['reason', textOf(options['reason'])],
    ['cluster', textOf(options['cluster'])],
    ['writes', options['writes'] === true ? '1' : undefined],
    ['seconds', ms === undefined ? undefined : String(Math.floor(ms / 1000))],
  ] as const)
    if (value !== undefined) query.set(name, value);
  const call = await openCalls(options, context);
  const request = REQUEST.parse(await call('POST', `?${query.toString()}`));
  if (options['wait'] === true && request.state === 'pending') {
    await print(context.stderr, `request ${plain(request.id)} is pending; waiting for the decision\n`);
    return report(await wait(call, request.id, context), options, context);
  }
  return report(request, options, context);
}

/** Runs `tailcast requests`. @returns the exit code */
export async function listAccess(options: Options, context: CommandContext): Promise<number> {
  const call = await openCalls(options, context);
  const id = textOf(options['wait']);
  if (id !== undefined) return report(await wait(call, id, context), options, context);
  const { requests } = LIST.parse(await call('GET', ''));
  for (const request of requests)
    if (options['json'] === true) await printJson(context.stdout, request);
    else await print(context.stdout, `${lineOf(request)}\n`);
  if (requests.length === 0 && options['json'] !== true) await print(context.stdout, 'no access requests\n');
  return 0;
}

/** Runs `tailcast approve`, `deny` or `revoke`. */
export async function decideAccess(
  verdict: 'approve' | 'deny' | 'revoke',
  id: string,
  options: Options,
  context: CommandContext,
): Promise<void> {
  const call = await openCalls(options, context);
  const reason = textOf(options['reason']);
  const query = reason === undefined ? '' : `?${new URLSearchParams({ reason }).toString()}`;
  const request = REQUEST.parse(await call('POST', `/${encodeURIComponent(id)}/${verdict}${query}`));
  await print(context.stdout, `${lineOf(request)}\n`);
}

type Call = (method: 'GET' | 'POST', path: string) => Promise<unknown>;

async function openCalls(options: Options, context: CommandContext): Promise<Call> {
  const base = await contextPortal(
    { kubeconfig: textOf(options['kubeconfig']), context: textOf(options['context']) },
    context,
  );
  return async (method, path) => {
    const headers = base.token === undefined ? {} : { authorization: `Bearer ${base.token}` };
    const response = await requestApi(base.address, `access/requests${path}`, {}, context.signal, {
      method,
      headers,
    });
    return decodeBody(response, base.address, z.unknown());
  };
}

async function wait(call: Call, id: string, { signal }: CommandContext): Promise<Request> {
  for (;;) {
    const request = REQUEST.parse(await call('GET', `/${encodeURIComponent(id)}`));
    if (request.state !== 'pending') return request;
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function report(request: Request, options: Options, { stdout }: CommandContext): Promise<number> {
  if (options['json'] === true) await printJson(stdout, request);
  else await print(stdout, `${lineOf(request)}\n`);
  return request.state === 'granted' || request.state === 'pending' ? 0 : 1;
}

function lineOf(request: Request): string {
  const { id, state, access, requester, cluster, namespaces, reason, call, decisions } = request;
  const by = decisions.map((one) => [`${one.verdict} by ${one.by}`, quoted(one.reason)].join(' ').trim());
  const place = [
    ...(cluster === undefined ? [] : [`cluster ${cluster}`]),
    ...(namespaces.length === 0 ? [] : [`namespaces ${namespaces.join(', ')}`]),
  ];
  const texts = [
    id,
    state,
    access,
    ...place,
    requester,
    timeOf(request),
    ...by,
    labelled('first call', call),
    labelled('reason', reason),
  ];
  return plain(texts.filter((text) => text !== '').join('  '));
}

/** Returns a text in quotes, so that it cannot imitate the other parts of the line. */
function quoted(text: string): string {
  return text === '' ? '' : JSON.stringify(text);
}

function labelled(label: string, text: string): string {
  return text === '' ? '' : `${label} ${quoted(text)}`;
}

function timeOf({ state, durationSeconds, expiresAt }: Request): string {
  if (state === 'pending') return `for ${formatDuration(durationSeconds)}, decide before ${expiresAt}`;
  return state === 'granted' ? `until ${expiresAt}` : '';
}
