/**
 * Keeps secrets out of API request events. An event contains only the values of fields that `kept-fields.ts` lists. An
 * event omits a body that cannot be parsed. Pure.
 */
import type { RequestInfo } from '../kube/request-info.ts';
import {
  canRunWords,
  createSecretWork,
  mayBeCommand,
  showWords,
  spend,
  TooManySecretsError,
  type SecretWork,
} from '../secrets.ts';
import { CONTAINER_MEMBERS, keptOfBody, type Shape } from './kept-fields.ts';

const REDACTED = '[redacted by tailcast]';
const NOTHING = new Uint8Array(0);

export interface RedactedBody {
  /** JSON text; empty if the event omits the body. */
  readonly body: Uint8Array;
  /** Reason why the body, or words of a command in the body, are omitted. */
  readonly unread?: string;
}

/**
 * Kind of an environment value. An interpreter can run a word as a command, but not a number. `none`: there is no
 * value, or the event contains its source.
 */
type Literal = 'none' | 'number' | 'word' | 'command';

/** Facts about the redacted parts of a body. */
interface Findings {
  /** Reason why the event may hide a command; undefined if it hides none. */
  unread: string | undefined;
  readonly work: SecretWork;
  /** Kind of each environment value in the current container, by name. The event omits literal values. */
  literals: ReadonlyMap<string, Literal>;
  /** True if the current container may have a command and environment values that it does not contain. */
  isPartial: boolean;
  /** True if the containers of the body are merged with stored containers or with other operations. */
  readonly isMerged: boolean;
}

/** Units of work for each value, container and patch operation of a body. */
const VALUE_UNITS = 100;
const CONTAINER_UNITS = 400;
const OPERATION_UNITS = 1000;

/**
 * Returns the parts of a body that an event may contain.
 *
 * Only JSON bodies are supported. YAML needs too much CPU time per byte, and two parsers may interpret it
 * differently.
 * @param truncated true if `body` is only the beginning of the request body
 */
export function redactBody(
  info: RequestInfo,
  body: Uint8Array,
  truncated: boolean,
  work: SecretWork = createSecretWork(),
): RedactedBody {
  const shape = keptOfBody(info);
  if (shape === undefined) return { body: NOTHING };
  if (truncated) return { body: NOTHING, unread: `it is longer than ${body.length} bytes` };
  if (body.length === 0) return { body: NOTHING };
  if (PROTOBUF.every((byte, index) => body[index] === byte))
    return { body: NOTHING, unread: 'it is protobuf' };
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(body);
    const colons = countColons(text);
    spend(work, 2 * colons * VALUE_UNITS);
    const json: unknown = JSON.parse(text);
    if (countMembers(json, work) !== colons) return { body: NOTHING, unread: 'a member is repeated' };
    if (Array.isArray(json)) return redactPatch(json, shape, work);
    // existing ephemeral containers cannot be changed, so a patch contains complete ones
    const isMerged = info.verb === 'patch' && info.subresource !== 'ephemeralcontainers';
    return redactObject(json, shape, work, isMerged);
  } catch (error) {
    if (error instanceof TooManySecretsError) return { body: NOTHING, unread: error.message };
    // The parser throws for invalid JSON and for JSON that is nested too deeply.
    return { body: NOTHING, unread: 'it is not JSON, or nested too deeply' };
  }
}

function noFindings(work: SecretWork): Findings {
  return { unread: undefined, work, literals: new Map(), isPartial: false, isMerged: false };
}

function redactObject(json: unknown, shape: Shape, work: SecretWork, isMerged: boolean): RedactedBody {
  const findings: Findings = { ...noFindings(work), isMerged };
  return redacted(keep(json, shape, findings), findings);
}

function redactPatch(operations: readonly unknown[], shape: Shape, work: SecretWork): RedactedBody {
  if (operations.some((item) => hidesValue(item, shape)))
    return { body: NOTHING, unread: 'it is a JSON patch that copies or moves a value' };
  const isMerged = operations.some(writesEnvironment);
  const findings: Findings = { ...noFindings(work), isPartial: true, isMerged };
  const kept = redacted(
    operations.map((item) => keepOperation(item, shape, findings)),
    findings,
  );
  return operations.some((item) => hidesWord(item, shape))
    ? { ...kept, unread: 'it is a JSON patch of single words; replace the complete list' }
    : kept;
}

