import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseRequestInfo, type RequestInfo } from '../../src/kube/request-info.ts';
import { oddTarget, targetOf } from '../support/targets.ts';
import { rowsOf } from '../support/text-table.ts';

function infoOf(method: string, target: string): RequestInfo {
  return parseRequestInfo(method, parseTarget(target));
}

/** Fields that a case does not name are empty. */
const EMPTY = {
  isResourceRequest: true,
  clusterPrefix: '',
  apiPrefix: 'api',
  apiGroup: '',
  apiVersion: 'v1',
  namespace: '',
  subresource: '',
  name: '',
  fieldSelector: '',
  labelSelector: '',
};

describe('RequestInfo of the fifteen conformance cases', () => {
  it.each<[name: string, method: string, target: string, info: Partial<RequestInfo>]>([
    [
      'request-with-dot-in-name',
      'GET',
      '/api/v1/namespaces/default/pods/foo.bar',
      { verb: 'get', namespace: 'default', resource: 'pods', name: 'foo.bar', parts: ['pods', 'foo.bar'] },
    ],
    [
      'request-with-dash-in-name',
      'GET',
      '/api/v1/namespaces/default/pods/foo-bar',
      { verb: 'get', namespace: 'default', resource: 'pods', name: 'foo-bar', parts: ['pods', 'foo-bar'] },
    ],
    [
      'request-with-query-parameter',
      'GET',
      '/api/v1/pods?watch=true',
      { verb: 'watch', path: '/api/v1/pods', resource: 'pods', parts: ['pods'] },
    ],
    [
      'request-with-label-selector',
      'GET',
      '/api/v1/pods?labelSelector=app%3Dfoo',
      { verb: 'list', resource: 'pods', parts: ['pods'], labelSelector: 'app=foo' },
    ],
    [
      'request-with-field-selector',
      'GET',
      '/api/v1/pods?fieldSelector=status.phase%3DRunning',
      { verb: 'list', resource: 'pods', parts: ['pods'], fieldSelector: 'status.phase=Running' },
    ],
    [
      'request-for-non-existent-resource',
      'GET',
      '/api/v1/foo',
      { verb: 'list', resource: 'foo', parts: ['foo'] },
    ],
    ['basic-request', 'GET', '/api/v1/pods', { verb: 'list', resource: 'pods', parts: ['pods'] }],
    ['multiple-recorders', 'GET', '/api/v1/pods', { verb: 'list', resource: 'pods', parts: ['pods'] }],
    ['request-with-body', 'POST', '/api/v1/pods', { verb: 'create', resource: 'pods', parts: ['pods'] }],
    ['tagged-node', 'GET', '/api/v1/pods', { verb: 'list', resource: 'pods', parts: ['pods'] }],
    ['no-recorders', 'GET', '/api/v1/pods', { verb: 'list', resource: 'pods', parts: ['pods'] }],
    ['error-sending', 'GET', '/api/v1/pods', { verb: 'list', resource: 'pods', parts: ['pods'] }],
    [
      'request-for-crd',
      'GET',
      '/apis/custom.example.com/v1/myresources',
      {
        verb: 'list',
        apiPrefix: 'apis',
        apiGroup: 'custom.example.com',
        resource: 'myresources',
        parts: ['myresources'],
      },
    ],
    [
      'request-with-proxy-verb',
      'GET',
      '/api/v1/namespaces/default/pods/foo/proxy',
      {
        verb: 'get',
        namespace: 'default',
        resource: 'pods',
        name: 'foo',
        subresource: 'proxy',
        parts: ['pods', 'foo', 'proxy'],
      },
    ],
    [
      'request-with-complex-path',
      'GET',
      '/api/v1/namespaces/default/services/foo:8080/proxy-subpath/more/segments',
      {
        verb: 'get',
        namespace: 'default',
        resource: 'services',
        name: 'foo:8080',
        subresource: 'proxy-subpath',
        parts: ['services', 'foo:8080', 'proxy-subpath', 'more', 'segments'],
      },
    ],
  ])('%s', (_name, method, target, info) => {
    expect(infoOf(method, target)).toEqual({ ...EMPTY, path: parseTarget(target).path, ...info });
  });
});

const OTHER = '/api/v1/namespaces/other';
const OTHER_PROXY = '/api/v1/proxy/namespaces/other/pods/foo';

