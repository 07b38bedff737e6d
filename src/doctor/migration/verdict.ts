/**
 * Verdicts of `tailcast migrate check` about objects, grants and Helm values of Tailscale's operator (*the reference*).
 * Pure.
 */

/**
 * - `unchanged`: tailcast reads the object without changes
 * - `different`: tailcast serves the object, but with a difference that the text describes
 * - `unsupported`: tailcast does not serve the object or a field of it; the text names an alternative
 * - `unknown`: this version of tailcast does not know the kind or the field, so it must be checked by hand
 */
export type VerdictKind = 'unchanged' | 'different' | 'unsupported' | 'unknown';

/** Kinds of verdicts, from the best to the worst. */
export const VERDICT_KINDS: readonly VerdictKind[] = ['unchanged', 'different', 'unsupported', 'unknown'];

/** One difference in how the reference and tailcast handle an object. */
export interface MigrationFinding {
  readonly kind: Exclude<VerdictKind, 'unchanged'>;
  /** Path of the field, for example `spec.staticEndpoints`; empty for the complete object. */
  readonly field: string;
  readonly text: string;
}

/** Report about one object, grant or Helm release. */
export interface MigrationItem {
  /** Kind, for example `Recorder` or `grant`. */
  readonly kind: string;
  /** Name with namespace, for example `prod/web`. For a grant, its position in the policy. */
  readonly name: string;
  readonly findings: readonly MigrationFinding[];
}

/** Returns the worst kind among the findings of an item. */
export function verdictOf({ findings }: Pick<MigrationItem, 'findings'>): VerdictKind {
  const worst = Math.max(0, ...findings.map(({ kind }) => VERDICT_KINDS.indexOf(kind)));
  return VERDICT_KINDS[worst] ?? 'unknown';
}

/** Verdict about a field. `same`: tailcast reads the field in the same way as the reference. */
export type FieldVerdict = 'same' | { readonly kind: MigrationFinding['kind']; readonly text: string };

/** Verdict about a field, or a function that derives the verdict from the value of the field. */
export type FieldRule = FieldVerdict | ((value: unknown) => FieldVerdict);

/**
 * Rules for fields. Keys: path of the field. `[]` stands for each element of a list. A path that ends with `.**`
 * covers the field and everything below it.
 */
export type FieldRules = Readonly<Record<string, FieldRule>>;

/** Returns a verdict for a field that has a different effect in tailcast than in the reference. */
export function different(text: string): FieldVerdict {
  return { kind: 'different', text };
}

/** Returns a verdict for a field that tailcast does not support. The text names an alternative. */
export function unsupported(text: string): FieldVerdict {
  return { kind: 'unsupported', text };
}

const MAX_DEPTH = 32;
const MAX_FIELDS = 5000;

/**
 * Returns findings for all fields of a value. A field without a rule becomes a finding of kind `unknown`, so that no
 * field is skipped.
 *
 * @param root path of the value itself, for example `spec`
 * @returns at most one finding per field path
 */
export function fieldFindings(value: unknown, root: string, rules: FieldRules): readonly MigrationFinding[] {
  const findings = new Map<string, MigrationFinding>();
  let fields = 0;
  const add = (field: string, verdict: FieldVerdict): void => {
    if (verdict !== 'same' && !findings.has(field)) findings.set(field, { field, ...verdict });
  };
  const walk = (current: unknown, path: string, depth: number): void => {
    fields += 1;
    if (fields > MAX_FIELDS || depth > MAX_DEPTH) {
      add(root, {
        kind: 'unknown',
        text: `more than ${MAX_FIELDS} fields or ${MAX_DEPTH} levels: check it by hand`,
      });
      return;
    }
    const rule = ruleFor(path, rules);
    if (rule !== undefined) {
      add(path, typeof rule === 'function' ? rule(current) : rule);
      return;
    }
    if (Array.isArray(current)) {
      for (const element of current) walk(element, `${path}[]`, depth + 1);
    } else if (typeof current === 'object' && current !== null) {
      for (const [name, member] of Object.entries(current)) walk(member, `${path}.${name}`, depth + 1);
    } else if (current !== null && current !== undefined) {
      add(path, {
        kind: 'unknown',
        text: 'this version of tailcast does not know the field: check it by hand',
      });
    }
  };
  walk(value, root, 0);
  return [...findings.values()];
}

function ruleFor(path: string, rules: FieldRules): FieldRule | undefined {
  return Object.hasOwn(rules, path) ? rules[path] : rules[`${path}.**`];
}
