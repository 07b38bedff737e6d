/** Targets for clients' requests and for configuration files. */
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
import { isLabelSelector, readFieldSelector } from '../../src/kube/selectors.ts';
import { recorderPath } from '../../src/portal/recorder-call.ts';
import { http2Fields } from '../../src/http2-fields.ts';
import { mapStream } from '../../src/proxy/front/http2.ts';
import type { Peer } from '../../src/tailnet/identity.ts';
import { decodeNamedViewer, encodeNamedViewer } from '../../src/wire/recorder-api/named-viewer.ts';
import {
  attempt,
  ensure,
  ensureEqual,
  latin1Of,
  textOf,
  utf8,
  words,
  type FuzzTarget,
  type Refusal,
} from '../target.ts';

/** Errors with these codes are rejections; any other error is a crash. */
export function refusals(...codes: readonly string[]): Refusal {
  return (error) => (error instanceof TailcastError && codes.includes(error.code) ? error.code : undefined);
}

/** Paths that the `proxy` subresource forwards to a program in the cluster. */
const PROXIED = /^\/api\/[^/]+\/(?:nodes|namespaces\/[^/]+\/(?:pods|services))\/[^/]+\/proxy\//;
const NEVER_UPGRADED: ReadonlySet<string> = new Set([
  'plain',
  'longRunning',
  'ephemeralContainers',
  'accessChange',
  'workload',
  'customResource',
]);

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
    const refusal = refusals('REQUEST_NOT_CANONICAL', 'TARGET_TOO_LONG', 'POLICY_REFUSED');
    const { value: target, refused } = attempt(() => parseTarget(raw), refusal);
    if (refused !== undefined) return refused;
    ensure(target.raw === raw, 'the raw target changed');
    const joined =
      target.rawQuery === ''
        ? [target.rawPath, `${target.rawPath}?`]
        : [`${target.rawPath}?${target.rawQuery}`];
    ensure(joined.includes(raw), 'the parts are not the whole');
    ensure(target.path.startsWith('/') && !/\p{Cc}/u.test(target.path), 'a control character got through');
    // Only paths below a `proxy` subresource may contain an encoded slash.
    const slashes = target.path.split('/').length - target.rawPath.split('/').length;
    ensure(slashes === 0 || target.path.includes('/proxy/'), 'an encoded slash got through');
    ensure(target.path === decodeURIComponent(target.rawPath), 'a path was not decoded exactly once');
    ensure(!/(?:^|[/\\])\.{1,2}(?:$|[/\\])/.test(target.path), 'a dot segment got through');
    if (!PROXIED.test(target.rawPath)) {
      ensure(!/\/\/|[\\;%]/.test(target.path), 'a second decoding would change the path');
      // a proxy that normalises URLs as browsers do must forward the same target
      ensureEqual(
        decodeURIComponent(new URL(`http://h${raw}`).pathname),
        target.path,
        'the path is not normal',
      );
    }
    // If a target was accepted, its decoded path must have the same meaning after it is encoded again.
    const rewritten = target.path.split('/').map(encodeURIComponent).join('/');
    const again = attempt(() => parseTarget(rewritten), refusal);
    if (again.value !== undefined) ensureEqual(again.value.segments, target.segments, 'segments changed');
    const info = parseRequestInfo('GET', target);
    parseExecOptions(target);
    const { value: plain, refused: policy } = attempt(
      () => classifyRequest(info, { upgrade: false, method: 'GET' }),
      refusal,
    );
    if (policy !== undefined) return policy;
    const upgraded = classifyRequest(info, { upgrade: true, method: 'GET' });
    ensure(!NEVER_UPGRADED.has(upgraded), 'an upgrade is called plain');
    const isExec = info.isResourceRequest && info.subresource === 'exec';
    ensure((upgraded === 'exec') === isExec, 'an exec is called something else, or the other way around');
    if (/^\/api\/v1\/namespaces\/[^/]+\/pods\/[^/]+\/(?:exec|attach)\/?$/.test(target.path)) {
      ensure(plain === info.subresource && upgraded === plain, 'a session is called something else');
    }
    return `${plain} ${upgraded} ${info.verb} ${info.subresource}`.slice(0, 60);
  },
};

/** Headers that identify the caller, or that a proxy must remove. */
const SPEAKING =
  /^(?:impersonate|x-remote|x-forwarded|tailscale|proxy-|(?:authorization|cookie2?|host|connection|audit-id|forwarded|te|upgrade)$)/;

