/**
 * Shell completion. The scripts of all shells run `tailcast __complete`. Its output has the format of kubectl plugins:
 * one line `word<TAB>description` per candidate, and a last line with `:` and the directive. The directive is 0 if the
 * shell may complete file names, otherwise 4.
 */
import type { Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';

const NO_FILES = ':4';
const FILES = ':0';
/** Option whose values are the contexts of the kubeconfig. */
const CONTEXT_OPTION = '--context';
/** Placeholders in the help for values that are files or directories. */
const PATHS = /file|directory|path|socket|store|audit-log|cast/i;

/** Supported shells. */
export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** Returns the output of `tailcast __complete`. */
export async function completionText(
  program: Command,
  words: readonly string[],
  environment: CommandContext['environment'],
): Promise<string> {
  const needsContexts = words.at(-2) === CONTEXT_OPTION;
  const contexts = needsContexts ? (await import('./context-archive.ts')).readContextNames(environment) : [];
  return `${completions(program, words, contexts).join('\n')}\n`;
}

/**
 * Returns the candidates for the last of `words`, and the directive. `words` starts after the name of the program.
 * @param contexts names for the value of `--context`
 */
export function completions(
  program: Command,
  words: readonly string[],
  contexts: readonly string[] = [],
): readonly string[] {
  const current = words.at(-1) ?? '';
  const { command, waiting, position } = walk(program, words.slice(0, -1));
  if (waiting !== undefined && words.at(-2) === CONTEXT_OPTION) {
    // names with white space or control characters are omitted, because each line of the output is a candidate
    const names = contexts.filter((name) => /^[^\s\p{C}]+$/u.test(name));
    return [
      ...matching(
        names.map((name) => [name, '']),
        current,
      ),
      NO_FILES,
    ];
  }
  if (waiting !== undefined) return valuesOf(waiting, current);
  if (current.startsWith('-')) {
    const options = command.createHelp().visibleOptions(command);
    return [
      ...matching(
        options.map(({ long, short, description }) => [long ?? short ?? '', description]),
        current,
      ),
      NO_FILES,
    ];
  }
  const commands = command.createHelp().visibleCommands(command);
  if (commands.length > 0) {
    const named = commands.map((each) => [each.name(), each.description()] as const);
    return [...matching(named, current), NO_FILES];
  }
  const argument = command.registeredArguments[position] ?? command.registeredArguments.at(-1);
  if (argument === undefined) return [NO_FILES];
  if (argument.argChoices !== undefined) {
    return [
      ...matching(
        argument.argChoices.map((choice) => [choice, '']),
        current,
      ),
      NO_FILES,
    ];
  }
  return [PATHS.test(`${argument.name()} ${argument.description}`) ? FILES : NO_FILES];
}

interface Walk {
  readonly command: Command;
  /** Placeholder of the option whose value is completed; undefined if an argument is completed. */
  readonly waiting: string | undefined;
  /** Number of the command's arguments in front of the completed word. */
  readonly position: number;
}

function walk(program: Command, words: readonly string[]): Walk {
  let command = program;
  let waiting: string | undefined;
  let position = 0;
  for (const word of words) {
    if (waiting !== undefined) waiting = undefined;
    else if (word.startsWith('-')) {
      const option = command.options.find(({ long, short }) => word === long || word === short);
      waiting = option?.required === true ? option.flags.replace(/^[^<]*/, '') : undefined;
    } else {
      const next = command.commands.find((each) => each.name() === word);
      if (next === undefined) position += 1;
      else command = next;
    }
  }
  return { command, waiting, position };
}

/**
 * Returns the candidates for the value of an option. A placeholder such as `<off|require>` lists the possible values.
 */
function valuesOf(placeholder: string, current: string): readonly string[] {
  const inside = placeholder.replace(/^<(.*)>$/, '$1');
  if (/^[\w-]+(\|[\w-]+)+$/.test(inside)) {
    return [
      ...matching(
        inside.split('|').map((value) => [value, '']),
        current,
      ),
      NO_FILES,
    ];
  }
  return [PATHS.test(inside) ? FILES : NO_FILES];
}

function matching(
  candidates: readonly (readonly [word: string, meaning: string])[],
  current: string,
): readonly string[] {
  return candidates
    .filter(([word]) => word !== '' && word.startsWith(current))
    .map(([word, meaning]) => (meaning === '' ? word : `${word}\t${meaning.split('\n', 1)[0] ?? ''}`));
}

/**
 * Returns the completion script of a shell.
 *
 * @throws TailcastError `USAGE` for an unsupported shell
 */
export function completionScript(shell: string): string {
  switch (shell) {
    case 'bash':
      return BASH;
    case 'zsh':
      return ZSH;
    case 'fish':
      return FISH;
    default:
      throw new TailcastError('USAGE', `there is no completion for ${shell}; known: ${SHELLS.join(', ')}`);
  }
}

const BASH = `# tailcast completion bash > /etc/bash_completion.d/tailcast
_tailcast() {
  local line word files=0
  COMPREPLY=()
  while IFS= read -r line; do
    case "$line" in
      :0) files=1 ;;
      :*) ;;
      *) word="\${line%%$'\\t'*}"; COMPREPLY+=("$word") ;;
    esac
  done < <("\${COMP_WORDS[0]}" __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [ "$files" = 1 ]; then
    compopt -o default 2>/dev/null
    COMPREPLY=()
  fi
}
complete -F _tailcast tailcast
`;

const ZSH = `#compdef tailcast
# tailcast completion zsh > "\${fpath[1]}/_tailcast"
_tailcast() {
  local line files=0
  local -a found
  for line in "\${(@f)$("\${words[1]}" __complete "\${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case "$line" in
      :0) files=1 ;;
      :*|'') ;;
      *) line="\${line//:/\\\\:}"; found+=("\${line/$'\\t'/:}") ;;
    esac
  done
  if (( files )); then _files; else _describe 'tailcast' found; fi
}
if [ "$funcstack[1]" = "_tailcast" ]; then _tailcast "$@"; else compdef _tailcast tailcast; fi
`;

const FISH = `# tailcast completion fish > ~/.config/fish/completions/tailcast.fish
function __tailcast_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l lines ($words[1] __complete $words[2..-1] 2>/dev/null)
  if test "$lines[-1]" = ":0"
    __fish_complete_path (commandline -ct)
  else
    string match -v ':*' -- $lines
  end
end
complete -c tailcast -f -a '(__tailcast_complete)'
`;
