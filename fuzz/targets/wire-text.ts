/** Targets for parsers in `src/wire` that read a complete text or message. */
import {
  encodeCastEvent,
  parseCastEvent,
  parseResize,
  type CastCode,
} from '../../src/wire/asciicast/event.ts';
import { encodeCastHeader, hasReversedResize, parseCastHeader } from '../../src/wire/asciicast/header.ts';
import { decodeBase64 } from '../../src/wire/base64.ts';
import { encodeJson, parseJson } from '../../src/wire/json-value.ts';
import { encodeAnnotation, parseAnnotation } from '../../src/wire/recorder-api/annotation.ts';
import { parseSubprotocol, splitProtocolLines } from '../../src/wire/remotecommand/channel.ts';
import { encodeStatus, parseExitStatus } from '../../src/wire/remotecommand/exit-status.ts';
import {
  attempt,
  ensure,
  ensureEqual,
  hasEscapedName,
  latin1Of,
  textOf,
  utf8,
  type FuzzTarget,
} from '../target.ts';
import { wireRefusal } from './wire-streams.ts';

const JSON_WORDS = [
  '{',
  '}',
  '[',
  ']',
  ':',
  ',',
  'null',
  'true',
  '0',
  '-1',
  '1e400',
  '9007199254740993',
  '""',
  '\\u0000',
  '\\ud800',
  '"__proto__"',
];

const HEADER =
  '{"version":2,"width":80,"height":24,"timestamp":1700000000,"command":"sh","srcNode":"a.ts.net","srcNodeID":"n1",' +
  '"srcNodeUserID":9007199254740993,"srcNodeUser":"a@b","env":{"A":"b"},"sshUser":"","localUser":"","connectionID":"",' +
  '"kubernetes":{"PodName":"p","Namespace":"n","Container":"c","SessionType":"exec"},"dstNode":"r","x":[1,{"y":null}]}';

const castHeader: FuzzTarget = {
  name: 'cast-header',
  words: [...JSON_WORDS, '"srcNodeTags":["tag:a"]', '"kubernetes":null'],
  seeds: [utf8(HEADER), utf8('{"version":2,"width":1,"height":2,"env":null,"srcNodeTags":["tag:a"]}')],
  run(input) {
    const text = textOf(input);
    if (hasEscapedName(text)) return 'escaped name';
    const { value: header, refused } = attempt(() => parseCastHeader(text), wireRefusal);
    if (refused !== undefined) return refused;
    hasReversedResize(header);
    const written = attempt(() => encodeCastHeader(header), wireRefusal);
    if (written.refused !== undefined) return `read, not written: ${written.refused}`;
    ensure(written.value.endsWith('\n') && !written.value.slice(0, -1).includes('\n'), 'not one line');
    const again = parseCastHeader(written.value);
    ensureEqual(encodeCastHeader(again), written.value, 'a header does not survive being written');
    return `${header.version} ${header.kubernetes !== undefined} ${header.extra.size}`;
  },
};

const CODES: ReadonlySet<string> = new Set(['o', 'i', 'r', 'm', 'x']);

const castEvent: FuzzTarget = {
  name: 'cast-event',
  words: [...JSON_WORDS, '"o"', '[0.000001,'],
  seeds: [utf8('[1.5,"o","hello\\r\\n"]'), utf8('[0,"r","80x24"]\n'), utf8('[12345.678901,"x","0"]')],
  run(input) {
    const { value: event, refused } = attempt(() => parseCastEvent(textOf(input)), wireRefusal);
    if (refused !== undefined) return refused;
    attempt(() => parseResize(event.data, { reversed: false }), wireRefusal);
    if (!CODES.has(event.code) || event.seconds >= 1e15) return 'odd';
    const line = encodeCastEvent(event.seconds, event.code as CastCode, event.data);
    const again = parseCastEvent(line);
    ensureEqual(
      [again.code, again.data],
      [event.code, event.data],
      'an event does not survive being written',
    );
    ensure(Math.abs(again.seconds - event.seconds) < 0.000_001 + event.seconds * 1e-15, 'the time changed');
    ensureEqual(
      encodeCastEvent(again.seconds, event.code as CastCode, again.data),
      line,
      'written differently',
    );
    return event.code;
  },
};

