import { describe, expect, it } from 'vitest';
import {
  CONVENTIONS,
  CONVENTIONS_KEY,
  encodeCastHeader,
  hasReversedResize,
  MAX_HEADER_LENGTH,
  parseCastHeader,
  type CastHeader,
} from '../../../src/wire/asciicast/header.ts';
import { thrownBy } from '../bytes.ts';
import { golden, GOLDEN_CASTS } from './golden.ts';
import { parseLikePlayer } from './player-parser.ts';

const MINIMAL: CastHeader = {
  version: 2,
  width: 80,
  height: 24,
  timestamp: 1785325858,
  srcNode: 'laptop.tail1.ts.net',
  srcNodeID: 'nA1CNTRL',
  env: null,
  sshUser: '',
  localUser: '',
  connectionID: '',
};

describe('cast headers of the reference', () => {
  it('sees the golden recordings', () => {
    expect(GOLDEN_CASTS.length).toBeGreaterThanOrEqual(12);
  });

  it.each(GOLDEN_CASTS.map((cast) => [cast.name, cast] as const))(
    'reads and writes the header of %s',
    (_name, cast) => {
      const header = parseCastHeader(cast.headerLine);
      const line = encodeCastHeader({ ...header, version: 2 });
      // Go escapes < > & in JSON, and tailcast does not; all other bytes are equal
      expect(line).toBe(`${cast.headerLine.replaceAll('\\u003e', '>').replaceAll('\\u0026', '&')}\n`);
      expect(header.kubernetes).toMatchObject({ Namespace: 'default' });
      expect(header.extra.size).toBe(0);
    },
  );

  it('reads every field of a recording with a terminal', () => {
    expect(parseCastHeader(golden('tty-resize-spdy').headerLine)).toEqual({
      version: 2,
      width: 101,
      height: 33,
      timestamp: 1795245118,
      command: 'sh -i',
      srcNode: 'alice.lab.ts.net',
      srcNodeID: '5',
      srcNodeUserID: 1n,
      srcNodeUser: 'alice@example.com',
      env: null,
      sshUser: '',
      localUser: '',
      connectionID: '',
      kubernetes: { PodName: 'web', Namespace: 'default', Container: 'main', SessionType: 'exec' },
      extra: new Map(),
    });
  });

  it('writes the SSH example of the protocol byte for byte', () => {
    const line =
      '{"version":2,"width":120,"height":40,"timestamp":1785325858,"srcNode":"laptop.tail1.ts.net","srcNodeID":"nA1CNTRL",' +
      '"srcNodeUserID":123,"srcNodeUser":"a@example.com","env":{"TERM":"xterm-256color"},"sshUser":"root",' +
      '"localUser":"root","connectionID":"ssh-conn-20260729T115058-ab12"}\n';
    const header = parseCastHeader(line);
    expect(header.env).toEqual(new Map([['TERM', 'xterm-256color']]));
    expect(header.kubernetes).toBeUndefined();
    expect(encodeCastHeader({ ...header, version: 2 })).toBe(line);
  });

  it('reads the stored form: keys in alphabetical order, with the destination', () => {
    const header = parseCastHeader(
      '{"command":"sh","connectionID":"","dstNode":"k8s.tail1.ts.net","dstNodeID":"nDST1CNTRL","env":null,"height":16,' +
        '"kubernetes":{"Container":"app","Namespace":"prod","PodName":"web-0","SessionType":"exec"},"localUser":"",' +
        '"srcNode":"laptop.tail1.ts.net","srcNodeID":"nA1CNTRL","srcNodeUser":"a@example.com",' +
        '"srcNodeUserID":16793133573424020,"sshUser":"","timestamp":1785325858,"version":2,"width":155}',
    );
    expect(header).toMatchObject({
      width: 155,
      height: 16,
      dstNode: 'k8s.tail1.ts.net',
      dstNodeID: 'nDST1CNTRL',
      srcNodeUserID: 16793133573424020n,
    });
    const line = encodeCastHeader({ ...header, version: 2 });
    expect(line).toContain('"srcNodeUserID":16793133573424020,');
    expect(line).toMatch(/"dstNode":"k8s.tail1.ts.net","dstNodeID":"nDST1CNTRL"\}\n$/);
  });
});

