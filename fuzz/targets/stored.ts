/** Targets for data on disks and in buckets, and for files that viewers, auditors and administrators provide. */
import { parseAuditedSession } from '../../src/kube/audit-log.ts';
import { parsePolicy } from '../../src/proxy/gate/policy-file.ts';
import { POLICY_ACTIONS, POLICY_CLASSES } from '../../src/proxy/gate/policy.ts';
import { parseExactJson } from '../../src/tailnet/exact-json.ts';
import {
  createSealer,
  encodeHead,
  encodeLineBytes,
  END_MARK,
  JournalError,
  readJournal,
} from '../../src/recording/journal/journal-codec.ts';
import { createJournalKey, KEY_BYTES, SALT_BYTES } from '../../src/recording/journal/journal-key.ts';
import { createCastReader, readCastStart } from '../../src/screen/cast-reader.ts';
import { MAX_SIZE, type ScreenSize } from '../../src/terminal/size.ts';
import { parseRange } from '../../src/tsrecorder/serving/byte-range.ts';
import { parseHead, stampHead } from '../../src/tsrecorder/library/cast-head.ts';
import {
  encodeEntry,
  keyName,
  parseEntry,
  parseKeyName,
  parseSegment,
  parseSegmentName,
  logSegmentName,
} from '../../src/tsrecorder/evidence/log-entry.ts';
import { parsePublicKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { encodeCheckpoint, parseCheckpoint } from '../../src/tsrecorder/evidence/verify-store.ts';
import { parseSignedSidecar } from '../../src/tsrecorder/evidence/signed-sidecar.ts';
import { parseSidecar } from '../../src/tsrecorder/library/sidecar.ts';
import { encodeNote, parseJournalLine } from '../../src/tsrecorder/spool/spool-journal.ts';
import {
  decodeNodeId,
  encodeNodeId,
  formatTime,
  parseMarkName,
  parseRecordingId,
  parseRecordingKey,
  parseTime,
  recordingId,
  recordingKey,
} from '../../src/tsrecorder/store/key.ts';
import {
  attempt,
  ensure,
  ensureEqual,
  hasEscapedName,
  textOf,
  utf8,
  words,
  type FuzzTarget,
  type Refusal,
} from '../target.ts';
import { refusals } from './requests.ts';
import { wireRefusal } from './wire-streams.ts';

const byteRange: FuzzTarget = {
  name: 'byte-range',
  words: words('bytes= - , 0 1 999999999999999 9999999999999999 \t'),
  seeds: ['bytes=0-', 'bytes=5-9', 'bytes=-5', 'bytes=1-2,4-5', 'items=1-2'].map(utf8),
  run(input) {
    const header = textOf(input);
    for (const bytes of [0, 1, 10, 2 ** 40]) {
      const range = parseRange(header, bytes);
      if (typeof range === 'string') continue;
      ensure(
        range.start >= 0 && range.start < range.end && range.end <= bytes,
        'a range outside of the bytes',
      );
    }
    const range = parseRange(header, 10);
    return typeof range === 'string' ? range : 'range';
  },
};

const recordingName: FuzzTarget = {
  name: 'recording-name',
  words: words('_ / .cast %2F %2e .. ~ 2026-01-02T03:04:05 Z .123456789 0123456789abcdef'),
  seeds: [
    'nABC_2026-01-02T03:04:05.123456789Z',
    'nABC/2026-01-02T03:04:05Z.cast',
    'n%2F_2026-01-02T03:04:05Z~0123456789abcdef0123456789abcdef',
    '2026-02-30T03:04:05Z',
  ].map(utf8),
  run(input) {
    const text = textOf(input);
    const id = parseRecordingId(text);
    const key = parseRecordingKey(text);
    if (id !== undefined) ensure(recordingId(id) === text, 'an id does not survive being written');
    if (key !== undefined) {
      ensure(recordingKey(key) === text, 'a key does not survive being written');
      ensure(
        text.split('/').length === 2 && !/(?:^|\/)\.{0,2}(?:\/|$)/.test(text),
        'a key leaves its folder',
      );
    }
    const node = decodeNodeId(text);
    if (node !== undefined) ensure(encodeNodeId(node) === text, 'a node id does not survive being written');
    const time = parseTime(text);
    if (time !== undefined)
      ensure(parseTime(formatTime(time)) === time, 'a time does not survive being written');
    const mark = parseMarkName(text);
    return [id, key, node, time, mark].map((value) => (value === undefined ? '-' : 'x')).join('');
  },
};

const journal: FuzzTarget = {
  name: 'spool-journal',
  words: ['{"at":', ',"size":', ',"note":', ',"odd":', '{"meta":', '{"end":', '"castBytes":', '}', '9'],
  seeds: [
    '{"at":10,"size":4,"note":{"a":1}}',
    '{"at":10,"size":4,"odd":"x"}',
    '{"end":{"castBytes":5}}',
    '{"meta":{"nodeId":"n","time":"t","nodeName":"m","address":"a","protocol":"v2","token":"","part":1,"uploadedHeaderBytes":1,"storedHeaderBytes":2}}',
  ].map(utf8),
  run(input) {
    const line = textOf(input);
    const parsed = parseJournalLine(line);
    if (parsed?.kind !== 'note') return parsed?.kind ?? 'none';
    const { note } = parsed;
    if (note.text === undefined) return 'odd';
    ensureEqual(
      parseJournalLine(encodeNote(note, '').trimEnd()),
      parsed,
      'a note does not survive being written',
    );
    return 'note';
  },
};

const ZEROS = '0'.repeat(64);

const logEntry: FuzzTarget = {
  name: 'log-entry',
  words: [
    '{"n":',
    '"prev":"',
    '"time":"',
    '"event":{"kind":"',
    'witness',
    'document',
    ZEROS,
    '\n',
    '{"signature":{',
    '}',
  ],
  seeds: [
    `{"n":1,"prev":"${ZEROS}","time":"2026-01-02T03:04:05Z","event":{"kind":"document","name":"a","bytes":1,"sha256":"${ZEROS}"}}`,
    `{"n":1}\n{"signature":{"log":"${'0'.repeat(32)}","n":1,"hash":"${ZEROS}","key":"k","ed25519":"s"}}\n`,
  ].map(utf8),
  run(input) {
    const text = textOf(input);
    const segment = parseSegment(text);
    ensure(segment.lines.length <= text.split('\n').length, 'more lines than there are');
    const entry = parseEntry(text);
    if (entry === undefined) return `none ${segment.signature === undefined}`;
    ensureEqual(parseEntry(encodeEntry(entry)), entry, 'an entry does not survive being written');
    return entry.event.kind;
  },
};

const sidecar: FuzzTarget = {
  name: 'sidecar',
  words: ['  "evidence": ', '  "signature": ', '{\n', '\n}\n', ',\n', '"version"', 'null', '1e999', '[]'],
  seeds: ['{\n  "version": 1\n}\n', '{\n  "version": 1,\n  "evidence": {},\n  "signature": "k:s"\n}\n'].map(
    utf8,
  ),
  run(input) {
    const text = textOf(input);
    return `${parseSidecar(text) !== undefined} ${parseSignedSidecar(text) !== undefined}`;
  },
};

const castHead: FuzzTarget = {
  name: 'cast-head',
  words: [
    '"dstNode":"x"',
    '"dstNodeID":',
    '{"version":2',
    ',',
    '}',
    '"kubernetes":{',
    '"connectionID":"',
    '"width":',
    'null',
  ],
  seeds: [
    '{"version":2,"width":80,"height":24,"timestamp":1,"dstNode":"evil","dstNodeID":"evil"}',
    '{"version":2,"width":1,"height":1,"kubernetes":{"PodName":"p","Namespace":"n","Container":"c","SessionType":"exec"}}',
  ].map(utf8),
  run(input) {
    const line = textOf(input);
    if (hasEscapedName(line)) return 'escaped';
    const uploader = { node: 'gateway', nodeId: 'nGW' };
    const { value, refused } = attempt(() => stampHead(line, uploader), refusals('UPLOAD_MALFORMED'));
    if (refused !== undefined) return refused;
    ensure(
      value.endsWith('\n') && value.trimEnd().split('\n').length === line.trim().split('\n').length,
      'a line more',
    );
    const head = parseHead(value);
    ensureEqual(head?.destination, uploader, 'an uploader could say that it was somebody else');
    return head?.kind ?? 'none';
  },
};

const auditLog: FuzzTarget = {
  name: 'audit-log',
  words: [
    '"subresource":"exec"',
    '"code":101',
    '"objectRef":{',
    '"impersonatedUser":{',
    '"extra":{',
    '[]',
    'null',
    '}',
  ],
  seeds: [
    '{"auditID":"a","verb":"create","requestReceivedTimestamp":"t","user":{"username":"u"},"impersonatedUser":{"username":"v","extra":{"tailcast.dev/session":["s"]}},"objectRef":{"resource":"pods","namespace":"n","name":"p","subresource":"exec"},"responseStatus":{"code":101}}',
    '{"auditID":"a","verb":"get","user":{"username":"u"},"requestURI":"/x?y","responseStatus":{"code":101}}',
  ].map(utf8),
  run(input) {
    const session = parseAuditedSession(textOf(input));
    if (session === undefined) return 'none';
    ensure(session.user === session.user.toString() && session.auditId !== undefined, 'a session of nobody');
    return `${session.subresource} ${session.gatewayId !== undefined}`.slice(0, 40);
  },
};

const policyFile: FuzzTarget = {
  name: 'policy-file',
  words: [
    ...words('"enforced" "others" "portForward" "sessions" : { } [ ] , 1 65536 "22-23" null true'),
    ...POLICY_CLASSES.map((name) => `"${name}":`),
    ...POLICY_ACTIONS.map((name) => `"${name}"`),
    '"refusePorts":',
    '"perUser":',
    '"__proto__":',
  ],
  seeds: [
    '{"enforced":{"exec":"record","kubeletExec":"allow"},"portForward":{"refusePorts":[22,"10250-10259"]},"sessions":{"perUser":1}}',
    '{"others":{"opaqueUpgrade":"refuse"}}',
  ].map(utf8),
  run(input) {
    const { value } = attempt(
      () => JSON.parse(textOf(input)) as unknown,
      (error) => (error instanceof SyntaxError ? 'no JSON' : undefined),
    );
    if (typeof value !== 'object' || value === null) return 'no JSON';
    const { value: policy, refused } = attempt(
      () => parsePolicy(new Map(Object.entries(value)), 'policy.yaml'),
      refusals('CONFIG_INVALID'),
    );
    if (refused !== undefined) return refused;
    for (const section of [policy.enforced, policy.others]) {
      ensureEqual(
        Object.keys(section).toSorted(),
        POLICY_CLASSES.toSorted(),
        'classes are missing or made up',
      );
      ensure(
        Object.values(section).every((action) => POLICY_ACTIONS.includes(action)),
        'an action that is none',
      );
    }
    for (const { first, last } of policy.refusedPorts)
      ensure(first >= 1 && first <= last && last <= 65_535, 'no port');
    return `read ${policy.refusedPorts.length}`;
  },
};

const exactJson: FuzzTarget = {
  name: 'exact-json',
  words: ['{"a":', '"a"', ',', ':', '}', '9007199254740993', '-0', '1e400', '\\u0061', '[', ']', '"'],
  seeds: [
    '{"a":9007199254740993,"b":[1,{"a":2}]}',
    '{"a":1,"\\u0061":2}',
    '{"a":"{\\"b\\":1,\\"b\\":2}"}',
  ].map(utf8),
  run(input) {
    const text = textOf(input);
    const plain = attempt(
      () => JSON.parse(text) as unknown,
      (error) => (error instanceof SyntaxError ? 'refused' : undefined),
    );
    const exact = attempt(() => parseExactJson(text), wireRefusal);
    if (plain.refused !== undefined) ensure(exact.refused !== undefined, 'what is no JSON was read');
    if (exact.refused !== undefined) return `refused ${plain.refused === undefined}`;
    if (hasEscapedName(text)) return 'escaped';
    const rounded: unknown = JSON.parse(
      JSON.stringify(exact.value, (_key, member: unknown) =>
        typeof member === 'bigint' ? Number(member) : member,
      ) ?? 'null',
    );
    ensureEqual(
      JSON.stringify(rounded),
      JSON.stringify(plain.value),
      'the values differ by more than precision',
    );
    return typeof exact.value;
  },
};

const KEY = createJournalKey(new Uint8Array(KEY_BYTES).fill(7));
const KINDS = ['preamble', 'lines', 'acknowledged', 'part'] as const;
const HEAD = { sessionId: 's', recorders: ['100.64.0.9:80'], recorderTags: [], about: {} };

/**
 * Reads the input as a journal. Then creates a sealed journal with content from the input, and reads this journal
 * intact and damaged.
 */
const sealedJournal: FuzzTarget = {
  name: 'sealed-journal',
  words: words('tcjrnl3\n tcjrnl4\n \0 \x01 {"sessionId":"s"}'),
  seeds: [utf8('tcjrnl3\n'), Uint8Array.of(0, 1, 2, 3), Uint8Array.of(1, 200, 0, 7, 3, 9)],
  run(input, random) {
    const refusal: Refusal = (error) => (error instanceof JournalError ? error.problem : undefined);
    const raw = attempt(() => readJournal(input, KEY), refusal);
    ensure(raw.refused !== undefined, 'a file that was not sealed is a journal');
    const over = random.oneIn(2);
    const sealer = createSealer(KEY, { over, salt: new Uint8Array(SALT_BYTES).fill(input.length & 255) });
    // in a reused file, previous content follows the end mark
    const remains = over ? [END_MARK, input] : [];
    const records = Array.from(input.subarray(0, 12), (byte, index) => {
      const kind = KINDS[byte & 3] ?? 'lines';
      const at = byte * 2 ** (index * 3);
      const content =
        kind === 'acknowledged' ? encodeLineBytes(at + 1) : input.subarray(index, index + (byte >> 2));
      return { kind, at, content };
    });
    const pieces: Uint8Array[] = [sealer.prefix, ...sealer.seal('head', 0, encodeHead(HEAD))];
    const headBytes = Buffer.concat(pieces).length;
    for (const { kind, at, content } of records) pieces.push(...sealer.seal(kind, at, content));
    const file = Buffer.concat(pieces);
    const whole = readJournal(Buffer.concat([file, ...remains]), KEY);
    const lines = records.filter(({ kind }) => kind === 'lines');
    const { acknowledged, acknowledgedLines } = whole;
    ensureEqual(acknowledgedLines, acknowledged + Number(acknowledged > 0), 'a place does not survive');
    ensure(whole.ending === 'whole' && whole.head.sessionId === 's', 'a whole file is not read as one');
    ensureEqual(
      whole.lines.map(({ offset, bytes }) => [offset, ...bytes]),
      lines.map(({ at, content }) => [at, ...content]),
      'lines do not survive being sealed',
    );
    const damaged = Buffer.from(file);
    const place = random.below(file.length);
    const isCut = random.oneIn(2);
    if (!isCut) damaged[place] = (damaged[place] ?? 0) ^ (1 << random.below(8));
    const { value: read, refused } = attempt(
      () => readJournal(Buffer.concat([isCut ? damaged.subarray(0, place) : damaged, ...remains]), KEY),
      refusal,
    );
    if (refused !== undefined) {
      ensure(place < headBytes, 'damage behind the head makes the file unreadable');
      return `${raw.refused} ${refused}`;
    }
    // in a reused file, a changed length can look like the end mark, so the journal ends there without an error
    const isMark = over && damaged[place] === 0;
    ensure(isCut || isMark || read.ending !== 'whole', 'a changed byte goes unnoticed');
    ensureEqual(read.lines, whole.lines.slice(0, read.lines.length), 'other lines than were written');
    return `${raw.refused} ${read.ending}`;
  },
};

/** Targets for files that `verify` reads in addition to logs and sidecars. */
const evidenceText: FuzzTarget = {
  name: 'evidence-text',
  words: words(
    '-----BEGIN -----END PUBLIC KEY-----\n .evidence/logs/ .evidence/keys/ .pem .ndjson 000000000001 {"heads":[{"log":"","n":1,"hash":"',
    ZEROS,
  ),
  seeds: [
    'MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=',
    '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n',
    'Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=',
    `{"heads":[{"log":"l","n":1,"hash":"${ZEROS}"}]}`,
    `.evidence/logs/${ZEROS.slice(32)}/000000000001.ndjson`,
    `.evidence/keys/${ZEROS.slice(32)}.pem`,
  ].map(utf8),
  run(input) {
    const text = textOf(input);
    const key = parsePublicKey(text);
    if (key !== undefined) {
      ensure(parsePublicKey(key.raw)?.id === key.id && parsePublicKey(key.pem)?.id === key.id, 'another key');
      ensure(!key.verifies('message', text), 'a signature out of nothing');
    }
    const heads = parseCheckpoint(text);
    if (heads !== undefined)
      ensureEqual(parseCheckpoint(encodeCheckpoint(heads, 't')), heads, 'heads do not survive being written');
    const segment = parseSegmentName(text);
    if (segment !== undefined)
      ensure(logSegmentName(segment.log, segment.first) === text, 'a name does not survive being written');
    const id = parseKeyName(text);
    if (id !== undefined) ensure(keyName(id) === text, 'a name does not survive being written');
    return [key, heads, segment, id].map((value) => (value === undefined ? '-' : 'x')).join('');
  },
};

/** Parses a cast in the same way as the player: the header, then line after line. */
const castReader: FuzzTarget = {
  name: 'cast-reader',
  words: words('{"version":2,"width":80,"height":24} [ ] 0.5 "o" "r" "m" "80x24" "x" # \n 1e999 -1 ,'),
  seeds: [
    '{"version":2,"width":80,"height":24}\n[0.5,"o","a"]\n[1,"r","100x50"]\n[0.2,"m","x"]\nnothing',
    '{"version":2,"width":0,"height":0}\n[1e9,"i","a"]',
  ].map(utf8),
  run(input) {
    const [first = '', ...lines] = textOf(input).split('\n');
    const { value: start, refused } = attempt(() => readCastStart(first), wireRefusal);
    if (refused !== undefined) return refused;
    const isShown = ({ columns, rows }: ScreenSize): boolean =>
      columns >= 2 && columns <= MAX_SIZE.columns && rows >= 1 && rows <= MAX_SIZE.rows;
    ensure(isShown(start.size), 'a size that cannot be shown');
    const read = createCastReader(start);
    let clock = 0;
    const kinds = new Set<string>();
    for (const line of lines) {
      const action = read(line);
      if (action === undefined) continue;
      kinds.add(action.kind);
      ensure(action.seconds >= clock && Number.isFinite(action.seconds), 'the clock goes back');
      clock = action.seconds;
      if (action.kind === 'resize') ensure(isShown(action.size), 'a size that cannot be shown');
    }
    return `${[...kinds].toSorted().join()}`;
  },
};

export const STORED_TARGETS: readonly FuzzTarget[] = [
  sealedJournal,
  evidenceText,
  castReader,
  byteRange,
  recordingName,
  journal,
  logEntry,
  sidecar,
  castHead,
  auditLog,
  policyFile,
  exactJson,
];
