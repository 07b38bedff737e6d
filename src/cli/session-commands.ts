/** The commands for running sessions: `sessions`, `watch`, `end`, `pause`, `resume`. */
import { z } from 'zod';
import type { CommandContext } from '../config/command-context.ts';
import { errorText } from '../errors.ts';
import {
  CONTROL_ACTIONS,
  WATCH_INTERVAL_MS,
  type ControlAction,
  type OrderAction,
} from '../wire/recorder-api/session-order.ts';
import { addArchiveOptions, addContextOptions } from './archive-options.ts';
import { RECORDER_OPTION } from './index-commands.ts';
import { print } from './output.ts';
import type { Options, Tool } from './tool.ts';

const DESCRIPTIONS: Readonly<Record<ControlAction, string>> = {
  end: 'end a running session; its user sees the reason',
  pause: 'pause output and input of a running session, for at most 5 minutes',
  resume: 'resume a paused session',
};
/**
 * Start position in seconds. This time is longer than any session, so all output that is already recorded appears
 * immediately.
 */
const NOW = '3600000';

/** Adds the commands. */
export function addSessions(program: Tool): void {
  const { context } = program;
  addArchiveOptions(program.add('sessions', 'list running sessions'))
    .option('--user <login>', 'only sessions of this user')
    .option('--namespace <name>', 'only sessions in this namespace')
    .option('--json', 'one JSON object per line')
    .action(async (options: Options) =>
      (await import('./ls.ts')).printRecordings({ ...options, state: 'running' }, context),
    );
  addArchiveOptions(
    program.add('watch', 'watch a running session in this terminal; a moderated session then runs'),
  )
    .argument('<id>', 'id from `sessions` (or its beginning), or `latest`')
    .action(async (id: string, options: Options) => {
      const { playRecording } = await import('./play.ts');
      const moderation = await moderate(id, options, context);
      try {
        await playRecording(moderation.id, { ...options, follow: true, from: NOW, speed: 1 }, context);
      } finally {
        moderation.over.abort();
      }
    });
  for (const action of CONTROL_ACTIONS) {
    addContextOptions(program.add(action, DESCRIPTIONS[action]))
      .argument('<id>', 'id from `sessions` (or its beginning), or `latest`')
      .option(...RECORDER_OPTION)
      .option('--reason <text>', 'reason, which the recording contains')
      .action(async (id: string, options: Options) => order(action, id, options, context));
  }
}

/** Finds the session. Lets a moderated session run until the returned controller aborts. */
async function moderate(
  given: string,
  options: Options,
  context: CommandContext,
): Promise<{ readonly id: string; readonly over: AbortController }> {
  const over = new AbortController();
  const { isStoreNamed } = await import('./open-archive.ts');
  if (isStoreNamed(options, context)) return { id: given, over };
  const { id, orders, post } = await openOrders(given, options, context);
  const { isModerated } = await orders();
  if (!isModerated) return { id, over };
  const warn = (error: unknown): Promise<void> => print(context.stderr, `tailcast: ${errorText(error)}\n`);
  const repeat = (): void => void post('watch').catch(warn);
  await post('watch').then(() => {
    const timer = setInterval(repeat, WATCH_INTERVAL_MS);
    over.signal.addEventListener('abort', () => clearInterval(timer));
  }, warn);
  return { id, over };
}

/** Finds the session, and returns functions that send requests to control it. */
async function openOrders(
  given: string,
  options: Options,
  context: CommandContext,
): Promise<{
  readonly id: string;
  readonly orders: () => Promise<{ readonly isModerated: boolean }>;
  /** Sends a command to the session. Resolves after the gateway has confirmed the command. */
  readonly post: (action: OrderAction, query?: Readonly<Record<string, string>>) => Promise<void>;
}> {
  const { recorderOrContextAddress } = await import('./open-archive.ts');
  const { decodeBody, fetchJson, openRecorderArchive, requestApi } = await import('./recorder-archive.ts');
  const base = await recorderOrContextAddress(options, context);
  const { signal } = context;
  const { id } = await openRecorderArchive(base, signal).find(given);
  const path = `recordings/${encodeURIComponent(id)}/orders`;
  return {
    id,
    orders: () => fetchJson(base, path, {}, signal, z.object({ isModerated: z.boolean() })),
    async post(action, query = {}) {
      const response = await requestApi(base, `${path}/${action}`, query, signal, { method: 'POST' });
      await decodeBody(response, base, z.object({ confirmed: z.literal(true) }));
    },
  };
}

async function order(
  action: ControlAction,
  given: string,
  options: Options,
  context: CommandContext,
): Promise<void> {
  const { id, post } = await openOrders(given, options, context);
  await post(action, typeof options['reason'] === 'string' ? { reason: options['reason'] } : {});
  await print(context.stdout, `${id}: the gateway confirmed: ${action}\n`);
}
