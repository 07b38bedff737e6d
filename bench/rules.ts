/**
 * Compares the CPU time of two recorders that receive the same flood of text in paired rounds: one with 200 rules about
 * output, one without rules. Exits with code 1 if the ratio is above the goal.
 *
 *   node bench/rules.ts [--rounds 5 --megabytes 64]
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createRecorder } from '../src/compose/recorder-parts.ts';
import { createSilentLogger } from '../src/observe/logger.ts';
import { compareRounds } from './harness/statistics.ts';

const GOAL = 1.5;
const RULES = 200;
const SESSIONS = 8;
/** Pause between two checks whether the index contains all sessions. */
const CHECK_MS = 50;
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    megabytes: { type: 'string', default: '64' },
    serve: { type: 'string' },
    folder: { type: 'string', default: '' },
  },
});

/** Last line of each session, which the last rule matches. */
const LAST_LINE = 'the last line of the load';

/** Returns the pattern of a rule. The last rule matches the load; the others match secrets and commands. */
const patternOf = (index: number): string => (index === RULES - 1 ? LAST_LINE : commonPattern(index));
const commonPattern = (index: number): string =>
  [
    `(?i)\\bsecret-${index}-[0-9a-f]{8}\\b`,
    `AKIA${index}[0-9A-Z]{16}`,
    `\\brm\\s+-rf\\s+/srv/${index}\\b`,
    `password${index}\\s*[:=]\\s*\\S+`,
  ][index % 4] ?? '';

async function serve(count: number): Promise<void> {
  const recorder = await createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory: values.folder,
    identify: async () => ({ kind: 'accepted', nodeId: 'nBENCH', nodeName: 'bench.ts.net' }),
    log: createSilentLogger(),
    searchText: 'all',
    alerts: {
      rules: Array.from({ length: count }, (_, index) => ({
        name: `rule-${index}`,
        query: { clauses: [] },
        pattern: { in: 'output' as const, source: patternOf(index) },
        action: 'mark' as const,
      })),
      webhooks: new Map(),
      giveUpMs: 3_600_000,
    },
  });
  process.stdout.write(`${recorder.url}\n`);
  process.stdin.on('end', () => void recorder.close().then(() => process.exit(0)));
  process.stdin.resume();
}

/** Returns events with distinct lines of a program's log. */
function chunk(session: number, index: number): string {
  const events = Array.from({ length: 100 }, (_, line) => {
    const at = index * 100 + line;
    const text = `2026-11-28T08:00:00Z worker-${session} job ${at} done in ${(at * 7919) % 1000} ms, next ${at + 1}\r\n`;
    return `${JSON.stringify([at / 1000, 'o', text])}\n`;
  });
  return events.join('');
}

async function upload(url: string, session: number, bytes: number): Promise<void> {
  const http = connect(url);
  const stream = http.request({ ':method': 'POST', ':path': '/v2/record' });
  const over = once(stream.resume(), 'close');
  stream.write(
    `{"version":2,"width":120,"height":40,"timestamp":1785325858,"command":"run ${session}","srcNode":"n","srcNodeID":"n"}\n`,
  );
  for (let sent = 0, index = 0; sent < bytes; index += 1) {
    const text = chunk(session, index);
    sent += text.length;
    if (!stream.write(text)) await once(stream, 'drain');
  }
  stream.end(`${JSON.stringify([1e6, 'o', `${LAST_LINE}\r\n`])}\n`);
  await over;
  http.close();
}

/** Returns the CPU time that a recorder needs to receive and index the load, in milliseconds. */
async function measure(count: number, bytes: number): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'tcbench-'));
  const self = fileURLToPath(import.meta.url);
  const args = [self, '--serve', String(count), '--folder', join(folder, 'store')];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  try {
    const first = await Promise.race([once(child.stdout, 'data'), exit.then(() => undefined)]);
    if (first === undefined || child.pid === undefined) throw new Error('the recorder did not start');
    const url = String(first[0]).trim();
    await indexed(url, 0);
    const before = cpuMs(child.pid);
    const each = bytes / SESSIONS;
    await Promise.all(Array.from({ length: SESSIONS }, (_, session) => upload(url, session, each)));
    await indexed(url, SESSIONS);
    if (count > 0) await requireTags(url);
    return cpuMs(child.pid) - before;
  } finally {
    child.stdin.end();
    await exit;
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Resolves when the index contains all sessions. */
async function indexed(url: string, sessions: number): Promise<void> {
  for (;;) {
    const progress = (await (await fetch(new URL('/api/v1/index', url))).json()) as Record<string, unknown>;
    const isDone = progress['state'] === 'ready' && progress['backlog'] === 0 && progress['lagSeconds'] === 0;
    if (isDone && (await stored(url)) >= sessions) return;
    await delay(CHECK_MS);
  }
}

/**
 * Waits until the last rule has marked every session. If the recorder had disabled the rule, the result would be
 * meaningless.
 */
async function requireTags(url: string): Promise<void> {
  for (let wait = 0; wait < 10_000; wait += CHECK_MS) {
    const found = (await (await fetch(new URL(`/api/v1/recordings?limit=100`, url))).json()) as {
      readonly recordings: readonly { readonly review?: { readonly tags: readonly string[] } }[];
    };
    const tagged = found.recordings.filter(
      ({ review }) => review?.tags.includes(`rule-${RULES - 1}`) === true,
    );
    if (tagged.length === SESSIONS) return;
    await delay(CHECK_MS);
  }
  throw new Error('the last rule did not mark every session');
}

/** Returns the number of finished sessions. */
async function stored(url: string): Promise<number> {
  const list = (await (await fetch(new URL('/api/v1/recordings?limit=100', url))).json()) as {
    readonly recordings: readonly { readonly state: string }[];
  };
  return list.recordings.filter(({ state }) => state !== 'running').length;
}

/** Returns the user and system time of a process and of its running and finished children. */
function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const own = [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at]), 0) * 10;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return children === '' ? own : own + children.split(' ').reduce((sum, id) => sum + cpuMs(Number(id)), 0);
}

if (values.serve === undefined) {
  const bytes = Number(values.megabytes) * 1_000_000;
  const [without, withRules]: [number[], number[]] = [[], []];
  for (let round = 1; round <= Number(values.rounds); round += 1) {
    without.push(await measure(0, bytes));
    withRules.push(await measure(RULES, bytes));
    console.log(`round ${round}: ${without.at(-1)} ms without rules, ${withRules.at(-1)} ms with ${RULES}`);
  }
  const compared = compareRounds(withRules, without);
  if (compared === undefined) throw new Error('two rounds are necessary');
  const { ratio, low, high } = compared;
  console.log(
    `${RULES} rules: ${ratio.toFixed(2)}x [${low.toFixed(2)}–${high.toFixed(2)}] of the CPU without rules`,
  );
  process.exitCode = ratio <= GOAL ? 0 : 1;
} else await serve(Number(values.serve));