describe('cast header', () => {
  it('leaves out what Go leaves out when empty, and keeps what is always there', () => {
    const empty = {
      command: '',
      srcNodeTags: [],
      srcNodeUserID: 0n,
      srcNodeUser: '',
      dstNode: '',
      dstNodeID: '',
    };
    expect(encodeCastHeader({ ...MINIMAL, ...empty })).toBe(encodeCastHeader(MINIMAL));
    expect(encodeCastHeader({ ...MINIMAL, width: 0, height: 0 })).toBe(
      '{"version":2,"width":0,"height":0,"timestamp":1785325858,"srcNode":"laptop.tail1.ts.net",' +
        '"srcNodeID":"nA1CNTRL","env":null,"sshUser":"","localUser":"","connectionID":""}\n',
    );
  });

  it('writes tags for a tagged node, between id and env', () => {
    expect(encodeCastHeader({ ...MINIMAL, srcNodeTags: ['tag:a', 'tag:b'] })).toContain(
      '"srcNodeID":"nA1CNTRL","srcNodeTags":["tag:a","tag:b"],"env":null',
    );
  });

  it('reads old headers with keys missing or null', () => {
    expect(
      parseCastHeader(
        '{"version":2,"width":null,"srcNode":"a","srcNodeTags":null,"srcNodeUserID":null,"kubernetes":null,"command":null}',
      ),
    ).toEqual({
      version: 2,
      width: 0,
      height: 0,
      timestamp: 0,
      srcNode: 'a',
      srcNodeID: '',
      env: null,
      sshUser: '',
      localUser: '',
      connectionID: '',
      extra: new Map(),
    });
    expect(parseCastHeader('{"version":2,"kubernetes":{},"env":{"TERM":null}}')).toMatchObject({
      kubernetes: { PodName: '', Namespace: '', Container: '', SessionType: '' },
      env: new Map([['TERM', '']]),
    });
  });

  it('keeps keys it does not know, exactly and in order', () => {
    const line =
      '{"version":2,"idle_time_limit":2.5,"width":1,"height":2,"timestamp":3,"title":null,"theme":{"fg":"#fff"},' +
      '"bigId":16793133573424020,"__proto__":[1,{}]}';
    const header = parseCastHeader(line);
    expect([...header.extra.keys()]).toEqual(['idle_time_limit', 'title', 'theme', 'bigId', '__proto__']);
    expect(encodeCastHeader({ ...header, version: 2 })).toMatch(
      /"connectionID":"","idle_time_limit":2.5,"title":null,"theme":\{"fg":"#fff"\},"bigId":16793133573424020,"__proto__":\[1,\{\}\]\}\n$/,
    );
  });

  it('does not write a named key twice', () => {
    expect(thrownBy(() => encodeCastHeader({ ...MINIMAL, extra: new Map([['width', 1]]) })).code).toBe(
      'malformed',
    );
  });

  it.each([
    '',
    'null',
    '[2]',
    '{}',
    '{"version":1}',
    '{"version":4}',
    '{"version":"2"}',
    '{"version":2',
    '{"version":2,"width":"80"}',
    '{"version":2,"width":-1}',
    '{"version":2,"height":1.5}',
    '{"version":2,"height":99999999999999999999}',
    '{"version":2,"timestamp":"now"}',
    '{"version":2,"command":["sh"]}',
    '{"version":2,"srcNode":7}',
    '{"version":2,"srcNodeTags":"tag:a"}',
    '{"version":2,"srcNodeTags":[7]}',
    '{"version":2,"srcNodeUserID":"1"}',
    '{"version":2,"srcNodeUserID":1.5}',
    '{"version":2,"env":[]}',
    '{"version":2,"env":{"TERM":7}}',
    '{"version":2,"kubernetes":"web"}',
    '{"version":2,"kubernetes":{"PodName":7}}',
    '{"version":3,"term":{"cols":80,"rows":24}}',
  ])('refuses %s', (line) => {
    expect(thrownBy(() => parseCastHeader(line)).code).toBe('malformed');
  });

  it('does not write a number that JSON cannot hold', () => {
    expect(thrownBy(() => encodeCastHeader({ ...MINIMAL, timestamp: Number.NaN })).code).toBe('malformed');
  });

  it('takes a line of the limit and refuses one unit more, both ways', () => {
    const room = MAX_HEADER_LENGTH - encodeCastHeader({ ...MINIMAL, command: 'x' }).length + 1;
    const longest = encodeCastHeader({ ...MINIMAL, command: 'x'.repeat(room) });
    expect(longest).toHaveLength(MAX_HEADER_LENGTH);
    expect(parseCastHeader(longest).command).toHaveLength(room);
    expect(thrownBy(() => parseCastHeader(`${longest} `)).code).toBe('limit');
    expect(thrownBy(() => encodeCastHeader({ ...MINIMAL, command: 'x'.repeat(room + 1) })).code).toBe(
      'limit',
    );
  });

  it('is read by asciinema-player', async () => {
    const { cols, rows } = await parseLikePlayer(encodeCastHeader({ ...MINIMAL, width: 132, height: 43 }));
    expect([cols, rows]).toEqual([132, 43]);
  });
});

describe('recordings with reversed resize events', () => {
  it.each(GOLDEN_CASTS.map((cast) => [cast.name, cast] as const))('recognises %s', (_name, cast) => {
    expect(hasReversedResize(parseCastHeader(cast.headerLine))).toBe(true);
  });

  it('does not take ours or SSH recordings for one', () => {
    const kubernetes = { PodName: 'web', Namespace: 'default', Container: '', SessionType: 'exec' };
    const ours = { ...MINIMAL, kubernetes, extra: new Map([[CONVENTIONS_KEY, CONVENTIONS]]) };
    expect(hasReversedResize(parseCastHeader(encodeCastHeader(ours)))).toBe(false);
    expect(hasReversedResize(parseCastHeader(encodeCastHeader(MINIMAL)))).toBe(false);
    expect(hasReversedResize(parseCastHeader(encodeCastHeader({ ...MINIMAL, kubernetes })))).toBe(true);
  });
});
