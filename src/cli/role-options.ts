import { Option } from 'commander';
import { readConfigFile } from '../config/file.ts';
import { byTopic, shownDefault } from '../config/topics.ts';
import { errorText, TailcastError } from '../errors.ts';
import {
  environmentName,
  flagName,
  readSettings,
  type SettingCheck,
  type SettingSources,
  type SettingTable,
  type SettingValues,
} from '../config/settings.ts';
import type { Options, Tool } from './tool.ts';

/** Environment variables of the command-line tools, in addition to the variables of the settings. */
const TOOL_VARIABLES = ['TAILCAST_CONFIG', 'TAILCAST_RECORDER', 'TAILCAST_STORE'] as const;

/**
 * Adds one option per setting, plus `--config`. The help lists the default and the environment variable of each option.
 */
export function addSettingOptions(command: Tool, table: SettingTable): Tool {
  command.option(
    '--config <file>',
    'YAML file with the same settings, named as in --proxy-protocol → proxyProtocol',
  );
  for (const { topic, entries } of byTopic(table)) {
    for (const [key, setting] of entries) {
      const { description, placeholder } = setting;
      const flags = placeholder === undefined ? flagName(key) : `${flagName(key)} ${placeholder}`;
      const standard = shownDefault(key, setting);
      const suffix = standard === undefined ? '' : ` (default: ${standard})`;
      const text = `${description}${suffix} [${environmentName(key)}]`;
      command.addOption(new Option(flags, text).helpGroup(`${topic}:`));
    }
  }
  return command;
}

/**
 * Reads the settings of one run.
 *
 * @param checks rules that involve several settings
 * @throws TailcastError `CONFIG_INVALID` with all problems
 */
export function readRoleSettings<Table extends SettingTable>(
  table: Table,
  options: Options,
  environment: ReadonlyMap<string, string>,
  checks: readonly SettingCheck<Table>[] = [],
): SettingValues<Table> {
  const { config, ...flags } = options;
  const path = typeof config === 'string' ? config : environment.get('TAILCAST_CONFIG');
  const { file, problems } = readFileOf(path);
  const sources = {
    flags: new Map(Object.entries(flags)),
    environment,
    file,
    ...(problems === undefined ? {} : { problems }),
    otherVariables: TOOL_VARIABLES,
  };
  return readSettings(table, sources, checks);
}

/** Reads the configuration file. Problems with the file are reported together with other problems. */
function readFileOf(path: string | undefined): Pick<SettingSources, 'file' | 'problems'> {
  if (path === undefined) return { file: undefined };
  try {
    return { file: readConfigFile(path) };
  } catch (error) {
    const isOurs = error instanceof TailcastError;
    return { file: undefined, problems: [isOurs ? (error.detail ?? error.message) : errorText(error)] };
  }
}
