/** Writes manual pages from the output of `--help`: one for `tailcast`, and one for each command. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import type { Command } from 'commander';
import { createProgram } from '../../src/cli/program.ts';
import type { Project } from './project.ts';

const EXIT_STATUS =
  'Commands end with 0 when all is done, 1 when something failed, 2 when they were called wrongly, and 130 when ' +
  'Ctrl-C\nended them before they were done.';

/**
 * Returns the definition of the command line, for its help texts. Do not run a command of this definition, because its
 * streams are not connected.
 */
export function describedProgram(): Command {
  return createProgram({
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    environment: new Map(),
    signal: new AbortController().signal,
  });
}

/** Returns the manual pages by file name, in roff with the man macros. */
export function manPages(project: Pick<Project, 'version'>): ReadonlyMap<string, string> {
  const program = describedProgram();
  const pages = new Map<string, string>();
  const add = (command: Command, path: readonly string[]): void => {
    pages.set(`${path.join('-')}.1`, page(command, path, project));
    for (const each of subcommands(command)) add(each, [...path, each.name()]);
  };
  add(program, [program.name()]);
  return pages;
}

/** Writes the pages into a new folder. */
export function writeManPages(folder: string, project: Pick<Project, 'version'>): void {
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of manPages(project)) writeFileSync(join(folder, name), text);
}

function page(command: Command, path: readonly string[], { version }: Pick<Project, 'version'>): string {
  const help = command.createHelp();
  const parents = path.slice(0, -1);
  const commands = subcommands(command);
  const options = help.visibleOptions(command).map(({ flags, description }) => item(flags, description));
  const args = help
    .visibleArguments(command)
    .map((argument) => item(help.argumentTerm(argument), help.argumentDescription(argument)));
  const related = [
    ...(parents.length > 0 ? [parents.join('-')] : []),
    ...commands.map((each) => `${path.join('-')}-${each.name()}`),
  ].map((name) => `.BR ${escape(name)} (1)`);
  return [
    `.TH ${escape(path.join('-').toUpperCase())} 1 "" "tailcast ${escape(version)}" "tailcast"`,
    section('NAME', [`${escape(path.join('-'))} \\- ${escape(command.description())}`]),
    section('SYNOPSIS', [`.B ${escape(path.join(' '))}`, escape(command.usage())]),
    section('ARGUMENTS', args),
    section('OPTIONS', options),
    section(
      'COMMANDS',
      commands.map((each) => item(each.name(), each.description())),
    ),
    section('NOTES', notes(command, help.formatHelp(command, help))),
    section('EXIT STATUS', [escape(EXIT_STATUS)]),
    section('SEE ALSO', related),
    '',
  ]
    .filter((part, index, all) => part !== '' || index === all.length - 1)
    .join('\n');
}

function subcommands(command: Command): readonly Command[] {
  return command
    .createHelp()
    .visibleCommands(command)
    .filter((each) => each.name() !== 'help');
}

/** Returns the text after the options in the help of a command. */
function notes(command: Command, formatted: string): readonly string[] {
  let whole = '';
  command.configureOutput({ writeOut: (text) => void (whole += text) });
  command.outputHelp();
  const after = whole.replace(formatted, '').trim();
  return after === '' ? [] : [escape(after)];
}

function section(title: string, body: readonly string[]): string {
  return body.length === 0 ? '' : [`.SH ${title}`, ...body].join('\n');
}

function item(term: string, description: string): string {
  return `.TP\n.B ${escape(term)}\n${escape(description)}`;
}

/** Escapes characters that have a meaning in roff. */
function escape(text: string): string {
  return text
    .replaceAll('\\', String.raw`\e`)
    .replaceAll('-', String.raw`\-`)
    .replaceAll('’', String.raw`\(cq`)
    .replaceAll('→', String.raw`\(->`)
    .replaceAll('…', '...')
    .replaceAll(/^([.'])/gm, String.raw`\&$1`);
}
