/** Opens the archive that a command reads: the archive in its options, or the archive of the user's demo. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { CommandContext } from '../config/command-context.ts';
import { RECORDER_SETTINGS } from '../config/recorder.ts';
import { defaultStateDirectory } from '../config/environment.ts';
import { TailcastError } from '../errors.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import type { EvidenceStore } from '../tsrecorder/evidence/check-evidence.ts';
import { keysById, loadPublicKeys } from '../tsrecorder/evidence/signing-key.ts';
import type { Archive } from './archive.ts';
import type { TrustedKeys } from './directory-archive.ts';
import type { ContextOptions } from './context-archive.ts';
import { openRecorderArchive } from './recorder-archive.ts';
import { readRoleSettings } from './role-options.ts';
import type { Options } from './tool.ts';
import { textOf, textsOf } from './arguments.ts';

/** Content of the file in the demo's directory: the address of the demo's recorder and the path of its store. */
const DEMO_NOTE = z.object({ recorder: z.string(), store: z.string() });

/**
 * Opens the archive that the options, the environment or the user's demo name.
 *
 * @throws TailcastError `USAGE` if none of them names an archive, `RECORDER_UNREACHABLE` if the recorder does not
 *   respond
 */
export async function openArchive(options: Options, context: CommandContext): Promise<Archive> {
  const places = [...textsOf(options['store']), ...textsOf(options['recorder'])];
  if (places.length > 1) return openPlaces(options, context);
  const url = recorderOf(options, context.environment);
  const store = textOf(options['store']) ?? context.environment.get('TAILCAST_STORE');
  const named = contextOptions(options, context, url ?? store);
  if (named !== undefined) {
    const { openContextArchive } = await import('./context-archive.ts');
    return openContextArchive(named, context);
  }
  if (url !== undefined && textOf(options['store']) === undefined)
    return openRecorderArchive(url, context.signal);
  if (store !== undefined) return openStore(store, options, context);
  const demo = await readDemoNote(context.environment);
  if (demo === undefined) {
    throw new TailcastError(
      'USAGE',
      'no recorder is named: give --context <gateway>, --recorder <url> or --store <directory or s3://…>, set ' +
        'TAILCAST_RECORDER, or run the demo first',
    );
  }
  return (await answers(demo.recorder))
    ? openRecorderArchive(demo.recorder, context.signal)
    : openStore(demo.store, options, context);
}

/**
 * Returns the address of the recorder that the options, the environment or the user's demo name.
 *
 * @throws TailcastError `USAGE` if none of them names a recorder
 */
export async function recorderAddress(options: Options, { environment }: CommandContext): Promise<string> {
  return addressOf(options, environment, 'give --recorder <url>');
}

async function addressOf(
  options: Options,
  environment: ReadonlyMap<string, string>,
  advice: string,
): Promise<string> {
  const named = recorderOf(options, environment);
  const address = named ?? (await readDemoNote(environment))?.recorder;
  if (address === undefined)
    throw new TailcastError(
      'USAGE',
      `no recorder is named: ${advice}, set TAILCAST_RECORDER, or run the demo first`,
    );
  if (!URL.canParse(address) || !/^https?:/.test(address))
    throw new TailcastError('USAGE', `${address} is not an http:// or https:// address of a recorder`);
  return address;
}

/**
 * Returns the address of a recorder, or of the portal in the named context. Use this address only for requests that
 * both recorders and portals support.
 *
 * @throws TailcastError `USAGE` if there is no address, and the errors of {@link openArchive} for a context
 */
export async function recorderOrContextAddress(options: Options, context: CommandContext): Promise<string> {
  const { environment } = context;
  const named = contextOptions(options, context, recorderOf(options, environment));
  if (named === undefined)
    return addressOf(options, environment, 'give --context <gateway> or --recorder <url>');
  const { contextAddress } = await import('./context-archive.ts');
  return contextAddress(named, context);
}

/** True if `openArchive` reads a store or several archives, rather than one recorder. */
export function isStoreNamed(options: Options, context: CommandContext): boolean {
  if (textsOf(options['store']).length + textsOf(options['recorder']).length > 1) return true;
  const url = recorderOf(options, context.environment);
  const named = textOf(options['store']) ?? url ?? context.environment.get('TAILCAST_STORE');
  return named !== url && contextOptions(options, context, named) === undefined;
}

