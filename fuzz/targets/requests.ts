/** What clients and configuration files say to the gateway. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { TailcastError } from '../../src/errors.ts';
import { buildUpstreamHeaders } from '../../src/impersonation/apply.ts';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseExecOptions } from '../../src/kube/exec-options.ts';
import { classifyRequest } from '../../src/kube/interactive.ts';
import { readKubeconfigContext } from '../../src/kube/kubeconfig.ts';
import { parseRequestInfo } from '../../src/kube/request-info.ts';
import {
  attempt,
  ensure,
  ensureEqual,
  latin1Of,
  utf8,
  words,
  type FuzzTarget,
  type Refusal,
} from '../target.ts';

/** Refusals with one of these codes; any other error is a crash. */
export function refusals(...codes: readonly string[]): Refusal {
  return (error) => (error instanceof TailcastError && codes.includes(error.code) ? error.code : undefined);
}

const canonicalTarget: FuzzTarget = {
  name: 'canonical-target',
  words: words(
    '/ // /./ /../ %2F %2e %00 %25 ; \\ # ? & = + % exec attach proxy/ pods/p /api/v1/namespaces/n/ /apis/g/v1/',
    'watch=1 fieldSelector=metadata.name%3Dx tty=',
  ),
  seeds: [
    '/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true&tty=true&container=c',
    '/api/v1/namespaces/n/pods/p/proxy/a//b%2Fc;d?x=%ff',
    '/apis/apps/v1/deployments?watch=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=5',
    '/api/v1/watch/pods',
    '/',
    '/healthz?a;b=1&%zz',
  ].map(utf8),
  run(input) {
    const raw = latin1Of(input);
    const refusal = refusals('REQUEST_NOT_CANONICAL', 'POLICY_REFUSED');
    const { value: target, refused } = attempt(() => parseTarget(raw), refusal);
    if (refused !== undefined) return refused;
    ensure(target.raw === raw, 'the raw target changed');
    const joined =
      target.rawQuery === ''
        ? [target.rawPath, `${target.rawPath}?`]
        : [`${target.rawPath}?${target.rawQuery}`];
    ensure(joined.includes(raw), 'the parts are not the whole');
    ensure(target.path.startsWith('/') && !/\p{Cc}/u.test(target.path), 'a control character got through');
    // Nothing but what belongs to a program behind a proxy may hold a slash that was encoded.
    const slashes = target.path.split('/').length - target.rawPath.split('/').length;
    ensure(slashes === 0 || target.path.includes('/proxy/'), 'an encoded slash got through');
    // What was accepted and decoded once means the same when it is written anew.
    const rewritten = target.path.split('/').map(encodeURIComponent).join('/');
    const again = attempt(() => parseTarget(rewritten), refusal);
    if (again.value !== undefined) ensureEqual(again.value.segments, target.segments, 'segments changed');
    const info = parseRequestInfo('GET', target);
    parseExecOptions(target);
    const { value: plain, refused: policy } = attempt(
      () => classifyRequest(info, { upgrade: false }),
      refusal,
    );
    if (policy !== undefined) return policy;
    const upgraded = classifyRequest(info, { upgrade: true });
    ensure(upgraded !== 'plain' && upgraded !== 'longRunning', 'an upgrade is called plain');
    if (/^\/api\/v1\/namespaces\/[^/]+\/pods\/[^/]+\/(?:exec|attach)\/?$/.test(target.path)) {
      ensure(plain === info.subresource && upgraded === plain, 'a session is called something else');
    }
    return `${plain} ${upgraded} ${info.verb} ${info.subresource}`.slice(0, 60);
  },
};

/** Names that say who is calling, or that must end at a proxy. */
const SPEAKING =
  /^(?:impersonate|x-remote|x-forwarded|tailscale|proxy-|(?:authorization|cookie2?|host|connection|audit-id|forwarded|te|upgrade)$)/;

