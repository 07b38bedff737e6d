/** Compares how tailcast and Kubernetes' own code parse a large number of requests. */
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { parseTarget, type Target } from '../../../src/kube/canonical-target.ts';
import { parseExecOptions } from '../../../src/kube/exec-options.ts';
import { parseRequestInfo } from '../../../src/kube/request-info.ts';
import { askOracle, askOracleText } from '../differential/oracle.ts';
import { createRandom, runSeed, type Random } from '../../support/random.ts';
import { randomRequest, type RequestLine } from '../differential/requests.ts';

const REFUSALS: ReadonlySet<string> = new Set(['REQUEST_NOT_CANONICAL', 'TARGET_TOO_LONG']);

/** Number of random requests. Both parsers accept more than half of the requests, and the test compares only these. */
const REQUESTS = 400_000;
const BATCH = 20_000;
const EXEC_QUERIES = 40_000;
const seed = runSeed();

interface GoInfo {
  readonly IsResourceRequest: boolean;
  readonly Path: string;
  readonly Verb: string;
  readonly APIPrefix: string;
  readonly APIGroup: string;
  readonly APIVersion: string;
  readonly Namespace: string;
  readonly Resource: string;
  readonly Subresource: string;
  readonly Name: string;
  readonly Parts: readonly string[] | null;
  readonly FieldSelector: string;
  readonly LabelSelector: string;
}

interface GoRequest {
  readonly bad?: boolean;
  readonly error?: string;
  readonly path: string;
  /** Values grouped by name, in Go's order. */
  readonly query: readonly (readonly [name: string, values: readonly string[]])[];
  readonly info?: GoInfo;
}

/** Returns the parsed target, or undefined if tailcast rejects the target. */
function accept(target: string): Target | undefined {
  try {
    return parseTarget(target);
  } catch (error) {
    if (error instanceof TailcastError && REFUSALS.has(error.code)) return undefined;
    throw error;
  }
}

/** Returns the expected response of the oracle for a request, as text. */
function ourReading(method: string, target: Target): string {
  const info = parseRequestInfo(method, target);
  const query = Map.groupBy(target.query, ([name]) => name);
  const goInfo: GoInfo = {
    IsResourceRequest: info.isResourceRequest,
    Path: info.path,
    Verb: info.verb,
    APIPrefix: info.apiPrefix,
    APIGroup: info.apiGroup,
    APIVersion: info.apiVersion,
    Namespace: info.namespace,
    Resource: info.resource,
    Subresource: info.subresource,
    Name: info.name,
    Parts: info.parts.length === 0 ? null : info.parts,
    FieldSelector: info.fieldSelector,
    LabelSelector: info.labelSelector,
  };
  // Go sorts the keys of a map.
  const sorted = [...query]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, pairs]) => [name, pairs.map(([, value]) => value)]);
  return JSON.stringify({ path: target.path, query: sorted, info: goInfo });
}

/**
 * Reduces each run of replacement characters (U+FFFD) to one. For invalid UTF-8, Go writes one such character per byte,
 * and a web decoder one per invalid sequence.
 */
function sameMarks<Answer>(text: string): Answer {
  return JSON.parse(text, (_key, value: unknown) =>
    typeof value === 'string' ? value.replace(/\uFFFD+/g, '\uFFFD') : value,
  ) as Answer;
}

/**
 * Returns the query as sorted pairs. The values are not grouped by name, because different names that are not valid
 * UTF-8 become the same name as text.
 */
function pairsOf({ query }: GoRequest): readonly string[] {
  return query.flatMap(([name, values]) => values.map((value) => JSON.stringify([name, value]))).toSorted();
}

/**
 * Returns the difference, or undefined if both results are equal. Equal texts end the comparison early, because parsing
 * them is slow.
 */
function difference(line: RequestLine, target: Target, answer: string): object | undefined {
  const text = ourReading(line.method, target);
  if (text === answer) return undefined;
  const go = sameMarks<GoRequest>(answer);
  const read = sameMarks<GoRequest>(text);
  if (go.bad === true) return { line, ours: read, go: 'refused by net/http' };
  const info = go.info === undefined ? undefined : { ...go.info, Parts: go.info.Parts ?? null };
  const theirs = { path: go.path, query: pairsOf(go), info };
  const ours = { path: read.path, query: pairsOf(read), info: read.info };
  return isDeepStrictEqual(ours, theirs) ? undefined : { line, ours, go: theirs };
}