const SPEAKING_WITHOUT_AUTH =
  /^(?:x[-_.]remote|x[-_.]forwarded|tailscale|proxy-|(?:forwarded|connection|upgrade|host)$)/i;

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
    const without = attempt(
      () => buildUpstreamHeaders({ rawHeaders, host: 'api', identity: { mode: 'noauth' } }),
      refusals('HEADER_REFUSED'),
    );
    for (const [index, name] of (without.value ?? []).slice(2).entries())
      ensure(index % 2 === 1 || !SPEAKING_WITHOUT_AUTH.test(name), 'a proxy speaks in noauth mode');
    const target = { user: 'alice', groups: ['g'], extra: [['k', 'v']] } as const;
    const identity = { mode: 'auth', target, authorization: 'Bearer ours' } as const;
    const { value, refused } = attempt(
      () => buildUpstreamHeaders({ rawHeaders, host: 'api', identity, auditId: 'id' }),
      refusals('HEADER_REFUSED', 'IMPERSONATION_REFUSED'),
    );
    if (refused !== undefined) return refused;
    const speaking = new Map<string, string[]>();
    for (let index = 0; index < value.length; index += 2) {
      // Some servers treat every character of a header name, except letters and digits, as a dash.
      const name = (value[index] ?? '').toLowerCase().replaceAll(/[^a-z0-9]/g, '-');
      if (SPEAKING.test(name)) speaking.set(name, [...(speaking.get(name) ?? []), value[index + 1] ?? '']);
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
    const protocols = value.filter(
      (_, index) => index % 2 === 1 && value[index - 1]?.toLowerCase() === 'sec-websocket-protocol',
    );
    for (const name of protocols.flatMap((offered) => offered.split(','))) {
      ensure(!/^\s*base64url\.bearer\.authorization\.k8s\.io\./i.test(name), 'a token got through');
    }
    return 'passed';
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

const portalTarget: FuzzTarget = {
  name: 'portal-target',
  words: words(
    '/-/recordings/ api/v1/recordings events /cast /live /sidecar assets/ index.html .. %2e %2F ? follow=1 ' +
      'nABC_2026-01-02T03:04:05Z',
  ),
  seeds: [
    '/-/recordings',
    '/-/recordings/',
    '/-/recordings/assets/main-AbC_1.js',
    '/-/recordings/api/v1/recordings?user=a&cursor=b',
    '/-/recordings/api/v1/recordings/nABC_2026-01-02T03:04:05.123456789Z/cast?follow=1',
    '/-/recordings/api/v1/recordings/nABC_2026-01-02T03:04:05Z/live',
  ].map(utf8),
  run(input) {
    const refusal = refusals('REQUEST_NOT_CANONICAL', 'TARGET_TOO_LONG', 'POLICY_REFUSED');
    const { value: target, refused } = attempt(() => parseTarget(latin1Of(input)), refusal);
    if (refused !== undefined) return refused;
    if (!target.path.startsWith('/-/recordings/api/')) return 'none';
    const path = recorderPath(target);
    ensure(/^(?:\/(?:[A-Za-z0-9_.!~*'()-]|%[0-9A-F]{2})*)+$/.test(path), 'a path that is not encoded');
    ensure(!/\/\.{0,2}(?:\/|$)|%(?:2[ef5]|5c)/i.test(path), 'a path that can be read in two ways');
    ensureEqual(
      decodeURIComponent(path),
      target.path.slice('/-/recordings'.length).replace(/\/$/, ''),
      'its path',
    );
    return `api ${path.split('/').length}`;
  },
};

/** `name: value` lines with names in lower case, as nghttp2 returns them. */
function fieldsOf(input: Uint8Array): string[] {
  return latin1Of(input)
    .split('\n')
    .flatMap((line) => {
      const colon = line.indexOf(':', 1);
      return colon === -1 ? [line, ''] : [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    });
}

const PEER: Peer = { address: '100.64.0.4', port: 1, source: 'socket' };
const NOT_OVER_HTTP2 =
  /^(?:connection|http2-settings|keep-alive|proxy-connection|te|transfer-encoding|upgrade)$/;

const http2Stream: FuzzTarget = {
  name: 'http2-stream',
  words: words(
    ':method: :path: :authority: :scheme:https :protocol: host: content-length: transfer-encoding: cookie: chunked',
    'etag: connection: x-content-type-options: 0x10 NaN 1e3 -5 9007199254740993 CONNECT \n',
  ),
  seeds: [
    ':method: GET\n:path: /api\n:authority: h\n:scheme: https\ncookie: a=1\ncookie: b=2',
    ':method: POST\n:path: /\n:scheme: https\nhost: h\ncontent-length: 5',
    ':method: POST\n:path: /\n:scheme: https\ncontent-length: 5\ncontent-length: 6\netag: a\netag: b',
    'content-encoding: gzip\ncontent-encoding: br\nconnection: x',
  ].map(utf8),
  run(input) {
    const fields = fieldsOf(input);
    const { inbound, problem, framing } = mapStream(fields, PEER);
    const names = inbound.rawHeaders.filter((_, index) => index % 2 === 0);
    ensure(!names.some((name) => name.startsWith(':')), 'a pseudo field became a field');
    ensure(names.filter((name) => name === 'cookie').length <= 1, 'cookies in crumbs');
    ensure(names.filter((name) => name === 'host').length <= 1, 'two hosts');
    const lengths = fields.filter((_, index) => index % 2 === 1 && fields[index - 1] === 'content-length');
    if (framing.kind === 'length')
      ensure(
        lengths.length === 1 &&
          /^\d+$/.test(lengths[0] ?? '') &&
          BigInt(lengths[0] ?? '') === BigInt(framing.bytes),
        'framed by something else than its one length',
      );
    else ensure(problem !== undefined || lengths.length === 0, 'a length without a frame');
    const { value: sent, refused } = attempt(() => http2Fields(fields), refusals('UPSTREAM_BROKEN'));
    if (refused !== undefined) return refused;
    const answered = sent.filter((_, index) => index % 2 === 0);
    ensure(!answered.some((name) => NOT_OVER_HTTP2.test(name)), 'a connection field got through');
    for (const once of ['etag', 'content-type', 'content-length', 'x-content-type-options'])
      ensure(answered.filter((name) => name === once).length <= 1, `${once} twice`);
    return `${framing.kind} ${problem?.code ?? ''} ${answered.length === fields.length / 2}`;
  },
};

const namedViewer: FuzzTarget = {
  name: 'named-viewer',
  words: words(
    'tailscale-user-login: x-tailcast-viewer-tags: x-tailcast-viewer-node: x-tailcast-viewer-node-id: ' +
      'x-tailcast-viewer-address:',
    'tag:ci,tag:dev , alice@example.com \n \t X-TAILCAST-VIEWER-',
  ),
  seeds: [
    'tailscale-user-login: a@b\nx-tailcast-viewer-node: n\nx-tailcast-viewer-node-id: ' +
      'i\nx-tailcast-viewer-address: 100.64.0.4',
    'x-tailcast-viewer-tags: tag:a,tag:b\nx-tailcast-viewer-node: n\nx-tailcast-viewer-node-id: ' +
      'i\nx-tailcast-viewer-address: 100.64.0.4',
    'host: h',
  ].map(utf8),
  run(input) {
    const fields = fieldsOf(input);
    const viewer = decodeNamedViewer(fields);
    if (viewer === undefined || viewer === 'malformed') return viewer ?? 'nobody';
    ensure((viewer.user === undefined) !== (viewer.tags.length === 0), 'neither a person nor a tagged node');
    ensureEqual(
      decodeNamedViewer(encodeNamedViewer(viewer) ?? []),
      viewer,
      'a viewer does not survive being written',
    );
    return viewer.user === undefined ? 'tags' : 'user';
  },
};

const selectors: FuzzTarget = {
  name: 'selectors',
  words: words('metadata.name = == != , \\ \\, in notin ( ) ! < > a.b/c 9223372036854775808'),
  seeds: ['metadata.name=x,a!=b', 'a=b\\,c', 'x in (a,b),!y,z', 'x>5,y notin (a)', 'a.b/c=='].map(utf8),
  run(input) {
    const text = textOf(input);
    const terms = readFieldSelector(text);
    for (const { field, value } of terms ?? [])
      ensure(text.includes(field) && value.length <= text.length, 'a term that is not there');
    if (terms !== undefined) {
      const written = terms
        .map(
          ({ field, equal, value }) => `${field}${equal ? '=' : '!='}${value.replaceAll(/[\\,=]/g, '\\$&')}`,
        )
        .join(',');
      const key = (term: unknown): string => JSON.stringify(term);
      ensureEqual(
        readFieldSelector(written)?.map(key).toSorted(),
        terms.map(key).toSorted(),
        'terms do not survive being written',
      );
    }
    return `${terms?.length ?? 'none'} ${isLabelSelector(text)}`;
  },
};

export const REQUEST_TARGETS: readonly FuzzTarget[] = [
  canonicalTarget,
  headers,
  kubeconfig,
  portalTarget,
  http2Stream,
  namedViewer,
  selectors,
];