const headers: FuzzTarget = {
  name: 'upstream-headers',
  words: words(
    'Impersonate-User: Impersonate-Extra- Connection: Authorization: X-Remote- Sec-WebSocket-Protocol: _ . , \n',
    'base64url.bearer.authorization.k8s.io. X-Forwarded- Host: Audit-ID Cookie:',
  ),
  seeds: [
    'Host: h\nAccept: application/json\nAuthorization: Bearer x',
    'Connection: Impersonate-User, close\nImpersonate-User: root\nX-Remote-Group: a',
    'Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.x, v4.channel.k8s.io\nUpgrade: websocket',
  ].map(utf8),
  run(input) {
    const rawHeaders = latin1Of(input)
      .split('\n')
      .flatMap((line) => {
        const colon = line.indexOf(':');
        return colon === -1 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).trim()];
      });
    const target = { user: 'alice', groups: ['g'], extra: [['k', 'v']] } as const;
    const identity = { mode: 'auth', target, authorization: 'Bearer ours' } as const;
    const { value, refused } = attempt(
      () => buildUpstreamHeaders({ rawHeaders, host: 'api', identity, auditId: 'id' }),
      refusals('HEADER_REFUSED'),
    );
    if (refused !== undefined) return refused;
    const speaking = new Map<string, string[]>();
    for (let index = 0; index < value.headers.length; index += 2) {
      // As a server would see it that takes odd characters for dashes.
      const name = (value.headers[index] ?? '').toLowerCase().replaceAll(/[^a-z0-9]/g, '-');
      if (SPEAKING.test(name))
        speaking.set(name, [...(speaking.get(name) ?? []), value.headers[index + 1] ?? '']);
    }
    const ours = {
      host: ['api'],
      authorization: ['Bearer ours'],
      'audit-id': ['id'],
      'impersonate-user': ['alice'],
      'impersonate-group': ['g'],
      'impersonate-extra-k': ['v'],
    };
    ensureEqual(Object.fromEntries(speaking), ours, 'somebody else speaks');
    const protocols = value.headers.filter(
      (_, index) => index % 2 === 1 && value.headers[index - 1]?.toLowerCase() === 'sec-websocket-protocol',
    );
    for (const name of protocols.flatMap((offered) => offered.split(','))) {
      ensure(!/^\s*base64url\.bearer\.authorization\.k8s\.io\./i.test(name), 'a token got through');
    }
    return `passed ${value.ignored.length}`;
  },
};

const folder = mkdtempSync(joinPath(tmpdir(), 'tailcast-fuzz-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

const kubeconfig: FuzzTarget = {
  name: 'kubeconfig',
  words: [
    ...words('clusters: users: contexts: current-context: *a --- { } [ ] | > \n null ~ \t !<tag:x>'),
    '- name: a',
    '  cluster:',
    '    server: https://h',
    '&a ',
    '<<: *a',
    '!!binary ',
    '  ',
    '? ',
    '"',
  ],
  seeds: [
    'apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  cluster:\n    server: https://h:1\n' +
      'contexts:\n- name: a\n  context: {cluster: a, user: a}\nusers:\n- name: a\n  user:\n    token: t\n',
    '{"current-context":"a","clusters":[{"name":"a","cluster":{"server":"h"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}]}',
    'a: &a [x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: [*c, *c, *c]\n',
    '',
  ].map(utf8),
  run(input) {
    const file = joinPath(folder, 'config');
    writeFileSync(file, input);
    const { value, refused } = attempt(() => readKubeconfigContext([file]), refusals('CONFIG_INVALID'));
    if (refused !== undefined) return refused;
    ensure(
      typeof value.name === 'string' && value.cluster.value.server !== '',
      'a context without its parts',
    );
    return `read ${Object.keys(value.user.value).join(' ')}`;
  },
};

export const REQUEST_TARGETS: readonly FuzzTarget[] = [canonicalTarget, headers, kubeconfig];
