/** A check in the source, and the edit that removes it. */
export interface Mutation {
  /** Name of the removed check. */
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

type Change = readonly [name: string, find: string, replace: string];

export function inFile(file: string, ...changes: readonly Change[]): readonly Mutation[] {
  return changes.map(([name, find, replace]) => ({ name, file, find, replace }));
}
