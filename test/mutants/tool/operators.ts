/** Finds every small change that the tool makes to a source file, in its syntax tree. Pure. */
import { parseSync } from 'vite';

export interface Mutant {
  /** Path relative to the root of the project, with `/`. */
  readonly file: string;
  /** UTF-16 offsets of the replaced text. */
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
  readonly operator: Operator;
  /** Line number, from 1. */
  readonly line: number;
  readonly original: string;
  /** Index among the changes of the file with the same text, from 0. */
  readonly nth: number;
}

/**
 * - `condition`: the condition of an `if` or `?:` is negated, or a `!` is removed
 * - `comparison`: a comparison is negated: `===` becomes `!==`
 * - `boundary`: a comparison is off by one: `<` becomes `<=`
 * - `logic`: `&&` becomes `||`; `a ?? b` becomes `a`
 * - `return`: a returned boolean is negated
 * - `call`: a statement that only calls or throws is removed
 * - `limit`: a constant number is increased by one
 * - `entry`: an entry of a constant table is removed
 */
export type Operator =
  | 'condition'
  | 'comparison'
  | 'boundary'
  | 'logic'
  | 'return'
  | 'call'
  | 'limit'
  | 'entry';

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [member: string]: unknown;
}

const COMPARISONS: ReadonlyMap<string, readonly [string, Operator]> = new Map([
  ['===', ['!==', 'comparison']],
  ['!==', ['===', 'comparison']],
  ['<', ['<=', 'boundary']],
  ['<=', ['<', 'boundary']],
  ['>', ['>=', 'boundary']],
  ['>=', ['>', 'boundary']],
]);
/** Methods that return a boolean. */
const QUESTIONS: ReadonlySet<string> = new Set([
  'endsWith',
  'equals',
  'every',
  'has',
  'includes',
  'isArray',
  'some',
  'startsWith',
  'test',
]);
/** Names of constants. */
const CONSTANT = /^[A-Z][A-Z0-9_]+$/;
/** Calls of loggers. The tool does not change them, because log messages are for people, not for tests. */
const LOGGERS = /^(?:this\.#?)?(?:deps\.|options\.)?(?:log|logger|console)\./;

/** @param code text of `file` */
export function mutantsOf(file: string, code: string): readonly Mutant[] {
  const { program, errors } = parseSync(file, code);
  const [error] = errors;
  if (error !== undefined) throw new Error(`${file}: ${error.message}`);
  const found: Omit<Mutant, 'nth'>[] = [];
  const lines = lineStarts(code);
  const add = (operator: Operator, start: number, end: number, replacement: string): void => {
    const original = code.slice(start, end);
    found.push({ file, start, end, replacement, operator, line: lineAt(lines, start), original });
  };
  /** Conditions that decide only whether something is logged. */
  const quiet = new Set<unknown>();
  visit(program as unknown as Node, (node) => {
    if (onlyLogs(node, code)) quiet.add(node).add(node['test']);
    if (!quiet.has(node)) change(node, code, add);
  });
  const counts = new Map<string, number>();
  return found
    .toSorted((a, b) => a.start - b.start || a.end - b.end)
    .map((mutant) => {
      const text = `${mutant.original}\0${mutant.replacement}`;
      const nth = counts.get(text) ?? 0;
      counts.set(text, nth + 1);
      return { ...mutant, nth };
    });
}

type Add = (operator: Operator, start: number, end: number, replacement: string) => void;

function change(node: Node, code: string, add: Add): void {
  switch (node.type) {
    case 'IfStatement':
    case 'ConditionalExpression':
      return negate(node['test'] as Node, 'condition', code, add);
    case 'UnaryExpression':
      if (node['operator'] === '!') replaceWith(node, node['argument'] as Node, 'condition', code, add);
      return;
    case 'BinaryExpression':
      return changeComparison(node, code, add);
    case 'LogicalExpression':
      return changeLogic(node, code, add);
    case 'ReturnStatement':
      return changeAnswer(node['argument'] as Node | null, code, add);
    case 'ArrowFunctionExpression':
      if (node['expression'] === true) changeAnswer(node['body'] as Node, code, add);
      return;
    case 'ExpressionStatement':
      return dropCall(node, code, add);
    case 'ThrowStatement':
      return add('call', node.start, node.end, '{}');
    case 'VariableDeclarator':
      return changeConstant(node, add);
    default:
  }
}

/** Returns true for an `if` statement that only logs: `if (…) log.info(…);` */
function onlyLogs(node: Node, code: string): boolean {
  if (node.type !== 'IfStatement' || node['alternate'] !== null) return false;
  const then = node['consequent'] as Node;
  const statements = then.type === 'BlockStatement' ? (then['body'] as readonly Node[]) : [then];
  return statements.length > 0 && statements.every((statement) => isLogged(statement, code));
}

function isLogged({ type, ...statement }: Node, code: string): boolean {
  const expression = statement['expression'] as Node | undefined;
  if (type !== 'ExpressionStatement' || expression?.type !== 'CallExpression') return false;
  const { start, end } = expression['callee'] as Node;
  return LOGGERS.test(code.slice(start, end));
}

/** Adds the negation of a condition. Skips equality comparisons and `!x`, because other changes negate these. */
function negate(test: Node, operator: Operator, code: string, add: Add): void {
  if (COMPARISONS.has(String(test['operator'])) && !isOrdering(test)) return;
  if (test.type === 'UnaryExpression') return;
  add(operator, test.start, test.end, `!(${code.slice(test.start, test.end)})`);
}

function isOrdering(node: Node): boolean {
  return ['<', '<=', '>', '>='].includes(String(node['operator']));
}

function replaceWith(node: Node, inner: Node, operator: Operator, code: string, add: Add): void {
  add(operator, node.start, node.end, code.slice(inner.start, inner.end));
}

function changeComparison(node: Node, code: string, add: Add): void {
  const change = COMPARISONS.get(String(node['operator']));
  if (change !== undefined) changeOperator(node, ...change, code, add);
}

function changeLogic(node: Node, code: string, add: Add): void {
  const operator = String(node['operator']);
  if (operator === '??') return replaceWith(node, node['left'] as Node, 'logic', code, add);
  changeOperator(node, operator === '&&' ? '||' : '&&', 'logic', code, add);
}

/**
 * Replaces an operator. Both sides get parentheses, because `||` and `&&` have different precedence, and because `??`
 * cannot be combined with either operator without parentheses.
 */
function changeOperator(node: Node, other: string, operator: Operator, code: string, add: Add): void {
  const [left, right] = [node['left'] as Node, node['right'] as Node];
  const text = (side: Node): string => code.slice(side.start, side.end);
  add(operator, node.start, node.end, `((${text(left)}) ${other} (${text(right)}))`);
}

function changeAnswer(argument: Node | null, code: string, add: Add): void {
  if (argument === null) return;
  const { start, end } = argument;
  if (argument.type === 'Literal' && typeof argument['value'] === 'boolean') {
    return add('return', start, end, String(!argument['value']));
  }
  if (argument.type !== 'CallExpression') return;
  const property = (argument['callee'] as Node)['property'] as Node | undefined;
  if (QUESTIONS.has(String(property?.['name']))) add('return', start, end, `!(${code.slice(start, end)})`);
}

function dropCall(node: Node, code: string, add: Add): void {
  let expression = node['expression'] as Node;
  if (expression.type === 'UnaryExpression' && expression['operator'] === 'void')
    expression = expression['argument'] as Node;
  if (expression.type === 'AwaitExpression') expression = expression['argument'] as Node;
  if (expression.type !== 'CallExpression') return;
  const callee = expression['callee'] as Node;
  if (callee.type === 'Super' || LOGGERS.test(code.slice(callee.start, callee.end))) return;
  add('call', node.start, node.end, '{}');
}

function changeConstant(node: Node, add: Add): void {
  const { id, init } = node as unknown as { readonly id: Node; readonly init: Node | null };
  if (init === null || !CONSTANT.test(String(id['name']))) return;
  const { value } = init as { readonly value?: unknown };
  if (init.type !== 'Literal') dropEntries(init, add);
  else if (typeof value === 'number') add('limit', init.start, init.end, String(value + 1));
}

/** Adds the removal of each entry of an array, an object, a `new Set([…])` or a `new Map([…])`. */
function dropEntries(table: Node, add: Add): void {
  if (table.type.startsWith('TS')) return dropEntries(table['expression'] as Node, add);
  const list = table['elements'] ?? table['properties'];
  const inside = table.type === 'NewExpression' ? (table['arguments'] as readonly Node[]) : [];
  for (const node of inside) dropEntries(node, add);
  if (!Array.isArray(list)) return;
  for (const { start, end } of (list as readonly (Node | null)[]).filter((entry) => entry !== null))
    add('entry', start, end, table.type === 'ArrayExpression' ? '...[]' : '...{}');
}

/** Calls `seen` for every node whose code is executed, but not for types. */
function visit(node: Node, seen: (node: Node) => void): void {
  seen(node);
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? (value as readonly unknown[]) : [value]) {
      if (isNode(child) && runs(child)) visit(child, seen);
    }
  }
}

/** Returns true for executed nodes. `x as T`, `x!` and similar nodes are executed, too; other type nodes are not. */
function runs({ type }: Node): boolean {
  return !type.startsWith('TS') || /^TS(?:As|Satisfies|NonNull)/.test(type);
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

function lineStarts(code: string): readonly number[] {
  const starts = [0];
  for (let at = code.indexOf('\n'); at !== -1; at = code.indexOf('\n', at + 1)) starts.push(at + 1);
  return starts;
}

function lineAt(starts: readonly number[], offset: number): number {
  return starts.findLastIndex((start) => start <= offset) + 1;
}
