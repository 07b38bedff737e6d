/**
 * Stores the format of a directory in the file `format.json` inside the directory. Without this file, an older version
 * of tailcast could treat files of a newer version as damaged or as remains of a crash.
 *
 * ```
 * /var/lib/tailcast-recorder/spool/format.json    {"kind":"spool","format":1,"version":"0.1.0"}
 * ```
 */
import { randomUUID } from 'node:crypto';
import { open, readFile, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { errorReason, isSystemError, TailcastError } from './errors.ts';
import { VERSION } from './version.ts';

const KINDS = ['spool', 'gateway state'] as const;

export interface FolderFormat {
  /** Name of the kind of directory, as messages show it. */
  readonly kind: (typeof KINDS)[number];
  /** Format that this version of tailcast writes. It reads this format and all earlier formats. */
  readonly format: number;
}

/** Format of the directory that contains running uploads, the evidence log and the key of the log. */
export const SPOOL_FORMAT: FolderFormat = { kind: 'spool', format: 1 };
/** Format of the directory that contains unacknowledged output and the CA of self-signed certificates. */
export const GATEWAY_STATE_FORMAT: FolderFormat = { kind: 'gateway state', format: 1 };

const FILE = 'format.json';

interface Mark extends FolderFormat {
  /** Version of tailcast that wrote `format.json`. */
  readonly version: string;
}

/**
 * Checks the format of a directory, and writes nothing.
 *
 * @returns true if the directory contains `format.json`
 * @throws TailcastError `CONFIG_INVALID` if a newer tailcast wrote the directory, or if the directory has another kind
 */
export async function checkFormat(directory: string, { kind, format }: FolderFormat): Promise<boolean> {
  const path = join(directory, FILE);
  const mark = await readMark(path);
  if (mark === undefined) return false;
  if (mark.kind !== kind)
    throw refusal(`${directory} holds a ${mark.kind}, and no ${kind}: name another folder`);
  if (mark.format > format) {
    throw refusal(
      `${directory} was written by tailcast ${mark.version} (${kind} format ${mark.format}), and this is ` +
        `${VERSION}, which reads up to format ${format}: start tailcast ${mark.version} or newer, or name ` +
        'another folder; nothing in it was changed',
    );
  }
  return true;
}

/** Checks the format, and writes `format.json` if it is missing. @throws as `checkFormat`, or a system error */
export async function markFormat(directory: string, format: FolderFormat): Promise<void> {
  if (await checkFormat(directory, format)) return;
  const mark: Mark = { ...format, version: VERSION };
  // processes that start at the same time may all write the file, because its content is the same
  const draft = join(directory, `.${FILE}.${randomUUID()}`);
  const file = await open(draft, 'wx', 0o600);
  try {
    await file.writeFile(`${JSON.stringify(mark)}\n`);
    await file.sync();
    await file.close();
    await rename(draft, join(directory, FILE));
  } catch (error) {
    await file.close().catch(() => undefined);
    await unlink(draft).catch(() => undefined);
    throw error;
  }
}

async function readMark(path: string): Promise<Mark | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    // ENOTDIR is ignored, because the code that uses the directory reports it
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw refusal(`${path} cannot be read: ${errorReason(error)}`);
  }
  const mark = parseMark(text);
  if (mark === undefined) {
    throw refusal(`${path} does not contain the format of the files next to it: restore it`);
  }
  return mark;
}

function parseMark(text: string): Mark | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null) return undefined;
    const { kind: named, format, version }: { [Name in keyof Mark]?: unknown } = value;
    const kind = KINDS.find((each) => each === named);
    if (kind === undefined) return undefined;
    if (typeof format !== 'number' || !Number.isSafeInteger(format) || typeof version !== 'string')
      return undefined;
    return { kind, format, version };
  } catch {
    return undefined;
  }
}

function refusal(detail: string): TailcastError {
  return new TailcastError('CONFIG_INVALID', detail);
}