describe("RequestInfo of Kubernetes' own cases", () => {
  // columns: method | target | verb | group | version | namespace | resource | subresource | name | parts
  it.each(
    rowsOf(`
    GET | /api/v1/namespaces | list | - | v1 | - | namespaces | - | - | namespaces
    GET | /api/v1/namespaces/other | get | - | v1 | other | namespaces | - | other | namespaces/other
    GET | ${OTHER}/pods | list | - | v1 | other | pods | - | - | pods
    HEAD | ${OTHER}/pods/foo | get | - | v1 | other | pods | - | foo | pods/foo
    HEAD | /api/v1/pods | list | - | v1 | - | pods | - | - | pods
    GET | ${OTHER_PROXY} | proxy | - | v1 | other | pods | - | foo | pods/foo
    GET | ${OTHER_PROXY}/not/a/subresource | proxy | - | v1 | other | pods | - | foo | pods/foo/not/a/subresource
    GET | /api/v1/watch/pods | watch | - | v1 | - | pods | - | - | pods
    GET | /api/v1/pods?watch=false | list | - | v1 | - | pods | - | - | pods
    GET | /api/v1/watch/namespaces/other/pods | watch | - | v1 | other | pods | - | - | pods
    GET | ${OTHER}/pods?watch=1 | watch | - | v1 | other | pods | - | - | pods
    GET | ${OTHER}/pods?watch=0 | list | - | v1 | other | pods | - | - | pods
    GET | ${OTHER}/pods/foo/status | get | - | v1 | other | pods | status | foo | pods/foo/status
    GET | ${OTHER}/pods/foo/proxy/subpath | get | - | v1 | other | pods | proxy | foo | pods/foo/proxy/subpath
    PUT | ${OTHER}/finalize | update | - | v1 | other | namespaces | finalize | other | namespaces/other/finalize
    PUT | ${OTHER}/status | update | - | v1 | other | namespaces | status | other | namespaces/other/status
    PATCH | ${OTHER}/pods/foo | patch | - | v1 | other | pods | - | foo | pods/foo
    DELETE | ${OTHER}/pods/foo | delete | - | v1 | other | pods | - | foo | pods/foo
    DELETE | /api/v1/nodes | deletecollection | - | v1 | - | nodes | - | - | nodes
    DELETE | /api/v1/namespaces | deletecollection | - | v1 | - | namespaces | - | - | namespaces
    DELETE | /apis/ext/v1/namespaces/other/pods | deletecollection | ext | v1 | other | pods | - | - | pods
    POST | /apis/extensions/v1beta3/namespaces/other/pods | create | extensions | v1beta3 | other | pods | - | - | pods
    OPTIONS | /api/v1/pods | - | - | v1 | - | pods | - | - | pods
    get | /api/v1/pods | - | - | v1 | - | pods | - | - | pods
    # D1, D3: a trailing slash and an encoded letter change nothing
    POST | /api/v1/namespaces/n/pods/p/exec/ | create | - | v1 | n | pods | exec | p | pods/p/exec
    GET | /api/v1/namespaces/n/p%6fds/p/%65xec | get | - | v1 | n | pods | exec | p | pods/p/exec
    # D6: verbs before the resource
    GET | /api/v1/proxy/nodes/n/run | proxy | - | v1 | - | nodes | - | n | nodes/n/run
    POST | /apis/apps/v1/watch/namespaces/n/deployments/d | watch | apps | v1 | n | deployments | - | d | deployments/d
    # D7: names that are words of the grammar
    GET | /api/v1/namespaces/n/status | get | - | v1 | n | namespaces | status | n | namespaces/n/status
    GET | /api/v1/namespaces/pods/pods/exec | get | - | v1 | pods | pods | - | exec | pods/exec
    POST | /api/v1/namespaces/exec/pods/attach/exec | create | - | v1 | exec | pods | exec | attach | pods/attach/exec
    GET | /api/v1/namespaces/proxy/pods/proxy/log | get | - | v1 | proxy | pods | log | proxy | pods/proxy/log
    GET | /api/v1/namespaces/namespaces/namespaces | list | - | v1 | namespaces | namespaces | - | - | namespaces
    GET | /api/v1/namespaces/n/pods/a.b.c/exec | get | - | v1 | n | pods | exec | a.b.c | pods/a.b.c/exec
    GET | /api/v1/namespaces/n/status/x | get | - | v1 | n | namespaces | status | n | namespaces/n/status/x
    # D8: exec elsewhere
    GET | /apis/x/v9/namespaces/n/pods/p/exec | get | x | v9 | n | pods | exec | p | pods/p/exec
  `),
  )(
    '%s %s',
    (
      method = '',
      target = '',
      verb,
      apiGroup,
      apiVersion,
      namespace,
      resource,
      subresource,
      name,
      parts = '',
    ) => {
      const info = infoOf(method, target);
      expect(info).toMatchObject({
        isResourceRequest: true,
        verb,
        apiGroup,
        apiVersion,
        namespace,
        resource,
        subresource,
        name,
        parts: parts.split('/'),
      });
    },
  );

  it.each([
    ['/', ''],
    ['/healthz', ''],
    ['/openapi/v3/apis/apps/v1', ''],
    ['/api', ''],
    ['/api/v1', ''],
    ['/api/v1/', ''],
    ['/apis', ''],
    ['/apis/apps', ''],
    ['/apis/apps/v1', 'apis'],
    ['/apis/apps/v1/', 'apis'],
    ['/badprefix/version/resource', ''],
    ['/API/v1/pods', ''],
  ])('%s names no resource', (target, apiPrefix) => {
    expect(infoOf('GET', target)).toEqual({
      ...EMPTY,
      isResourceRequest: false,
      path: target,
      verb: 'get',
      apiPrefix,
      apiVersion: '',
      resource: '',
      parts: [],
    });
  });

  it('lower-cases the method of a non-resource request', () => {
    expect(infoOf('DELETE', '/logs/x').verb).toBe('delete');
  });

  it('knows no more than Kubernetes when a path verb stands alone', () => {
    expect(infoOf('GET', '/api/v1/watch')).toMatchObject({
      isResourceRequest: true,
      verb: 'get',
      resource: '',
      parts: [],
    });
  });
});