/**
 * Returns the options for the named context or, in a kubectl plugin, for kubectl's current context. Undefined if the
 * command uses no context.
 */
function contextOptions(
  options: Options,
  { programName }: CommandContext,
  other: string | undefined,
): ContextOptions | undefined {
  const [kubeconfig, name] = [textOf(options['kubeconfig']), textOf(options['context'])];
  if (kubeconfig === undefined && name === undefined) {
    return programName === undefined || other !== undefined ? undefined : { kubeconfig, context: name };
  }
  if ((textOf(options['recorder']) ?? textOf(options['store'])) !== undefined) {
    throw new TailcastError(
      'USAGE',
      '--context and --kubeconfig name an archive, and so do --recorder and --store',
    );
  }
  return { kubeconfig, context: name };
}

async function openStore(store: string, options: Options, context: CommandContext): Promise<Archive> {
  const { openStoreArchive } = await import('./directory-archive.ts');
  const trusted = await trustedKeys(options, context);
  return openStoreArchive(await readableStore(store, context), context.signal, trusted);
}

/**
 * Returns the public keys of recorders that the options or the environment name.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
async function trustedKeys(options: Options, { environment }: CommandContext): Promise<TrustedKeys> {
  const file = textOf(options['recorderKeys']) ?? environment.get('TAILCAST_RECORDER_KEYS');
  if (file === undefined) return new Map();
  return keysById(await loadPublicKeys(file));
}

async function readableStore(store: string, { environment }: CommandContext): Promise<EvidenceStore> {
  const { openStoreForTool } = await import('../compose/recorder-store.ts');
  return (await openStoreForTool({ ...readRoleSettings(RECORDER_SETTINGS, {}, environment), store })).store;
}

/** Opens several stores and recorders, and joins the parts of sessions. */
async function openPlaces(options: Options, context: CommandContext): Promise<Archive> {
  if ((textOf(options['context']) ?? textOf(options['kubeconfig'])) !== undefined)
    throw new TailcastError(
      'USAGE',
      'with --context there is one archive: name no --recorder and no --store',
    );
  const { remoteOfStore, openJoinedArchive } = await import('./directory-archive.ts');
  const { remoteOfRecorder } = await import('./recorder-archive.ts');
  const stores = await Promise.all(textsOf(options['store']).map((store) => readableStore(store, context)));
  const [first = NO_STORE, ...others] = stores;
  const recorders = textsOf(options['recorder']).map((url) => remoteOfRecorder(url, context.signal));
  const trusted = await trustedKeys(options, context);
  const otherSources = others.map((store) => remoteOfStore(store, trusted));
  return openJoinedArchive(first, [...otherSources, ...recorders], context.signal, trusted);
}

/** Empty store, for archives that consist only of recorders. */
const NO_STORE: EvidenceStore = {
  list: async () => [],
  stat: async () => undefined,
  readDocument: async () => undefined,
  read: () => {
    throw new TailcastError('RECORDING_UNKNOWN');
  },
};

async function answers(base: string): Promise<boolean> {
  const probe = await fetch(new URL('healthz', base), { signal: AbortSignal.timeout(1000) }).catch(
    () => undefined,
  );
  await probe?.body?.cancel();
  return probe?.ok === true;
}

/** Returns the content of the demo's file; undefined if no demo exists. */
export async function readDemoNote(
  environment: ReadonlyMap<string, string>,
): Promise<z.infer<typeof DEMO_NOTE> | undefined> {
  const path = join(defaultStateDirectory(environment), 'demo', 'demo.json');
  const source = await readFile(path, 'utf8').catch(() => undefined);
  if (source === undefined) return undefined;
  const note = DEMO_NOTE.safeParse(jsonOrUndefined(source));
  return note.success ? note.data : undefined;
}

function recorderOf(options: Options, environment: ReadonlyMap<string, string>): string | undefined {
  return textOf(options['recorder']) ?? environment.get('TAILCAST_RECORDER');
}
