/** A generated archive of casts, on a recorder with the built page. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PLAYER_DIRECTORY } from '../../../src/compose/player-directory.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { createRecorder } from '../../../src/compose/recorder-parts.ts';
import type { RecorderOptions } from '../../../src/compose/recorder-options.ts';
import { PLAIN_HOST } from './browser.ts';

export type CastLine = readonly [seconds: number, code: string, data: string];

export interface CastSpec {
  readonly command: string;
  readonly columns: number;
  readonly rows: number;
  readonly events: readonly CastLine[];
  readonly user?: string;
  readonly node?: string;
  /** Content of the file after the header, instead of `events`. */
  readonly raw?: string;
}

export interface CastArchive extends AsyncDisposable {
  readonly url: string;
  readonly folder: string;
  /** Ids of the recordings that existed before the recorder started. */
  readonly ids: readonly string[];
  /** Puts a recording into the store. @returns its id */
  add(spec: CastSpec): string;
  /** Returns the access events of the recorder. */
  accesses(): Promise<readonly { readonly action: string; readonly recording?: string }[]>;
}

const NODE = 'nTEST1CNTRL';
const START_MS = Date.UTC(2026, 0, 2, 3, 4, 5);

/** @param specs recordings that exist when the recorder starts, so that an index contains them immediately */
export async function startCastArchive(
  options: Partial<RecorderOptions> = {},
  specs: readonly CastSpec[] = [],
): Promise<CastArchive> {
  const folder = mkdtempSync(join(tmpdir(), 'tccasts-'));
  let count = 0;
  const add = (spec: CastSpec): string => {
    const at = new Date(START_MS + count * 60_000).toISOString().replace('Z', '000000Z');
    count += 1;
    mkdirSync(join(folder, NODE), { recursive: true });
    writeFileSync(join(folder, NODE, `${at}.cast`), castText(spec));
    return `${NODE}_${at}`;
  };
  const ids = specs.map(add);
  const recorder = await createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory: folder,
    playerDirectory: PLAYER_DIRECTORY,
    hostNames: [PLAIN_HOST],
    identify: async () => ({ kind: 'refused', reason: 'this archive is only read' }),
    identifyViewer: async () => ({
      node: 'auditor.example.ts.net',
      nodeId: 'nAUD',
      user: 'carol@example.com',
    }),
    log: createSilentLogger(),
    ...options,
    timing: { listRefreshMs: 100, closeGraceMs: 200, ...options.timing },
  });
  return {
    url: recorder.url,
    folder,
    ids,
    add,
    async accesses() {
      const response = await fetch(`${recorder.url}/api/v1/events?type=tailcast-recording-access&limit=500`);
      const { events } = (await response.json()) as {
        events: { event: { action: string; recording?: string } }[];
      };
      return events.map(({ event }) => event).filter(({ action }) => action !== 'events');
    },
    async [Symbol.asyncDispose]() {
      await recorder.close();
      for (const path of [folder, `${folder}.spool`]) rmSync(path, { recursive: true, force: true });
    },
  };
}

/** Returns the header and the events in the format of tailcast's gateway. */
export function castText({ command, columns, rows, events, user, node, raw }: CastSpec): string {
  const header = {
    version: 2,
    width: columns,
    height: rows,
    timestamp: START_MS / 1000,
    command,
    srcNode: node ?? 'laptop.example.ts.net',
    srcNodeID: 'nLAP',
    srcNodeUser: user ?? 'alice@example.com',
    env: null,
    sshUser: '',
    localUser: '',
    connectionID: '',
    kubernetes: { PodName: 'web-0', Namespace: 'prod', Container: 'app', SessionType: 'exec' },
    tailcast: 1,
  };
  const lines = raw ?? events.map((event) => `${JSON.stringify(event)}\n`).join('');
  return `${JSON.stringify(header)}\n${lines}`;
}