describe(`requests (TEST_SEED=${seed})`, () => {
  it('mean to us what they mean to RequestInfo, if we accept them', { timeout: 120_000 }, async () => {
    const random = createRandom(seed);
    const counts = { generated: 0, refused: 0, compared: 0, refusedByGo: 0 };
    const differences: object[] = [];
    while (counts.generated < REQUESTS) {
      const accepted: { line: RequestLine; target: Target }[] = [];
      for (let index = 0; index < BATCH; index++) {
        const line = randomRequest(random);
        const target = accept(line.target);
        if (target === undefined) counts.refused++;
        else accepted.push({ line, target });
      }
      counts.generated += BATCH;
      const answers = await askOracleText(
        'request-info',
        accepted.map(({ line }) => line),
      );
      for (const [index, { line, target }] of accepted.entries()) {
        counts.compared++;
        const found = difference(line, target, answers[index]!);
        if (found !== undefined) differences.push(found);
      }
    }
    console.log('requests against RequestInfo', counts, { differences: differences.length });
    expect(differences.slice(0, 5)).toEqual([]);
    expect(counts.compared).toBeGreaterThan(200_000);
  });

  it('carry the exec and attach options that the API server decodes', { timeout: 60_000 }, async () => {
    const random = createRandom(seed + 1);
    const lines = Array.from({ length: EXEC_QUERIES }, () => ({
      method: 'POST',
      target: `/api/v1/namespaces/n/pods/p/exec?${execQuery(random)}`,
    }));
    const answers = await askOracle<ExecAnswer>('exec-options', lines);
    const differences: object[] = [];
    let compared = 0;
    for (const [index, { target }] of lines.entries()) {
      const read = accept(target);
      const go = answers[index]!;
      if (read === undefined) continue;
      compared++;
      const ours = parseExecOptions(read);
      const { exec, attach } = go;
      const expected = {
        container: exec.container === '' ? undefined : exec.container,
        command: exec.command ?? [],
        stdin: exec.stdin,
        stdout: exec.stdout,
        // A session with a terminal has no separate stderr: the kubelet ignores the parameter.
        stderr: exec.stderr && !exec.tty,
        tty: exec.tty,
      };
      const alike = JSON.stringify({ ...attach, command: exec.command }) === JSON.stringify(exec);
      if (go.bad === true || go.error !== undefined || !alike || !sameOptions(ours, expected)) {
        differences.push({ target, ours, go });
      }
    }
    console.log('exec options', { generated: lines.length, compared, differences: differences.length });
    expect(differences.slice(0, 5)).toEqual([]);
    expect(compared).toBeGreaterThan(EXEC_QUERIES / 2);
  });

  it('ask for no stream at all unless they name it', async () => {
    const [answer] = await askOracle<ExecAnswer>('exec-options', [
      { method: 'POST', target: '/api/v1/namespaces/n/pods/p/exec?command=sh' },
    ]);
    const none = { stdin: false, stdout: false, stderr: false, tty: false };
    expect(answer).toMatchObject({ exec: none, attach: none });
  });
});

interface ExecAnswer {
  readonly bad?: boolean;
  readonly error?: string;
  readonly exec: GoStreams;
  readonly attach: GoStreams;
}

interface GoStreams {
  readonly container: string;
  readonly command: readonly string[] | null;
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

function sameOptions(a: object, b: object): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

const FLAG_VALUES = [
  '',
  '=\xe9',
  ...(
    '= =1 =0 =true =false =TRUE =FALSE =False =fALSE =no =2 =00 =+0 =%30 =%66alse =fal%C5%BFe =f =F =%00 =0%00 =%20 ' +
    '=+ =%ff =%zz =0; ;=0 =-0'
  ).split(' '),
];
const TEXTS = [
  '',
  'a b',
  ...(
    'sh -c main a+b a%20b a%2Bb a=b %26 %3B ; x;y % %4 %zz %0a %c3%a9 %ff %ed%a0%80 %f0%9f%98%80 %EF%BB%BF %00 ' +
    '\'" %22 \\ ` {} [1] %252F'
  ).split(' '),
];
const FLAGS = [
  'stdin',
  'stdout',
  'stderr',
  'tty',
  'TTY',
  'Stdin',
  'std%69n',
  't%74y',
  'stdin%20',
  '+tty',
] as const;

function execQuery(random: Random): string {
  return random
    .list(7, () => {
      switch (random.below(4)) {
        case 0:
          return `${random.pick(['command', 'command', 'c%6fmmand', 'Command', 'command[]'])}=${random.pick(TEXTS)}`;
        case 1:
          return `${random.pick(['container', 'container', 'Container'])}=${random.pick(TEXTS)}`;
        default:
          return `${random.pick(FLAGS)}${random.pick(FLAG_VALUES)}`;
      }
    })
    .join(random.oneIn(20) ? '&&' : '&');
}
