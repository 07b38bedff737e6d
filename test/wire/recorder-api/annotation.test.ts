import { describe, expect, it } from 'vitest';
import {
  encodeAnnotation,
  MAX_ANNOTATION_LENGTH,
  parseAnnotation,
  type Annotation,
} from '../../../src/wire/recorder-api/annotation.ts';
import { thrownBy } from '../bytes.ts';

const SESSION: Annotation = {
  kind: 'session',
  id: 's-1',
  user: 'alice@example.com',
  groups: ['dev'],
  argv: ['sh', '-c', 'a b'],
  tty: true,
  stdin: false,
  protocol: 'websocket',
  subprotocol: 'v5.channel.k8s.io',
  path: '/api/v1/namespaces/default/pods/web/exec',
};

describe('annotation lines', () => {
  it('have their keys in a fixed order, whatever the order given', () => {
    const { path, kind, ...rest } = SESSION;
    const line =
      '{"kind":"session","id":"s-1","user":"alice@example.com","groups":["dev"],"argv":["sh","-c","a b"],"tty":true,' +
      '"stdin":false,"protocol":"websocket","subprotocol":"v5.channel.k8s.io",' +
      '"path":"/api/v1/namespaces/default/pods/web/exec"}\n';
    expect(encodeAnnotation({ path, ...rest, kind })).toBe(line);
    expect(parseAnnotation(line)).toEqual(SESSION);
  });

  it.each([
    'null',
    '[]',
    '{}',
    '{"kind":7}',
    '{"kind":"toString"}',
    '{"kind":"Session"}',
    '{"kind":"stream"}',
    '{"kind":"stream","name":"stdin"}',
    '{"kind":"stream","name":"stdout","more":1}',
    '{"kind":"stream","name":null}',
    '{"kind":"raw","base64":"a"}',
    '{"kind":"raw","base64":7}',
    '{"kind":"gap"}',
    '{"kind":"gap","reason":"x","bytes":-1}',
    '{"kind":"gap","reason":"x","bytes":0.5}',
    '{"kind":"gap","reason":"x","bytes":"1"}',
    '{"kind":"gap","reason":"x","bytes":null}',
    '{"kind":"gap","reason":"x","bytes":99999999999999999999}',
    '{"kind":"exit","code":1.5}',
    '{"kind":"exit","code":"1"}',
    '{"kind":"end","outcome":"fine","outputBytes":0,"outputLines":0}',
    '{"kind":"end","outcome":"completed","outputBytes":0}',
    '{"kind":"session","id":"s","tty":"true","stdin":false,"protocol":"spdy","path":"/"}',
    '{"kind":"session","id":"s","tty":true,"stdin":false,"protocol":"spdy","path":"/","groups":"dev"}',
    '{"kind":"session","id":"s","tty":true,"stdin":false,"protocol":"spdy","path":"/","argv":[7]}',
  ])('refuse %s', (line) => {
    expect(parseAnnotation(line)).toBeUndefined();
  });

  it('are checked before they are written', () => {
    const bad = [
      { kind: 'gap', reason: 'x', bytes: -1 },
      { kind: 'raw', base64: '*' },
      { kind: 'nothing' },
      { kind: 'exit', more: 1 },
    ];
    for (const value of bad) {
      expect(thrownBy(() => encodeAnnotation(value as unknown as Annotation)).code).toBe('malformed');
    }
  });

  it('take a line of the limit and refuse one unit more, both ways', () => {
    const gap = (length: number): Annotation => ({ kind: 'gap', reason: 'x'.repeat(length) });
    const room = MAX_ANNOTATION_LENGTH - encodeAnnotation(gap(0)).length;
    const longest = encodeAnnotation(gap(room));
    expect(longest).toHaveLength(MAX_ANNOTATION_LENGTH);
    expect(parseAnnotation(longest)).toMatchObject({ kind: 'gap' });
    expect(parseAnnotation(`${longest} `)).toBeUndefined();
    expect(thrownBy(() => encodeAnnotation(gap(room + 1))).code).toBe('limit');
  });
});
