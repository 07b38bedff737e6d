/**
 * A generated archive: sessions of people and pipelines; the same seed gives the same archive. Each session is
 * generated when it is read and is never stored, so most of the disk is available for the index.
 */
import type { Catalog } from '../src/tsrecorder/library/catalog.ts';
import type { CatalogEntry } from '../src/tsrecorder/library/catalog-entry.ts';
import { listedVersion } from '../src/tsrecorder/library/describe-stored.ts';
import { recordingId, recordingKey, type RecordingKey } from '../src/tsrecorder/store/key.ts';
import type { StoredRecording } from '../src/tsrecorder/store/store.ts';
import type { Recording } from '../src/wire/recorder-api/recording.ts';
import { exitResult } from '../src/wire/recorder-api/recording-status.ts';
import { createRandom } from '../test/support/random.ts';

export interface ArchiveShape {
  readonly sessions: number;
  /** Number of output characters of all sessions. */
  readonly textBytes: number;
  /** Start and end of the period in which the sessions ran, in milliseconds since the epoch. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** Returns a number from 0 (inclusive) to 1 (exclusive). */
type Random = () => number;

/** Words for queries, by frequency. */
export interface Vocabulary {
  readonly common: readonly string[];
  readonly rare: readonly string[];
}

const NODES = 4;
const USERS = 2000;
const NAMESPACES = 60;
const PODS = 5000;
/**
 * Number of sessions of which one is interactive, with echoed input. In the other sessions, a program prints all output
 * at once.
 */
const TYPED = 4;
const MAX_SESSION = 3_000_000;
const SYLLABLES =
  'ba be bi bo bu da de di do du fa fe fi fo fu ga ge gi go ka ke ki ko la le li lo ma me mi mo na ne ni no pa pe pi po ra re ri ro sa se si so ta te ti to va ve vi vo'.split(
    ' ',
  );
const COMMON =
  'error warning info debug kubectl deployment container namespace service running pending restarting connection refused timeout request response status update delete create apply replica image volume mounted storage controller scheduler ingress certificate secret config default system node worker cluster healthy ready probe failed succeeded completed started stopped queue message broker database postgres migration transaction commit rollback session token user login logout password permission denied allowed policy'.split(
    ' ',
  );
const COMMANDS = [
  'kubectl get pods',
  'kubectl delete pod',
  'kubectl logs -f',
  'tail -f /var/log/app/current.log',
  'grep -r timeout /etc',
  'ls -la /srv/data',
  'cat /etc/hosts',
  'psql -h db -U app',
  'curl -s http://localhost:8080/healthz',
  'systemctl status app',
  'df -h',
  'ps aux',
];

/** Returns the cast and the description of a session by its number; 0 is the oldest session. */
export class SearchArchive {
  readonly shape: ArchiveShape;
  readonly #seed: number;
  readonly #words: readonly string[];
  readonly #weights: readonly number[];
  #weightSum = 0;

