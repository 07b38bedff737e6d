import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { openArchive } from './open-archive.ts';
import { formatBytes, formatDuration, formatTable, plain, print } from './output.ts';
import type { CommandContext } from '../config/command-context.ts';

const FILTERS = ['user', 'namespace', 'pod', 'state'] as const;

/**
 * `tailcast ls`: the newest recordings, one line each, or one JSON object each with `--json`.
 *
 * @throws TailcastError `USAGE` or `RECORDER_UNREACHABLE`.
 */
export async function listRecordings(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const limit = typeof options['limit'] === 'number' ? options['limit'] : 50;
  const archive = await openArchive(options, context);
  const query: Record<string, string> = { limit: String(Math.min(limit, 500)) };
  for (const name of FILTERS) {
    const value = options[name];
    if (typeof value === 'string') query[name] = value;
  }
  const rows: (readonly string[])[] = [];
  let count = 0;
  for await (const recording of archive.list(query)) {
    if (count++ === limit) break;
    if (options['json'] === true) await print(context.stdout, `${JSON.stringify(recording)}\n`);
    else rows.push(rowOf(recording));
  }
  if (options['json'] === true) return;
  if (rows.length === 0) await print(context.stderr, 'no recording matches\n');
  else
    await print(
      context.stdout,
      formatTable(['ID', 'WHO', 'WHERE', 'LENGTH', 'SIZE', 'STATE', 'EXIT', 'COMMAND'], rows),
    );
}

function rowOf(recording: ListedRecording): readonly string[] {
  const { source, kubernetes, durationSeconds, exitCode } = recording;
  const where = kubernetes === undefined ? '' : `${kubernetes.namespace}/${kubernetes.pod}`;
  return [
    recording.id,
    source.user ?? source.tags?.join(',') ?? source.node,
    where,
    durationSeconds === undefined ? '' : formatDuration(durationSeconds),
    formatBytes(recording.bytes),
    recording.state,
    exitCode === undefined ? '' : String(exitCode),
    recording.command ?? recording.kind,
  ].map(plain);
}
