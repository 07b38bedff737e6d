import { describe, expect, it } from 'vitest';
import { bucketChecks, type BucketPlace } from '../../src/doctor/bucket-checks.ts';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import type { BucketRules, LifecycleRule } from '../../src/tsrecorder/store/s3-rules.ts';

const NO_LOCK = { enabled: false, defaultDays: undefined };
const RULE: LifecycleRule = {
  name: 'old',
  prefix: '',
  narrowed: false,
  removesAfterDays: undefined,
  archivesTo: undefined,
  abortsAfterDays: undefined,
};

async function examine(
  rules: Partial<BucketRules>,
  place: Partial<BucketPlace> = {},
): Promise<CheckFinding[]> {
  const checks = bucketChecks({
    prefix: 'team/',
    retentionDays: 0,
    write: async () => undefined,
    rules: async () => ({ lock: NO_LOCK, lifecycle: [], ...rules }),
    ...place,
  });
  return [...(await runChecks(checks, new AbortController().signal))];
}

describe('the checks of a bucket', () => {
  it('are in order for a bucket that does nothing by itself', async () => {
    expect((await examine({})).map(({ id, status }) => [id, status])).toEqual([
      ['store', 'ok'],
      ['object-lock', 'ok'],
      ['lifecycle', 'ok'],
    ]);
  });

  it('ask nothing more of a bucket that cannot be written to', async () => {
    const findings = await examine({}, { write: async () => 'S3 answered 403 AccessDenied' });
    expect(findings[0]).toMatchObject({ status: 'failed', summary: 'S3 answered 403 AccessDenied' });
    expect(findings.slice(1).map(({ status }) => status)).toEqual(['skipped', 'skipped']);
  });

  it.each([
    ['no lock where one is asked for', NO_LOCK, 30, 'failed', /no object lock/],
    ['a lock that is asked for', { ...NO_LOCK, enabled: true }, 30, 'ok', /locked for 30 days/],
    ['a lock that nobody asks for', { ...NO_LOCK, enabled: true }, 0, 'ok', /not used/],
    ['a lock of everything', { enabled: true, defaultDays: 7 }, 30, 'warning', /all objects for 7 days/],
    ['a store that does not say', 'unknown', 0, 'skipped', /does not report/],
    ['a store that does not say where a lock is asked for', 'unknown', 30, 'warning', /does not report/],
  ] as const)('judge %s', async (_name, lock, retentionDays, status, summary) => {
    const [, finding] = await examine({ lock }, { retentionDays });
    expect(finding).toMatchObject({ id: 'object-lock', status, summary: expect.stringMatching(summary) });
  });

  it.each<[string, BucketRules['lifecycle'], string, RegExp]>([
    [
      'a rule that removes',
      [{ ...RULE, removesAfterDays: 30 }],
      'warning',
      /“old” removes objects after 30 days/,
    ],
    ['one for a part', [{ ...RULE, removesAfterDays: 1, narrowed: true }], 'warning', /removes some objects/],
    ['one below the prefix', [{ ...RULE, removesAfterDays: 1, prefix: 'team/n1' }], 'warning', /removes/],
    ['one above the prefix', [{ ...RULE, removesAfterDays: 1, prefix: 'te' }], 'warning', /removes/],
    ['one for others', [{ ...RULE, removesAfterDays: 1, prefix: 'other/' }], 'ok', /none/],
    ['a rule that archives', [{ ...RULE, archivesTo: 'GLACIER' }], 'warning', /to GLACIER/],
    ['a rule for uploads', [{ ...RULE, abortsAfterDays: 7 }], 'ok', /aborted after 7 days/],
    ['a store that does not say', 'unknown', 'skipped', /does not report/],
  ])('judge %s', async (_name, lifecycle, status, summary) => {
    const [, , finding] = await examine({ lifecycle });
    expect(finding).toMatchObject({ id: 'lifecycle', status, summary: expect.stringMatching(summary) });
  });
});
