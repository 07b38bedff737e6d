/** Targets for the table of `tailcast ingress` and for the routing of client requests. */
import { TailcastError } from '../../src/errors.ts';
import { fieldsForClient, fieldsForService, trailersForClient } from '../../src/ingress/fields.ts';
import { parseTable, routeOf } from '../../src/ingress/routes.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import type { IngressTable } from '../../src/wire/ingress-table.ts';
import { attempt, ensure, ensureEqual, textOf, utf8, type FuzzTarget } from '../target.ts';

const TABLE: IngressTable = {
  version: 1,
  certificates: [{ hosts: ['own.example.org'], certificatePem: 'pem', keyPem: 'key' }],
  secure: ['own.example.org', '*.wide.example.org'],
  hosts: [
    {
      name: 'own.example.org',
      prefixes: [
        ['/', 'http://10.0.0.1:80'],
        ['/api', 'h2c://10.0.0.2:81'],
      ],
      exact: [['/api/', 'https+insecure://[fd00::1]:443']],
    },
    { name: '*.wide.example.org', prefixes: [['/', 'http://10.0.0.3:80']], exact: [] },
    { name: '', prefixes: [['/', 'http://10.0.0.4:80']], exact: [] },
  ],
  redirect: true,
};
const PLAIN: IngressTable['plain'] = [
  { name: 'own.example.org', prefixes: [['/', 'redirect:302']], exact: [['/api', 'refused']] },
  { name: '**.wide.example.org', prefixes: [['/', 'http://10.0.0.5:80']], exact: [] },
  { name: '', prefixes: [['/api', 'http://10.0.0.6:80']], exact: [] },
];
const TAGGED: Identity = {
  kind: 'tagged',
  nodeId: 'n1',
  nodeName: 'ci.lab.ts.net',
  addresses: ['100.64.0.1'],
  capabilities: new Map(),
  tags: ['tag:ci'],
};
const TARGETS = ['/', '/api', '/api/', '/api/x?y', '/a/../b', '/%2e%2e/x', 'x'];

/** The first line of an input is the table; the other lines are requested hosts. */
const ingressTable: FuzzTarget = {
  name: 'ingress-table',
  words: [
    '"version":1',
    '"certificates":',
    '"secure":',
    '"redirect":true',
    '"hosts":',
    '"plain":',
    '"redirect:301"',
    '"refused"',
    '"**."',
    '"prefixes":[["/","http://a:1"]]',
    '"exact":',
    '"*."',
    '""',
    '[]',
    '\n',
    '*.',
    ':443',
  ],
  seeds: [
    utf8(`${JSON.stringify(TABLE)}\nown.example.org\nOWN.example.org.:443\nx.wide.example.org\nother.org`),
    utf8(`${JSON.stringify({ ...TABLE, secure: [''], redirect: false })}\nany.example.org\n[fd00::1]:80`),
    utf8(`${JSON.stringify({ ...TABLE, plain: PLAIN })}\nown.example.org\na.b.wide.example.org\nother.org`),
    utf8('{"version":1,"certificates":[],"secure":[],"hosts":[],"redirect":false}\na'),
  ],
  run(input) {
    const [text = '', ...authorities] = textOf(input).split('\n', 8);
    const { value: table, refused } = attempt(
      () => parseTable(text),
      (error) => (error instanceof TailcastError && error.code === 'CONFIG_INVALID' ? error.code : undefined),
    );
    if (refused !== undefined) return refused;
    ensureEqual(parseTable(JSON.stringify(table)), table, 'a table does not survive being written');
    const upstreams = new Set(
      [...table.hosts, ...(table.plain ?? [])].flatMap(({ prefixes, exact }) =>
        [...prefixes, ...exact].map(([, upstream]) => upstream),
      ),
    );
    const outcomes = authorities.flatMap((authority) =>
      TARGETS.map((target) => {
        const [open, closed] = [false, true].map((secure) => routeOf(table, { authority, target, secure }));
        ensure(closed?.kind !== 'redirect', 'HTTPS is led to HTTPS');
        ensure(
          table.plain !== undefined || open?.kind !== 'found' || closed?.kind !== 'found',
          'served by HTTP and by HTTPS',
        );
        for (const route of [open, closed]) {
          if (route?.kind !== 'found') continue;
          ensure(upstreams.has(route.upstream), 'it leads where no rule does');
          ensure(!target.includes('..') && !target.includes('%2e'), 'a path that leads out was followed');
        }
        if (open?.kind === 'redirect') {
          ensure(open.location.endsWith(target), 'the redirect leads to another path');
          ensure(
            /^https:\/\/(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])\/.*$/s.test(open.location),
            'it leads elsewhere',
          );
        }
        return `${open?.kind[0]}${closed?.kind[0]}`;
      }),
    );
    return [...new Set(outcomes)].toSorted().join(' ');
  },
};

/** The input contains headers of a client or of a Service, one per line. */
const ingressFields: FuzzTarget = {
  name: 'ingress-fields',
  words: [
    'tailscale',
    '-user-login',
    'x-forwarded-',
    'forwarded',
    'x-real-ip',
    'host',
    'connection',
    '_',
    '.',
    ':',
    ',',
    '\n',
    'trailers',
    'te:',
    'content-length:',
  ],
  seeds: [
    utf8('Host:a\nTailscale-User-Login:b\nX_Forwarded_For:c\nConnection:close, x-a\nX-A:d'),
    utf8('te:trailers\ncontent-length:4\n:path:/\netag:"a"\nEtag:"b"\ntransfer-encoding:chunked'),
  ],
  run(input) {
    const raw = textOf(input)
      .split('\n', 64)
      .flatMap((line) => {
        const [, name = '', value = ''] = /^(:?[^:]*):?(.*)$/s.exec(line) ?? [];
        return [name, value];
      });
    const sent = fieldsForService({
      raw,
      authority: 'own.example.org',
      secure: true,
      peer: { address: '100.64.0.1' },
      identity: TAGGED,
    });
    const names = sent
      .filter((_, index) => index % 2 === 0)
      .map((name) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-'));
    ensureEqual(
      names.filter((name) => /^(?:tailscale-|x-forwarded-|x-real-ip$|forwarded$|host$)/.test(name)),
      ['host', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto'],
      'a client says who asks, or how',
    );
    for (const list of [sent.slice(2), fieldsForClient(204, raw), trailersForClient(raw)])
      for (let index = 0; index < list.length; index += 2)
        ensure(
          !/^(?::.*|content-length|transfer-encoding|connection|upgrade)$/i.test(list[index] ?? ''),
          'a field of the connection',
        );
    return `${names.length}`;
  },
};

export const INGRESS_TARGETS: readonly FuzzTarget[] = [ingressTable, ingressFields];