const annotation: FuzzTarget = {
  name: 'annotation',
  words: [...JSON_WORDS, '"kind":"end"', '"outcome":"violated"', '"base64":"AA=="', '"name":"stderr"'],
  seeds: [
    utf8(
      '{"kind":"session","id":"s","user":"u","groups":["g"],"argv":["sh"],"tty":true,"stdin":false,"protocol":"spdy","path":"/x"}',
    ),
    utf8('{"kind":"stream","name":"stderr"}'),
    utf8('{"kind":"raw","base64":"/w=="}'),
    utf8('{"kind":"gap","bytes":5,"reason":"x"}'),
    utf8('{"kind":"exit","code":-1,"message":"m"}'),
    utf8('{"kind":"end","outcome":"completed","outputBytes":1,"outputLines":2}\n'),
  ],
  run(input) {
    const value = parseAnnotation(textOf(input));
    if (value === undefined) return 'refused';
    const written = parseAnnotation(encodeAnnotation(value));
    ensureEqual(
      JSON.stringify(written),
      JSON.stringify(value),
      'an annotation does not survive being written',
    );
    return value.kind;
  },
};

const jsonValue: FuzzTarget = {
  name: 'json-value',
  words: JSON_WORDS,
  seeds: [
    utf8('{"a":[1,-0,9007199254740993,1e5,"x",null,true,{}]}'),
    utf8(`${'['.repeat(70)}${']'.repeat(70)}`),
  ],
  run(input) {
    const given = textOf(input);
    if (hasEscapedName(given)) return 'escaped name';
    const { value, refused } = attempt(() => parseJson(given), wireRefusal);
    if (refused !== undefined) return refused;
    const { value: text, refused: unwritten } = attempt(() => encodeJson(value), wireRefusal);
    if (unwritten !== undefined) return `read, not written: ${unwritten}`;
    ensureEqual(encodeJson(parseJson(text)), text, 'a value does not survive being written');
    return typeof value;
  },
};

const base64: FuzzTarget = {
  name: 'base64',
  words: ['=', '==', '+', '/', 'AAAA'],
  seeds: [utf8('aGVsbG8='), utf8('AA=='), utf8('AAAA'), utf8('')],
  run(input) {
    const written = Buffer.from(input).toString('base64');
    ensureEqual([...decodeBase64(written)], [...input], 'bytes do not survive being written');
    const { value, refused } = attempt(() => decodeBase64(latin1Of(input)), wireRefusal);
    if (refused !== undefined) return refused;
    ensureEqual(Buffer.from(value).toString('base64'), latin1Of(input), 'two spellings of one value');
    return 'read';
  },
};

const channel: FuzzTarget = {
  name: 'channel',
  words: ['channel.k8s.io', 'v5.', 'base64.', 'SPDY/3.1+', ',', ' ', '1', 'AA=='],
  seeds: [
    utf8('v5.channel.k8s.io, v4.channel.k8s.io'),
    utf8('SPDY/3.1+portforward.k8s.io'),
    utf8('1aGVsbG8='),
    utf8('base64url.bearer.authorization.k8s.io.abc,v4.base64.channel.k8s.io'),
  ],
  run(input) {
    const text = latin1Of(input);
    const names = splitProtocolLines(text.split('\n'));
    for (const name of names)
      ensure(name !== '' && name.trim() === name && !name.includes(','), 'not one name');
    const known = names.filter((name) => parseSubprotocol(name) !== undefined);
    return String(known.length);
  },
};

const exitStatus: FuzzTarget = {
  name: 'exit-status',
  words: [
    ...JSON_WORDS,
    '"status":"Failure"',
    '"reason":"NonZeroExitCode"',
    '"details":{"causes":[',
    '"reason":"ExitCode"',
    '"message":"7"',
  ],
  seeds: [
    utf8('{"metadata":{},"status":"Success"}'),
    encodeStatus({ kind: 'exit', code: 7 }, 4),
    encodeStatus({ kind: 'failure', message: 'no', reason: 'InternalError' }, 5),
    utf8(''),
  ],
  run(input) {
    const { value: status, refused } = attempt(() => parseExitStatus(input, 4), wireRefusal);
    const old = attempt(() => parseExitStatus(input, 3), wireRefusal);
    ensure(old.refused === undefined || old.refused === 'limit', 'plain text was refused');
    if (refused !== undefined) return refused;
    ensureEqual(
      parseExitStatus(encodeStatus(status, 4), 4),
      withReason(status),
      'a status does not survive being written',
    );
    return `${status.kind} ${status.kind === 'failure' ? status.reason : ''}`.slice(0, 40);
  },
};

/** Adds the reason `InternalError` to a failure without a reason, as the parser does. */
function withReason(status: ReturnType<typeof parseExitStatus>): ReturnType<typeof parseExitStatus> {
  return status.kind === 'failure' ? { ...status, reason: status.reason ?? 'InternalError' } : status;
}

export const WIRE_TEXT_TARGETS: readonly FuzzTarget[] = [
  castHeader,
  castEvent,
  annotation,
  jsonValue,
  base64,
  channel,
  exitStatus,
];