describe('long selectors', () => {
  it('that must be parsed are refused above 16 KiB', () => {
    const labels = 'a%20in%20(b),'.repeat(2000);
    for (const query of [
      `fieldSelector=${'a=b,'.repeat(63_000)}a=b`,
      `fieldSelector=a=b&labelSelector=${labels}c`,
    ])
      expect(() => infoOf('GET', `/api/v1/pods?${query}`)).toThrow(
        expect.objectContaining({ code: 'TARGET_TOO_LONG' }),
      );
    expect(infoOf('GET', `/api/v1/pods?labelSelector=${labels}c`)).toMatchObject({ verb: 'list' });
  });

  it.each(['a,!a,', 'a=b,', '!a,', 'a%20in%20(b),'])('of the form %j need little CPU', (labels) => {
    const target = `/api/v1/pods?fieldSelector=a=b&labelSelector=${labels.repeat(16_000 / labels.length)}c`;
    infoOf('GET', target);
    const before = process.cpuUsage();
    for (let round = 0; round < 10; round += 1) infoOf('GET', target);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(150);
  });
});

describe('list options', () => {
  const list = '/apis/group/version/resource';
  it.each<[query: string, verb: string, name: string, fieldSelector: string, labelSelector?: string]>([
    ['', 'list', '', ''],
    ['fieldSelector=metadata.name=name1', 'list', 'name1', 'metadata.name=name1'],
    ['watch=true&fieldSelector=metadata.name=name1', 'watch', 'name1', 'metadata.name=name1'],
    ['fieldSelector=foo=bar&labelSelector=baz=qux', 'list', '', 'foo=bar', 'baz=qux'],
    ['fieldSelector=metadata.name=name1,foo', 'list', '', 'metadata.name=name1,foo'],
    ['fieldSelector=metadata.name=name1,foo&watch=true', 'watch', '', 'metadata.name=name1,foo'],
    ['fieldSelector=metadata.name=name1,foo&watch=false', 'list', '', 'metadata.name=name1,foo'],
    [
      'fieldSelector=metadata.name=foo&fieldSelector=metadata.name=bar&labelSelector=foo=bar&labelSelector=foo=baz',
      'list',
      'foo',
      'metadata.name=foo',
      'foo=bar',
    ],
    ['fieldSelector=metadata.name==x', 'list', 'x', 'metadata.name==x'],
    ['fieldSelector=metadata.name!=x', 'list', '', 'metadata.name!=x'],
    ['fieldSelector=metadata.name=b,metadata.name=a', 'list', 'a', 'metadata.name=b,metadata.name=a'],
    ['fieldSelector=metadata.name=a%5C%2Cb', 'list', 'a,b', 'metadata.name=a\\,b'],
    ['fieldSelector=metadata.name=a%5Cb', 'list', '', 'metadata.name=a\\b'],
    ['fieldSelector=metadata.name=a/b', 'list', '', 'metadata.name=a/b'],
    ['fieldSelector=metadata.name=..', 'list', '', 'metadata.name=..'],
    ['fieldSelector=metadata.name=x&limit=x', 'list', '', 'metadata.name=x'],
    ['fieldSelector=metadata.name=x&limit=', 'list', '', 'metadata.name=x'],
    ['fieldSelector=metadata.name=x&limit=9223372036854775807', 'list', 'x', 'metadata.name=x'],
    ['fieldSelector=metadata.name=x&timeoutSeconds=9223372036854775808', 'list', '', 'metadata.name=x'],
    ['fieldSelector=metadata.name=x&labelSelector=a%20in%20(b', 'list', '', 'metadata.name=x', 'a in (b'],
    ['watch&timeoutSeconds=999999999', 'watch', '', ''],
    ['watch=true&watch=false', 'watch', '', ''],
    ['watch=false&watch=true', 'list', '', ''],
    ['watch=fal%C5%BFe', 'list', '', ''],
    ['watch=fal%C5%BFe&limit=x', 'watch', '', ''],
  ])('GET with %s', (options, verb, name, fieldSelector, labelSelector = '') => {
    const target = options === '' ? list : `${list}?${options}`;
    expect(infoOf('GET', target)).toMatchObject({ verb, name, fieldSelector, labelSelector });
  });

  it('of a collection count for a DELETE', () => {
    expect(infoOf('DELETE', `${list}?fieldSelector=foo=bar&labelSelector=baz=qux`)).toMatchObject({
      verb: 'deletecollection',
      name: '',
      fieldSelector: 'foo=bar',
      labelSelector: 'baz=qux',
    });
  });

  const watch = '/apis/group/version/watch/resource';
  it.each<[method: string, target: string, verb: string, name: string]>([
    ['GET', `${list}/name?fieldSelector=foo=bar&labelSelector=foo=bar`, 'get', 'name'],
    ['GET', `${watch}?fieldSelector=metadata.name=foo&labelSelector=foo=bar`, 'watch', ''],
    ['GET', `${watch}/name?fieldSelector=metadata.name=foo`, 'watch', 'name'],
    ['HEAD', `${list}?watch=`, 'watch', ''],
    ['POST', `${list}?watch=1`, 'create', ''],
  ])('%s %s has no selectors', (method, target, verb, name) => {
    const selectors = { fieldSelector: '', labelSelector: '' };
    expect(infoOf(method, target)).toMatchObject({ verb, name, ...selectors });
  });
});

