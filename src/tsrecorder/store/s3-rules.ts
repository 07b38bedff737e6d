/** What a bucket does by itself with what is put into it: object lock, and rules that remove or archive objects. */
import {
  GetBucketLifecycleConfigurationCommand,
  GetObjectLockConfigurationCommand,
  type LifecycleRule as StoredRule,
} from '@aws-sdk/client-s3';
import { errorName, httpStatusOf, type S3Connection } from './s3-client.ts';

/** `unknown`: the store does not say, or not to us. */
export type Known<T> = T | 'unknown';

export interface LockRules {
  readonly enabled: boolean;
  /** Days for which everything is locked that does not say otherwise. */
  readonly defaultDays: number | undefined;
}

export interface LifecycleRule {
  readonly name: string;
  /** Objects whose names begin so; empty for all. */
  readonly prefix: string;
  /** Whether a rule asks for more than the prefix: tags or sizes. */
  readonly narrowed: boolean;
  /** Days after which objects are removed; 0 for a date. */
  readonly removesAfterDays: number | undefined;
  /** Storage class that objects go to and that must be restored before it can be read. */
  readonly archivesTo: string | undefined;
  /** Days after which unfinished uploads are given up. */
  readonly abortsAfterDays: number | undefined;
}

export interface BucketRules {
  readonly lock: Known<LockRules>;
  readonly lifecycle: Known<readonly LifecycleRule[]>;
}

/** Archive classes that answer a read at once are not among these. */
const ARCHIVES = new Set(['GLACIER', 'DEEP_ARCHIVE']);
const DAYS_PER_YEAR = 365;

/** Never rejects: what cannot be asked is unknown. */
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
      saysNone(error, 'ObjectLockConfigurationNotFoundError')
        ? { enabled: false, defaultDays: undefined }
        : 'unknown',
    );
  const lifecycle = connection
    .run((client) => client.send(new GetBucketLifecycleConfigurationCommand(target)))
    .then(({ Rules = [] }) => Rules.filter(({ Status }) => Status === 'Enabled').map(readRule))
    .catch((error: unknown): Known<readonly LifecycleRule[]> =>
      saysNone(error, 'NoSuchLifecycleConfiguration') ? [] : 'unknown',
    );
  return { lock: await lock, lifecycle: await lifecycle };
}

/** A store that knows the question and has no such configuration; one that does not know it answers otherwise. */
function saysNone(error: unknown, name: string): boolean {
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

/** Where rules had their prefix before there were filters. */
function olderPrefix(rule: { readonly Prefix?: unknown }): string | undefined {
  return typeof rule.Prefix === 'string' ? rule.Prefix : undefined;
}