function redacted(kept: unknown, { unread }: Findings): RedactedBody {
  const body = new TextEncoder().encode(JSON.stringify(kept));
  return unread === undefined ? { body } : { body, unread };
}

const HIDDEN_COMMAND =
  'a text in its commands looks like a secret and may contain a command; put secrets into a Secret';
/** First bytes of a Kubernetes body in protobuf. */
const PROTOBUF: readonly number[] = [0x6b, 0x38, 0x73, 0x00];
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;

/**
 * Counts the colons outside strings. JSON has one colon for each member of an object. If an object has two members with
 * the same name, `JSON.parse` keeps only the last. Fewer parsed members than colons therefore reveal a repeated name.
 * The API server may merge such members.
 */
function countColons(text: string): number {
  let count = 0;
  let isString = false;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === QUOTE) isString = !isString;
    else if (isString && code === BACKSLASH) index += 1;
    else if (!isString && code === COLON) count += 1;
  }
  return count;
}

function countMembers(json: unknown, work: SecretWork): number {
  if (typeof json !== 'object' || json === null) return 0;
  if (Array.isArray(json)) spend(work, (1 + json.length) * VALUE_UNITS);
  const values: readonly unknown[] = Object.values(json);
  return values.reduce<number>(
    (count, value) => count + countMembers(value, work),
    Array.isArray(json) ? 0 : values.length,
  );
}