describe('RequestInfo below the prefix of a cluster', () => {
  it.each<[target: string, clusterPrefix: string]>([
    ['/clusters/c', '/clusters/c'],
    ['/clusters/root:org:team-a', '/clusters/root:org:team-a'],
    ['/clusters/root%3Ateam-a', '/clusters/root:team-a'],
    ['/clusters/*', '/clusters/*'],
    ['/clusters/api', '/clusters/api'],
    ['/k8s/clusters/c-m-1a2b', '/k8s/clusters/c-m-1a2b'],
  ])('%s is that of the request to the cluster', (prefix, clusterPrefix) => {
    const path = '/api/v1/namespaces/n/pods/p/exec';
    const info = infoOf('POST', `${prefix}${path}?command=sh`);
    expect(info).toEqual({ ...infoOf('POST', path), clusterPrefix, path: `${clusterPrefix}${path}` });
  });

  it.each([
    '/clusters/-a/api/v1/pods',
    '/clusters/api/v1/pods',
    '/clusters/a/clusters/b/api/v1/pods',
    '/clusters/a%20b/api/v1/pods',
    '/k8s/api/v1/pods',
    '/k8s/cluster/c/api/v1/pods',
    '/services/w/clusters/c/api/v1/pods',
    '/Clusters/c/api/v1/pods',
    '/clusters/c/healthz',
    '/clusters/c/api/v1',
  ])('%s names no resource', (target) => {
    expect(infoOf('GET', target)).toMatchObject({ isResourceRequest: false, clusterPrefix: '' });
  });
});

describe('RequestInfo', () => {
  it('has an answer for every canonical target and every method', () => {
    let answered = 0;
    const method = fc.oneof(
      fc.constantFrom('GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'),
      fc.string(),
    );
    fc.assert(
      fc.property(method, oddTarget, (verb, raw) => {
        const target = targetOf(raw);
        if (target === undefined) return true;
        answered++;
        const info = parseRequestInfo(verb, target);
        const third = info.verb === 'proxy' ? '' : (info.parts[2] ?? '');
        const empty = info.resource + info.subresource + info.namespace + info.name === '';
        return (
          info.path === target.path &&
          info.subresource === third &&
          info.resource === (info.parts[0] ?? '') &&
          (info.isResourceRequest || (empty && info.parts.length === 0))
        );
      }),
      { numRuns: 3000 },
    );
    expect(answered).toBeGreaterThan(300);
  });
});
