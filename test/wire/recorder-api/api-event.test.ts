import { describe, expect, it } from 'vitest';
import { encodeApiRequestEvent, type ApiRequestEvent } from '../../../src/wire/recorder-api/api-event.ts';
import { thrownBy, utf8 } from '../bytes.ts';

const EVENT: ApiRequestEvent = {
  timestamp: 1_700_000_000,
  userAgent: 'kubectl/v1.33',
  request: {
    method: 'POST',
    path: '/api/v1/pods?x=y',
    body: utf8('k8s\0body'),
    queryParameters: new Map([['x', ['y']]]),
  },
  kubernetes: {
    IsResourceRequest: true,
    Path: '/api/v1/pods',
    Verb: 'create',
    APIPrefix: 'api',
    APIGroup: '',
    APIVersion: 'v1',
    Namespace: '',
    Resource: 'pods',
    Subresource: '',
    Name: '',
    Parts: ['pods'],
    FieldSelector: '',
    LabelSelector: '',
  },
  source: { node: 'node.ts.net', nodeID: 'stable-id', nodeUserID: 1n, nodeUser: 'user@example.com' },
};

describe('API request event', () => {
  it('has the keys of the protocol in its order', () => {
    expect(encodeApiRequestEvent(EVENT)).toBe(
      '{"type":"kubernetes-api-request","id":"","timestamp":1700000000,"userAgent":"kubectl/v1.33",' +
        '"request":{"method":"POST","path":"/api/v1/pods?x=y","body":"azhzAGJvZHk=","queryParameters":{"x":["y"]}},' +
        '"kubernetes":{"IsResourceRequest":true,"Path":"/api/v1/pods","Verb":"create","APIPrefix":"api","APIGroup":"",' +
        '"APIVersion":"v1","Namespace":"","Resource":"pods","Subresource":"","Name":"","Parts":["pods"],' +
        '"FieldSelector":"","LabelSelector":""},' +
        '"source":{"node":"node.ts.net","nodeID":"stable-id","nodeUserID":1,"nodeUser":"user@example.com"},' +
        '"destination":{"node":"","nodeID":""}}\n',
    );
  });

  it('does not depend on the order in which the caller names things', () => {
    const kubernetes = Object.fromEntries(
      Object.entries(EVENT.kubernetes).toReversed(),
    ) as unknown as typeof EVENT.kubernetes;
    expect(encodeApiRequestEvent({ ...EVENT, kubernetes })).toBe(encodeApiRequestEvent(EVENT));
  });

  it('writes 64-bit user ids exactly', () => {
    const source = { node: 'n', nodeID: 'i', nodeUserID: 16793133573424020n, nodeUser: 'u' };
    expect(encodeApiRequestEvent({ ...EVENT, source })).toContain('"nodeUserID":16793133573424020,');
  });

  it('names tags for a tagged node and leaves out what is empty', () => {
    const source = { node: 'n', nodeID: 'i', nodeTags: ['tag:x'], nodeUserID: 0n, nodeUser: '' };
    expect(encodeApiRequestEvent({ ...EVENT, source })).toContain(
      '"source":{"node":"n","nodeID":"i","nodeTags":["tag:x"]},',
    );
    const bare = { node: 'n', nodeID: 'i', nodeTags: [] };
    expect(encodeApiRequestEvent({ ...EVENT, source: bare })).toContain(
      '"source":{"node":"n","nodeID":"i"},',
    );
  });

  it('writes an empty body as empty text, no query as {}, no parts as null', () => {
    const line = encodeApiRequestEvent({
      ...EVENT,
      request: { method: 'GET', path: '/version', body: utf8(''), queryParameters: new Map() },
      kubernetes: { ...EVENT.kubernetes, IsResourceRequest: false, Parts: null },
    });
    expect(line).toContain('"body":"","queryParameters":{}}');
    expect(line).toContain('"Parts":null,');
  });

  it('sorts query parameters, keeps every value and treats __proto__ as a name', () => {
    const queryParameters = new Map([
      ['limit', ['5']],
      ['watch', ['1']],
      ['timeout', ['1s']],
      ['command', ['sh', '-c']],
      ['__proto__', ['x']],
    ]);
    expect(encodeApiRequestEvent({ ...EVENT, request: { ...EVENT.request, queryParameters } })).toContain(
      '"queryParameters":{"__proto__":["x"],"command":["sh","-c"],"limit":["5"],"timeout":["1s"],"watch":["1"]}',
    );
  });

  it('says when only the beginning of a body is there', () => {
    expect(encodeApiRequestEvent({ ...EVENT, bodyTruncatedFromBytes: 5_000_000 })).toContain(
      '"body":"azhzAGJvZHk=","bodyTruncatedFrom":5000000,"queryParameters"',
    );
  });

  it('does not write a time that JSON cannot hold', () => {
    expect(thrownBy(() => encodeApiRequestEvent({ ...EVENT, timestamp: Number.NaN })).code).toBe('malformed');
  });
});
