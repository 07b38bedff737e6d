/** Selects the changes, and computes scores for each folder. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { Mutant } from './operators.ts';
import { keyOf } from './schemata.ts';

/** Folders with code in which a missing check can expose the rights, shells or recordings of other users. */
export const FOLDERS = [
  'src/access',
  'src/impersonation',
  'src/kube',
  'src/tailnet',
  'src/wire',
  'src/ingress',
  'src/nameserver',
  'src/forwarder',
  'src/recording',
  'src/proxy/front',
  'src/proxy/session',
  'src/proxy/gate',
  'src/proxy/upstream',
  'src/portal',
  'src/search',
  'src/compose',
  'src/config',
  'src/tsrecorder/checkpoint',
  'src/tsrecorder/events',
  'src/tsrecorder/evidence',
  'src/tsrecorder/files',
  'src/tsrecorder/intake',
  'src/tsrecorder/library',
  'src/tsrecorder/playback',
  'src/tsrecorder/retention',
  'src/tsrecorder/search',
  'src/tsrecorder/serving',
  'src/tsrecorder/spool',
  'src/tsrecorder/store',
] as const;
/** Files outside of these folders in which the tool makes changes, too. */
const BARE = /^src\/(?:http2-fields|keyed-counter|process-identity|tsrecorder\/[^/]+)\.ts$/;
const BARE_FOLDER = 'others';

/** Returns the files in which the tool makes changes. */
export function changedFiles(sources: readonly string[]): readonly string[] {
  return sources.filter((file) => folderOf({ file }) !== undefined).toSorted();
}

/** @returns undefined for a file without changes */
export function folderOf({ file }: Pick<Mutant, 'file'>): string | undefined {
  return (
    FOLDERS.find((folder) => file.startsWith(`${folder}/`)) ?? (BARE.test(file) ? BARE_FOLDER : undefined)
  );
}

/**
 * Selects a sample of every folder. Half of the sample is divided equally between the folders, so that a small folder
 * also gets a score. The second half of the sample is divided by folder size. Folders take turns, so that an
 * interrupted run covers all of them. The position of a change depends only on the seed, so that the same sample can be
 * judged again after a fix.
 */
export function chooseSample(mutants: readonly Mutant[], size: number, seed: number): readonly Mutant[] {
  const folders = [...Map.groupBy(mutants, folderOf).values()];
  const queues = folders.map((all) => {
    const share = size / (2 * folders.length) + (size / 2) * (all.length / mutants.length);
    return shuffled(all, seed).slice(0, Math.max(1, Math.ceil(share)));
  });
  const chosen: Mutant[] = [];
  for (let turn = 0; chosen.length < size && queues.some((queue) => turn < queue.length); turn += 1) {
    for (const queue of queues) {
      const mutant = queue[turn];
      if (mutant !== undefined && chosen.length < size) chosen.push(mutant);
    }
  }
  return chosen;
}

function shuffled(mutants: readonly Mutant[], seed: number): readonly Mutant[] {
  const placed = mutants.map((mutant) => ({
    mutant,
    place: createHash('sha256')
      .update(`${seed} ${keyOf(mutant)}`)
      .digest('hex'),
  }));
  return placed.toSorted((a, b) => (a.place < b.place ? -1 : 1)).map(({ mutant }) => mutant);
}

export interface Verdict {
  readonly mutant: Mutant;
  readonly noticed: boolean;
  /** True if one test has detected the change, or all tests that reach it have run. */
  readonly isJudged: boolean;
  /** Reason why the tests need not detect the change. */
  readonly accepted: string | undefined;
}

export interface Score {
  readonly folder: string;
  readonly noticed: number;
  /** Number of changes that no test detects and that are accepted. */
  readonly accepted: number;
  /** Number of changes that are detected, accepted, or tested by every test that reaches them. */
  readonly judged: number;
  readonly all: number;
}

export function scores(
  verdicts: readonly Verdict[],
  of: (mutant: Mutant) => string | undefined = folderOf,
): readonly Score[] {
  return [...Map.groupBy(verdicts, ({ mutant }) => of(mutant))].map(([folder, some]) => ({
    folder: folder ?? BARE_FOLDER,
    noticed: some.filter(({ noticed }) => noticed).length,
    accepted: some.filter(({ noticed, accepted }) => !noticed && accepted !== undefined).length,
    judged: some.filter(({ noticed, accepted, isJudged }) => noticed || accepted !== undefined || isJudged)
      .length,
    all: some.length,
  }));
}

/** Minimum share of changes that are detected or accepted. */
const REQUIRED = 0.9;
/** Minimum number of changes for a score of a folder. A folder with fewer changes counts only in the total. */
const ENOUGH = 10;

export function areEnough(found: readonly Score[]): boolean {
  const sum = (of: (score: Score) => number): number => found.reduce((total, score) => total + of(score), 0);
  const whole = { noticed: sum((s) => s.noticed), accepted: sum((s) => s.accepted), all: sum((s) => s.all) };
  return [whole, ...found.filter(({ all }) => all >= ENOUGH)].every(
    ({ noticed, accepted, all }) => noticed + accepted >= REQUIRED * all,
  );
}

const acceptedSchema = z.array(
  z.strictObject({
    file: z.string(),
    original: z.string(),
    replacement: z.string(),
    /** Index among changes with the same text, from 0; undefined: all of them. */
    nth: z.int().min(0).exactOptional(),
    /** A whole sentence. */
    reason: z.string().min(20),
  }),
);
/**
 * Changes that need not be detected, because their effect is invisible. A change is identified by its text instead of
 * its line number, so that code may move.
 */
export const ACCEPTED = acceptedSchema.parse(
  JSON.parse(readFileSync(join(import.meta.dirname, 'accepted.json'), 'utf8')),
);

export function acceptedReason(mutant: Mutant): string | undefined {
  return ACCEPTED.find(
    ({ file, original, replacement, nth = mutant.nth }) =>
      file === mutant.file &&
      original === mutant.original &&
      replacement === mutant.replacement &&
      nth === mutant.nth,
  )?.reason;
}
