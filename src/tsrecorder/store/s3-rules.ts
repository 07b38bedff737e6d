/** Object lock and lifecycle rules of a bucket, which lock, delete or archive objects automatically. */
import {
  GetBucketLifecycleConfigurationCommand,
  GetObjectLockConfigurationCommand,
  type LifecycleRule as StoredRule,
} from '@aws-sdk/client-s3';
import { errorName, httpStatusOf, type S3Connection } from './s3-client.ts';

/** `unknown`: the store does not support the query, or refuses it. */
export type Known<T> = T | 'unknown';

export interface LockRules {
  readonly enabled: boolean;
  /** Default retention of objects, in days. */
  readonly defaultDays: number | undefined;
}

export interface LifecycleRule {
  readonly name: string;
  /** Prefix of the object names; empty for all objects. */
  readonly prefix: string;
  /** True if the rule also filters by tag or size. */
  readonly narrowed: boolean;
  /** Days after which objects are deleted. 0 if objects are deleted on a fixed date. */
  readonly removesAfterDays: number | undefined;
  /** Archive class to which objects are moved. Objects of such a class must be restored before they can be read. */
  readonly archivesTo: string | undefined;
  /** Days after which incomplete uploads are aborted. */
  readonly abortsAfterDays: number | undefined;
}

export interface BucketRules {
  readonly lock: Known<LockRules>;
  readonly lifecycle: Known<readonly LifecycleRule[]>;
}

/** Archive classes that need a restore before a read. */
const ARCHIVES = new Set(['GLACIER', 'DEEP_ARCHIVE']);
const DAYS_PER_YEAR = 365;

/** Reads the rules of a bucket. Never rejects. Unreadable rules are `unknown`. */
export async function readBucketRules(connection: S3Connection, bucket: string): Promise<BucketRules> {
  const target = { Bucket: bucket };
  const lock = connection
    .run((client) => client.send(new GetObjectLockConfigurationCommand(target)))
    .then(({ ObjectLockConfiguration }): LockRules => {
      const { Days, Years } = ObjectLockConfiguration?.Rule?.DefaultRetention ?? {};
      return {
        enabled: ObjectLockConfiguration?.ObjectLockEnabled === 'Enabled',
        defaultDays: Days ?? (Years === undefined ? undefined : Years * DAYS_PER_YEAR),
      };
    })
    .catch((error: unknown): Known<LockRules> =>
      hasNoConfiguration(error, 'ObjectLockConfigurationNotFoundError')
        ? { enabled: false, defaultDays: undefined }
        : 'unknown',
    );
  const lifecycle = connection
    .run((client) => client.send(new GetBucketLifecycleConfigurationCommand(target)))
    .then(({ Rules = [] }) => Rules.filter(({ Status }) => Status === 'Enabled').map(readRule))
    .catch((error: unknown): Known<readonly LifecycleRule[]> =>
      hasNoConfiguration(error, 'NoSuchLifecycleConfiguration') ? [] : 'unknown',
    );
  return { lock: await lock, lifecycle: await lifecycle };
}

/** Returns true if the error means that the bucket has no such configuration. */
function hasNoConfiguration(error: unknown, name: string): boolean {
  return httpStatusOf(error) === 404 && errorName(error) === name;
}

function readRule(rule: StoredRule): LifecycleRule {
  const { ID, Filter, Expiration, Transitions = [], AbortIncompleteMultipartUpload } = rule;
  const { And, Prefix, ...rest } = Filter ?? {};
  const removes = Expiration?.Days ?? (Expiration?.Date === undefined ? undefined : 0);
  return {
    name: ID ?? 'without a name',
    prefix: And?.Prefix ?? Prefix ?? olderPrefix(rule) ?? '',
    narrowed: And !== undefined || Object.values(rest).some((value) => value !== undefined),
    removesAfterDays: removes,
    archivesTo: Transitions.find(({ StorageClass }) => ARCHIVES.has(StorageClass ?? ''))?.StorageClass,
    abortsAfterDays: AbortIncompleteMultipartUpload?.DaysAfterInitiation,
  };
}

/** Returns the prefix of a rule in the older format without filters. */
function olderPrefix(rule: { readonly Prefix?: unknown }): string | undefined {
  return typeof rule.Prefix === 'string' ? rule.Prefix : undefined;
}
