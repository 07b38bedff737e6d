/** The commands of `tailcast migrate`. */
import type { CommandContext } from '../config/command-context.ts';
import {
  verdictOf,
  VERDICT_KINDS,
  type MigrationItem,
  type VerdictKind,
} from '../doctor/migration/verdict.ts';
import { several, textOf, textsOf } from './arguments.ts';
import { plain, print, printJson } from './output.ts';
import type { Options, Tool } from './tool.ts';

/** Width of the longest verdict, in columns of the terminal. */
const VERDICT_WIDTH = 12;

/** Adds `migrate check`. */
export function addMigrate(program: Tool): void {
  program
    .add('migrate', 'compare an installation of the Tailscale operator with tailcast')
    .add('check', 'report which objects, grants and Helm values tailcast takes over; changes nothing')
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
    .failsWith(2)
    .action((options: Options) => runCheck(options, program.context));
}

async function runCheck(options: Options, context: CommandContext): Promise<number> {
  const { checkMigration } = await import('../compose/migration.ts');
  const { kubeconfig, context: name, objects, policy, json } = options;
  const { items, unreadable } = await checkMigration({
    kubeconfig: textOf(kubeconfig),
    context: textOf(name),
    objects: textsOf(objects),
    policy: textOf(policy),
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
  const counts = { unchanged: 0, different: 0, unsupported: 0, unknown: 0 };
  for (const item of items) counts[verdictOf(item)] += 1;
  return counts;
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