  constructor(shape: ArchiveShape, seed: number) {
    this.shape = shape;
    this.#seed = seed;
    const random = randomOf(seed);
    const made = Array.from({ length: 40_000 }, () =>
      Array.from({ length: 2 + Math.floor(random() * 3) }, () => pick(SYLLABLES, random())).join(''),
    );
    this.#words = [...COMMON, ...made];
    // Most sessions are short and a few are long; their lengths are chosen before their texts are generated.
    const lengths = randomOf(seed + 1);
    this.#weights = Array.from({ length: 4096 }, () => Math.exp(1.4 * normal(lengths)));
    for (const weight of this.#weights) this.#weightSum += weight;
  }

  get vocabulary(): Vocabulary {
    return { common: COMMON, rare: this.#words.slice(20_000, 20_500) };
  }

  user(rank: number): string {
    return `user${rank}@example.com`;
  }

  namespace(rank: number): string {
    return `team-${rank}`;
  }

  pod(rank: number): string {
    return `${pick(['web', 'api', 'worker', 'db'], (rank % 97) / 97)}-${(rank * 2_654_435_761) % 1_000_000}`;
  }

  key(number: number): RecordingKey {
    const { fromMs, toMs, sessions } = this.shape;
    const at = fromMs + ((toMs - fromMs) * (number + 0.5)) / sessions;
    const nanoseconds = BigInt(Math.floor(at)) * 1_000_000n + BigInt(number % 1_000_000);
    const seconds = new Date(Number(nanoseconds / 1_000_000n)).toISOString().slice(0, 19);
    return {
      nodeId: `nRECORDER${number % NODES}`,
      time: `${seconds}.${String(nanoseconds % 1_000_000_000n).padStart(9, '0')}Z`,
    };
  }

  /** Lists all recordings, as a store does. */
  *stored(): Generator<StoredRecording> {
    for (let number = 0; number < this.shape.sessions; number += 1) yield this.#listed(number);
  }

  #listed(number: number): StoredRecording {
    return { key: this.key(number), hasSidecar: true, stat: { bytes: 1, modifiedAtMs: number } };
  }

  /** Returns the catalogue entry of a session. Each call generates the session's cast. */
  entry(number: number): CatalogEntry {
    const cast = this.cast(number);
    return {
      recording: this.recording(number, cast.length),
      key: this.key(number),
      resizeOrder: 'columnsFirst',
      live: undefined,
      // the version must equal the listed version, otherwise every session of an existing index would count as changed
      version: listedVersion(this.#listed(number)),
      pieces: [
        {
          start: 0,
          end: () => cast.length,
          live: undefined,
          async *read({ start, end }) {
            yield cast.subarray(start, end);
          },
        },
      ],
    };
  }

  recording(number: number, bytes: number): Recording {
    const random = this.#random(number, 1);
    const key = this.key(number);
    const isTagged = random() < 0.1;
    const pod = zipf(random(), PODS);
    return {
      id: recordingId(key),
      key: recordingKey(key),
      state: random() < 0.97 ? 'completed' : 'interrupted',
      startedAt: key.time,
      durationSeconds: Math.round(Math.exp(4 + 2 * normal(random))),
      bytes,
      width: 120,
      height: 40,
      kind: random() < 0.95 ? 'exec' : 'attach',
      command: pick(['sh', 'bash', 'bash -l', ...COMMANDS], random()),
      result: exitResult(random() < 0.9 ? 0 : Math.floor(random() * 140)),
      source: {
        node: `laptop-${zipf(random(), USERS)}.tail1.ts.net`,
        nodeId: `nLAPTOP${zipf(random(), USERS)}`,
        ...(isTagged
          ? { tags: [`tag:ci-${zipf(random(), 20)}`] }
          : { user: this.user(zipf(random(), USERS)) }),
      },
      destination: { node: 'gateway.tail1.ts.net', nodeId: key.nodeId },
      kubernetes: {
        namespace: this.namespace(zipf(random(), NAMESPACES)),
        pod: this.pod(pod),
        container: 'app',
      },
    };
  }

  cast(number: number): Buffer {
    const random = this.#random(number, 2);
    const { sessions, textBytes } = this.shape;
    const weight = this.#weights[number % this.#weights.length] ?? 1;
    const wanted = Math.min(
      MAX_SESSION,
      (weight / this.#weightSum) * this.#weights.length * (textBytes / sessions),
    );
    const lines = ['{"version":2,"width":120,"height":40,"timestamp":1785325858}'];
    let seconds = 0;
    for (let length = 0; length < wanted;) {
      seconds += 1 + random() * 8;
      const command = pick(COMMANDS, random());
      const prompt = 'user@host:~$ ';
      if (number % TYPED === 0) lines.push(event(seconds - 0.5, prompt), event(seconds, `${command}\r\n`));
      else lines.push(event(seconds, `${prompt}${command}\r\n`));
      const rows = 3 + Math.floor(random() * 40);
      const format = Math.floor(random() * 4);
      for (let row = 0; row < rows; row += 4) {
        seconds += 0.05;
        const text = Array.from({ length: Math.min(4, rows - row) }, () => this.#line(format, random)).join(
          '',
        );
        length += text.length;
        lines.push(event(seconds, text));
      }
    }
    return Buffer.from(`${lines.join('\n')}\n`);
  }

  #line(format: number, random: Random): string {
    const id = hex(random);
    const word = (): string => this.#word(random);
    if (format === 0)
      return (
        `10.${Math.floor(random() * 256)}.0.${Math.floor(random() * 256)} "GET /api/v1/${word()}/${id} ` +
        `HTTP/1.1" ${random() < 0.9 ? 200 : 503} ${Math.floor(random() * 9999)}\r\n`
      );
    if (format === 1)
      return `{"level":"${pick(['info', 'error', 'warning'], random())}","id":"${id}","msg":"${word()} ${word()}"}\r\n`;
    if (format === 2)
      return (
        `drwxr-xr-x ${Math.floor(random() * 20)} root ${Math.floor(random() * 99999)} ` +
        `${word()}-${word()}.${pick(['log', 'yaml', 'go'], random())}\r\n`
      );
    return `${word()} ${word()} ${word()} ${word()} ${id} ${word()} ${word()}\r\n`;
  }

  #word(random: Random): string {
    return this.#words[zipf(random(), this.#words.length)] ?? '';
  }

  #random(number: number, stream: number): Random {
    return randomOf(Math.imul(number + 1, 2_654_435_761) ^ (this.#seed * 31 + stream));
  }
}

/** The archive with the interfaces that an indexer needs. */
export function catalogOf(archive: SearchArchive): Pick<Catalog, 'find'> {
  const numbers = new Map<string, number>();
  for (let number = 0; number < archive.shape.sessions; number += 1)
    numbers.set(recordingId(archive.key(number)), number);
  return {
    async find(id) {
      const number = numbers.get(id);
      return number === undefined ? undefined : archive.entry(number);
    },
  };
}

function event(seconds: number, text: string): string {
  return `[${seconds.toFixed(3)},"o",${JSON.stringify(text)}]`;
}

function pick<T>(list: readonly T[], at: number): T {
  return list[Math.min(list.length - 1, Math.floor(at * list.length))] as T;
}

/** Returns a random rank in the distribution of names and words. Rank 1 has a tenth of all occurrences. */
function zipf(at: number, ranks: number): number {
  return Math.min(ranks - 1, Math.floor(ranks ** at) - 1);
}

function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

function randomOf(seed: number): Random {
  const random = createRandom(seed);
  return () => random.below(2 ** 32) / 2 ** 32;
}

function hex(random: Random): string {
  return Math.floor(random() * 2 ** 32)
    .toString(16)
    .padStart(8, '0');
}
