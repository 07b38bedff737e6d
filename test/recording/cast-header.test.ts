import { expect, it } from 'vitest';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseExecOptions } from '../../src/kube/exec-options.ts';
import { parseRequestInfo } from '../../src/kube/request-info.ts';
import { castHeaderLine } from '../../src/recording/cast-header.ts';
import { parseHead } from '../../src/tsrecorder/library/cast-head.ts';

const target = parseTarget('/api/v1/namespaces/shop/pods/web/exec?command=sh');

function headerLine(cluster: string | undefined): string {
  const facts = {
    sessionId: 's1',
    identity: {
      kind: 'user',
      nodeId: 'nLAP',
      nodeName: 'laptop',
      addresses: [],
      capabilities: new Map(),
      userId: 1n,
      login: 'alice@example.com',
      displayName: '',
    },
    info: parseRequestInfo('GET', target),
    exec: parseExecOptions(target),
    timestamp: 1,
    user: 'alice@example.com',
    auditId: undefined,
    groups: [],
    protocol: 'websocket',
    subprotocol: '',
    cluster,
  } as const;
  return castHeaderLine(facts, { columns: 80, rows: 24 });
}

it('a header names the cluster, and without a cluster has no additional key', () => {
  const [alone, named] = [headerLine(undefined), headerLine('prod')];
  expect(named).toBe(alone.replace(/}\n$/, ',"tailcastCluster":"prod"}\n'));
  expect(parseHead(alone)).not.toHaveProperty('cluster');
  expect(parseHead(named)?.cluster).toBe('prod');
});

it.each(['Prod', 'a/b', '', 'a.b', '-a', 'a'.repeat(64), 7, null, { a: 1 }])(
  'a forged cluster name is ignored: %j',
  (name) => {
    const forged = headerLine('prod').replace('"prod"', JSON.stringify(name));
    expect(parseHead(forged)).toMatchObject({ kind: 'exec' });
    expect(parseHead(forged)).not.toHaveProperty('cluster');
  },
);
