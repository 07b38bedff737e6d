/** The bucket of a recorder: can it be written to, and what does it do with the recordings by itself? */
import type { BucketRules, Known, LifecycleRule, LockRules } from '../tsrecorder/store/s3-rules.ts';
import { failed, ok, skipped, warning, type Check, type CheckVerdict } from './checks.ts';

export interface BucketPlace {
  /** Put before every name. */
  readonly prefix: string;
  /** For which the recorder locks recordings; 0 for not at all. */
  readonly retentionDays: number;
  /** Tries to write; resolves with why that cannot be done, or undefined. */
  readonly write: () => Promise<string | undefined>;
  readonly rules: () => Promise<BucketRules>;
}

/** One check each for writing, for object lock and for lifecycle rules. */
export function bucketChecks({ prefix, retentionDays, write, rules }: BucketPlace): readonly Check[] {
  const remedy =
    'see that --store, --s3-endpoint and the credentials belong together, and may put and delete objects';
  return [
    {
      id: 'store',
      title: 'store',
      remedy,
      async run() {
        const reason = await write();
        return reason === undefined ? ok('the bucket can be written to') : failed(reason, remedy);
      },
    },
    {
      id: 'object-lock',
      title: 'object lock',
      needs: ['store'],
      remedy: 'let the credentials read the bucket’s configuration (s3:GetBucketObjectLockConfiguration)',
      run: async () => judgeLock((await rules()).lock, retentionDays),
    },
    {
      id: 'lifecycle',
      title: 'lifecycle rules',
      needs: ['store'],
      remedy: 'let the credentials read the bucket’s configuration (s3:GetLifecycleConfiguration)',
      run: async () => judgeLifecycle((await rules()).lifecycle, prefix),
    },
  ];
}

function judgeLock(lock: Known<LockRules>, retentionDays: number): CheckVerdict {
  if (lock === 'unknown') {
    return retentionDays === 0
      ? skipped('the store does not say')
      : warning(
          'the store does not say whether it locks objects',
          'see that the bucket was made with object lock; without it recordings cannot be stored',
        );
  }
  if (retentionDays > 0 && !lock.enabled) {
    return failed(
      `recordings are to be locked for ${retentionDays} days, and the bucket has no object lock`,
      'take a bucket that was made with object lock, or --s3-retention-days 0',
    );
  }
  if (lock.defaultDays !== undefined) {
    return warning(
      `the bucket locks everything for ${lock.defaultDays} days, copies of open sessions included: these pile up`,
      'remove the bucket’s default retention, and say --s3-retention-days: then only the archive is locked',
    );
  }
  if (retentionDays > 0) return ok(`recordings are locked for ${retentionDays} days`);
  return ok(lock.enabled ? 'possible, and not asked for' : 'none');
}

function judgeLifecycle(rules: Known<readonly LifecycleRule[]>, prefix: string): CheckVerdict {
  if (rules === 'unknown') return skipped('the store does not say');
  const ours = rules.filter((rule) => rule.prefix.startsWith(prefix) || prefix.startsWith(rule.prefix));
  const problems = ours.flatMap(({ name, removesAfterDays, archivesTo, narrowed }) => {
    const some = narrowed ? 'some of what is stored' : 'what is stored';
    return [
      ...(removesAfterDays === undefined
        ? []
        : [`rule “${name}” removes ${some} after ${removesAfterDays} days without a word in the log`]),
      ...(archivesTo === undefined
        ? []
        : [`rule “${name}” moves ${some} to ${archivesTo}, where it cannot be read`]),
    ];
  });
  if (problems.length > 0) {
    return warning(
      problems.join('; '),
      'remove the rule, and let the recorder remove what is old: --retention-days. `tailcast verify` calls the rest missing',
    );
  }
  const aborting = ours.find(({ abortsAfterDays }) => abortsAfterDays !== undefined);
  return ok(
    aborting === undefined
      ? 'none; the recorder gives up unfinished uploads itself'
      : `unfinished uploads are given up after ${aborting.abortsAfterDays} days`,
  );
}