function keep(json: unknown, shape: Shape | undefined, findings: Findings): unknown {
  spend(findings.work, VALUE_UNITS);
  if (json === null || shape === 'all') return json;
  if (shape === undefined) return REDACTED;
  if (shape === 'words') return wordsOf(json, findings);
  if (shape === 'path') return typeof json === 'string' ? json.replace(/[?#].*/s, `?${REDACTED}`) : REDACTED;
  if (shape === 'names') return namesOf(json);
  if (shape === 'containers') return keepContainers(json, findings);
  if ('each' in shape) {
    return Array.isArray(json)
      ? json.map((item) => keep(item, shape.each, findings))
      : mapMembers(json, (_, value) => keep(value, shape.each, findings));
  }
  if (shape.fields['args'] !== 'words' || Array.isArray(json))
    return mapMembers(json, (name, value) => keep(value, memberOf(shape, name), findings));
  const container = { ...json };
  const { literals, isPartial } = findings;
  findings.literals = literalsOf(container, findings.work);
  findings.isPartial = findings.isMerged;
  const words = keepContainer(container, findings);
  const kept = mapMembers(json, (name, value) => words[name] ?? keep(value, memberOf(shape, name), findings));
  Object.assign(findings, { literals, isPartial });
  return kept;
}

/**
 * Redacts command and arguments of a container together. The image and the command identify the program, and the
 * program determines which of its arguments are secret.
 */
function keepContainer(
  container: Readonly<Record<string, unknown>>,
  findings: Findings,
): Readonly<Record<string, unknown>> {
  spend(findings.work, CONTAINER_UNITS);
  const { image, command, args } = container;
  if (command === undefined && args === undefined) return {};
  const before = isString(image) ? [image] : [];
  const words = isWords(command) ? [...before, ...command] : before;
  const complete = isWords(args) ? [...words, ...args] : words;
  // without a command, the image determines the program
  const run = complete.slice(words.length > before.length ? before.length : 0);
  const isProgramKnown = !findings.isPartial || (isWords(command) && command.length > 0);
  const shown = shownWords(complete, findings, run, isProgramKnown);
  return {
    ...(isWords(command) ? { command: shown.slice(before.length, words.length) } : {}),
    ...(isWords(args) ? { args: shown.slice(words.length) } : {}),
  };
}

/** Keeps the containers of pods at any depth of the JSON, and all field names of the JSON objects around them. */
function keepContainers(json: unknown, findings: Findings): unknown {
  spend(findings.work, VALUE_UNITS);
  if (typeof json !== 'object' || json === null) return REDACTED;
  const kept = Array.isArray(json)
    ? json.map((item) => keepContainers(item, findings))
    : Object.fromEntries(
        Object.entries(json).map(([name, value]: readonly [string, unknown]) => [
          name,
          Object.hasOwn(CONTAINER_MEMBERS, name) && typeof value === 'object'
            ? keep(value, CONTAINER_MEMBERS[name], findings)
            : keepContainers(value, findings),
        ]),
      );
  return Object.values(kept).some((value) => value !== REDACTED) ? kept : REDACTED;
}

/**
 * Redacts one operation of a JSON patch (RFC 6902). The path of an operation names a field of the object. The value of
 * the operation is redacted like that field.
 */
function keepOperation(operation: unknown, shape: Shape, findings: Findings): unknown {
  spend(findings.work, OPERATION_UNITS);
  return mapMembers(operation, (name, value) => {
    if (name === 'op' || name === 'path' || name === 'from')
      return typeof value === 'string' ? value : REDACTED;
    const path: unknown = typeof operation === 'object' ? Reflect.get(operation ?? {}, 'path') : undefined;
    return name === 'value' && typeof path === 'string'
      ? keep(value, shapeAt(shape, path), findings)
      : REDACTED;
  });
}

/**
 * Operations that copy no value from the stored object. If an operation of these kinds has a value, the patch contains
 * the value.
 */
const PLAIN_OPERATIONS: ReadonlySet<unknown> = new Set(['add', 'remove', 'replace', 'test']);

/**
 * Returns true if an operation of a JSON patch may copy an unknown value to a field that events contain. The value is
 * unknown if it is in the stored object, or in a redacted part of the patch.
 */
function hidesValue(operation: unknown, shape: Shape): boolean {
  if (typeof operation !== 'object' || operation === null) return false;
  const path: unknown = Reflect.get(operation, 'path');
  if (PLAIN_OPERATIONS.has(Reflect.get(operation, 'op'))) return false;
  return typeof path !== 'string' || shapeAt(shape, path) !== undefined;
}

/**
 * Returns true if an operation of a JSON patch writes a single word of a command. The event then omits this word.
 */
function hidesWord(operation: unknown, shape: Shape): boolean {
  if (typeof operation !== 'object' || operation === null) return false;
  const op: unknown = Reflect.get(operation, 'op');
  const path: unknown = Reflect.get(operation, 'path');
  const value: unknown = Reflect.get(operation, 'value');
  if (op === 'remove' || op === 'test' || !isString(path) || !isString(value)) return false;
  return shapeAt(shape, path) === 'words' && isLoneWord(value);
}

/** Returns the shape of the field at a path. @param pointer JSON pointer (RFC 6901) */
function shapeAt(shape: Shape, pointer: string): Shape | undefined {
  if (pointer !== '' && !pointer.startsWith('/')) return undefined;
  let found: Shape | undefined = shape;
  for (const token of pointer.split('/').slice(1)) {
    if (found === undefined || found === 'all' || found === 'words' || found === 'path') return found;
    // All values below a field with the shape `names` are redacted.
    if (found === 'names') return undefined;
    const name = token.replaceAll('~1', '/').replaceAll('~0', '~');
    if (found === 'containers') {
      if (Object.hasOwn(CONTAINER_MEMBERS, name)) found = CONTAINER_MEMBERS[name];
    } else {
      found = 'each' in found ? found.each : memberOf(found, name);
    }
  }
  return found;
}

function memberOf(shape: Extract<Shape, { readonly fields: unknown }>, name: string): Shape | undefined {
  return Object.hasOwn(shape.fields, name) ? shape.fields[name] : shape.others;
}

function wordsOf(value: unknown, findings: Findings): unknown {
  if (isString(value)) return isLoneWord(value) ? REDACTED : shownWords([value], findings)[0];
  return isWords(value) ? shownWords(value, findings) : REDACTED;
}

/** @param run the program, if it is known, and its arguments */
function shownWords(
  words: readonly string[],
  findings: Findings,
  run = words,
  isProgramKnown = !findings.isPartial,
): readonly string[] {
  const isInterpreted = !isProgramKnown || canRunWords(run, findings.work);
  const shown = showWords(words, findings.work, isInterpreted);
  if (shown.hidesCommand) findings.unread ??= HIDDEN_COMMAND;
  for (const [at, word] of run.entries())
    findings.unread ??= hiddenVariable(word, findings, at === 0, isInterpreted);
  return shown.words;
}

/**
 * Returns a reason if a word contains a variable whose value may be a command. The kubelet replaces the variable with
 * its value, but the event omits the value.
 */
function hiddenVariable(
  word: string,
  { literals, isPartial }: Findings,
  isProgram: boolean,
  isInterpreted: boolean,
): string | undefined {
  let at = word.indexOf('$');
  while (at >= 0) {
    const close = word[at + 1] === '(' ? word.indexOf(')', at) : at + (word[at + 1] === '$' ? 1 : 0);
    if (close < 0) return undefined;
    if (word[at + 1] === '(') {
      const name = word.slice(at + 2, close);
      const known = literals.get(name);
      const literal = known ?? (isPartial ? 'command' : 'none');
      const isCommand = literal === 'command' || (literal === 'word' && isInterpreted);
      if (isCommand || (literal !== 'none' && isProgram)) {
        const shown = /^[\w.-]{1,63}$/.test(name) ? `$(${name})` : 'a variable';
        const more = known === undefined ? REPLACE_ADVICE : '';
        return `the environment value of ${shown} in its commands may contain a command; ${VARIABLE_ADVICE}${more}`;
      }
    }
    at = word.indexOf('$', close + 1);
  }
  return undefined;
}

const VARIABLE_ADVICE =
  'write the value in the command instead of the variable, or $$(…) for a command substitution of a shell';
const REPLACE_ADVICE = ', or send the complete object with kubectl replace instead of a patch';

/** Returns the kinds of the environment values of a container by name. Omits names without a value. */
function literalsOf(
  { env }: Readonly<Record<string, unknown>>,
  work: SecretWork,
): ReadonlyMap<string, Literal> {
  const literals = new Map<string, Literal>();
  for (const item of Array.isArray(env) ? env : []) {
    const name = valueAt(item, 'name');
    const value = valueAt(item, 'value');
    if (!isString(name)) continue;
    if (isString(value)) spend(work, value.length);
    for (const kind of [kindOfSource(item), isString(value) ? kindOf(value) : undefined]) {
      const before = literals.get(name) ?? 'none';
      // if the name is repeated, any of its values may be used
      if (kind !== undefined)
        literals.set(name, before === 'none' ? kind : kind === 'none' ? before : 'command');
    }
  }
  return literals;
}

/**
 * Returns the kind of a variable whose value comes from another object or field; undefined for other variables. Events
 * contain no values of annotations. The completion index of a Job is one word. Any other annotation may be a command.
 */
function kindOfSource(item: unknown): Literal | undefined {
  const source = valueAt(item, 'valueFrom');
  if (typeof source !== 'object' || source === null) return undefined;
  const field = valueAt(source, 'fieldRef');
  if (field === undefined) return 'none';
  const path = valueAt(field, 'fieldPath');
  // a patch without a path may keep the path of an annotation
  if (!isString(path)) return 'command';
  if (!path.startsWith('metadata.annotations')) return 'none';
  return path.includes('batch.kubernetes.io/job-completion-index') ? 'word' : 'command';
}

function valueAt(object: unknown, name: string): unknown {
  return typeof object === 'object' && object !== null ? Reflect.get(object, name) : undefined;
}

function kindOf(value: string): Literal {
  if (value === '') return 'none';
  if (/^\d{1,9}$/.test(value)) return 'number';
  return mayBeCommand(value, false) ? 'command' : 'word';
}

/** Returns true if an operation of a JSON patch may write environment variables of a container. */
function writesEnvironment(operation: unknown): boolean {
  if (typeof operation !== 'object' || operation === null) return false;
  const path: unknown = Reflect.get(operation, 'path');
  return isString(path) && /\/env(?:\/|$)/.test(path);
}

/**
 * Returns true if a single word of a JSON patch may be the value of a command-line option. The option itself may be in
 * the stored object, so it is unknown whether the value is secret.
 */
function isLoneWord(word: string): boolean {
  return !/^-(?:-[A-Za-z]|[A-Za-z]$)/.test(word);
}

function isString(value: unknown): value is string {
  return typeof value === 'string';
}

function isWords(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every(isString);
}

function namesOf(value: unknown): unknown {
  if (value === null) return null;
  if (Array.isArray(value)) return value.map(namesOf);
  return typeof value === 'object' ? mapMembers(value, (_, inner) => namesOf(inner)) : REDACTED;
}

function mapMembers(json: unknown, change: (name: string, value: unknown) => unknown): unknown {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return REDACTED;
  return Object.fromEntries(Object.entries(json).map(([name, value]) => [name, change(name, value)]));
}
