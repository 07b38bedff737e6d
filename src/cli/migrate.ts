/** The commands of `tailcast migrate`. */
import type { Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';
import {
  verdictOf,
  VERDICT_KINDS,
  type MigrationItem,
  type VerdictKind,
} from '../doctor/migration/verdict.ts';
import { TailcastError } from '../errors.ts';
import { several } from './arguments.ts';
import { formatFailure } from './failure-text.ts';
import { plain, print, printJson } from './output.ts';

/** Width of the longest verdict, in columns of the terminal. */
const VERDICT_WIDTH = 12;

/** Adds `migrate check`. The command writes its exit code to `outcome`. */
export function addMigrate(program: Command, context: CommandContext, outcome: { code: number }): void {
  program
    .command('migrate')
    .description('compare an installation of the Tailscale operator with tailcast')
    .exitOverride()
    .command('check')
    .description('report which objects, grants and Helm values tailcast takes over; changes nothing')
    .exitOverride()
    .option('--kubeconfig <file>', 'kubeconfig of the cluster; default: the file that kubectl uses')
    .option('--context <name>', 'context of the kubeconfig; default: its current context')
    .option(
      '--objects <file>',
      'read objects from this YAML or JSON file, not a cluster; repeatable',
      several,
    )
    .option('--policy <file>', 'tailnet policy file; its grants are checked as well')
    .option('--json', 'one JSON object instead of lines')
    .addHelpText(
      'after',
      '\nExit code: 0 tailcast takes over everything, 1 something is unsupported, unknown or unreadable, 2 ' +
        'wrong usage.',
    )
    .action(async (options: Record<string, unknown>) => {
      try {
        outcome.code = await runCheck(options, context);
      } catch (error) {
        if (!(error instanceof TailcastError)) throw error;
        await print(context.stderr, formatFailure(error));
        outcome.code = 2;
      }
    });
}

async function runCheck(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<number> {
  const { checkMigration } = await import('../compose/migration.ts');
  const { kubeconfig, context: name, objects, policy, json } = options;
  const { items, unreadable } = await checkMigration({
    kubeconfig: typeof kubeconfig === 'string' ? kubeconfig : undefined,
    context: typeof name === 'string' ? name : undefined,
    objects: Array.isArray(objects) ? objects.map(String) : [],
    policy: typeof policy === 'string' ? policy : undefined,
    environment: context.environment,
    signal: context.signal,
  });
  const counts = countVerdicts(items);
  const isMigratable = counts.unsupported === 0 && counts.unknown === 0 && unreadable.length === 0;
  if (json === true) {
    const listed = items.map((item) => ({ ...item, verdict: verdictOf(item) }));
    await printJson(context.stdout, { ok: isMigratable, counts, items: listed, unreadable }, 2);
  } else {
    await print(context.stdout, formatReport(items, unreadable, counts));
  }
  return isMigratable ? 0 : 1;
}

type Counts = Readonly<Record<VerdictKind, number>>;

function countVerdicts(items: readonly MigrationItem[]): Counts {
  const count = (kind: VerdictKind): number => items.filter((item) => verdictOf(item) === kind).length;
  return {
    unchanged: count('unchanged'),
    different: count('different'),
    unsupported: count('unsupported'),
    unknown: count('unknown'),
  };
}

function formatReport(
  items: readonly MigrationItem[],
  unreadable: readonly string[],
  counts: Counts,
): string {
  const blocks = items.map((item) => {
    const head = `${verdictOf(item).padEnd(VERDICT_WIDTH)} ${plain(item.kind)} ${plain(item.name)}`;
    const reasons = item.findings.map(({ field, text }) => {
      const at = field === '' ? '' : `${plain(field)}: `;
      return `${' '.repeat(VERDICT_WIDTH)}   ${at}${plain(text)}`;
    });
    return [head, ...reasons].join('\n');
  });
  const problems = unreadable.map((sentence) => `${'unreadable'.padEnd(VERDICT_WIDTH)} ${plain(sentence)}`);
  const total =
    items.length === 0 && unreadable.length === 0
      ? 'The reference operator has no objects here.'
      : `${items.length} checked: ${VERDICT_KINDS.map((kind) => `${counts[kind]} ${kind}`).join(', ')}`;
  return `${[...blocks, ...problems, total].join('\n')}\n`;
}
