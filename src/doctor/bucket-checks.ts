/**
 * Checks that a recorder can write to its bucket. Checks that the bucket's object lock and lifecycle rules do not
 * contradict the recorder's settings.
 */
import type { BucketRules, Known, LifecycleRule, LockRules } from '../tsrecorder/store/s3-rules.ts';
import { failed, ok, skipped, warning, type Check, type CheckVerdict } from './checks.ts';

export interface BucketPlace {
  /** Prefix of all object names. */
  readonly prefix: string;
  /** Object-lock retention in days; 0 disables it. */
  readonly retentionDays: number;
  /** Writes a test object. Resolves with undefined, or with the reason if the write fails. */
  readonly write: () => Promise<string | undefined>;
  readonly rules: () => Promise<BucketRules>;
}

/** Returns three checks: for writing, for object lock and for lifecycle rules. */
export function bucketChecks({ prefix, retentionDays, write, rules }: BucketPlace): readonly Check[] {
  const remedy =
    'check --store, --s3-endpoint and the credentials, which need the right to put and delete objects';
  return [
    {
      id: 'store',
      title: 'store',
      remedy,
      async run() {
        const reason = await write();
        return reason === undefined ? ok('the bucket is writable') : failed(reason, remedy);
      },
    },
    {
      id: 'object-lock',
      title: 'object lock',
      needs: ['store'],
      remedy:
        'give the credentials the right to read the bucket’s configuration (s3:GetBucketObjectLockConfiguration)',
      run: async () => lockVerdict((await rules()).lock, retentionDays),
    },
    {
      id: 'lifecycle',
      title: 'lifecycle rules',
      needs: ['store'],
      remedy:
        'give the credentials the right to read the bucket’s configuration (s3:GetLifecycleConfiguration)',
      run: async () => lifecycleVerdict((await rules()).lifecycle, prefix),
    },
  ];
}

function lockVerdict(lock: Known<LockRules>, retentionDays: number): CheckVerdict {
  if (lock === 'unknown') {
    return retentionDays === 0
      ? skipped('the store does not report it')
      : warning(
          'the store does not report whether it locks objects',
          'check that the bucket was created with object lock; without it the recorder cannot store recordings',
        );
  }
  if (retentionDays > 0 && !lock.enabled) {
    return failed(
      `--s3-retention is ${retentionDays} days, but the bucket has no object lock`,
      'use a bucket with object lock, or --s3-retention 0',
    );
  }
  if (lock.defaultDays !== undefined) {
    return warning(
      `the bucket locks all objects for ${lock.defaultDays} days, including copies of open sessions, which accumulate`,
      'remove the bucket’s default retention and set --s3-retention, which locks only recordings',
    );
  }
  if (retentionDays > 0) return ok(`recordings are locked for ${retentionDays} days`);
  return ok(lock.enabled ? 'available, but not used' : 'none');
}

function lifecycleVerdict(rules: Known<readonly LifecycleRule[]>, prefix: string): CheckVerdict {
  if (rules === 'unknown') return skipped('the store does not report it');
  const ours = rules.filter((rule) => rule.prefix.startsWith(prefix) || prefix.startsWith(rule.prefix));
  const problems = ours.flatMap(({ name, removesAfterDays, archivesTo, narrowed }) => {
    const some = narrowed ? 'some objects' : 'objects';
    return [
      ...(removesAfterDays === undefined
        ? []
        : [
            `rule “${name}” removes ${some} after ${removesAfterDays} days without an entry in the evidence log`,
          ]),
      ...(archivesTo === undefined
        ? []
        : [`rule “${name}” moves ${some} to ${archivesTo}, which the recorder cannot read`]),
    ];
  });
  if (problems.length > 0) {
    return warning(
      problems.join('; '),
      'remove the rule and use --retention-days; `tailcast verify` reports removed objects as missing',
    );
  }
  const aborting = ours.find(({ abortsAfterDays }) => abortsAfterDays !== undefined);
  return ok(
    aborting === undefined
      ? 'none; the recorder aborts unfinished uploads itself'
      : `unfinished uploads are aborted after ${aborting.abortsAfterDays} days`,
  );
}
