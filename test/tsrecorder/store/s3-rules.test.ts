import type { S3Connection } from '../../../src/tsrecorder/store/s3-client.ts';
import { describe, expect, it } from 'vitest';
import { readBucketRules } from '../../../src/tsrecorder/store/s3-rules.ts';

type Answer = object | { readonly status: number; readonly name: string };

/** Returns a connection that responds to the commands for object lock and for lifecycle rules. */
function connection(answers: { readonly lock: Answer; readonly lifecycle: Answer }): S3Connection {
  const client = {
    send: async (command: object) => {
      const answer = command.constructor.name.includes('Lock') ? answers.lock : answers.lifecycle;
      if (!('status' in answer)) return answer;
      const error = new Error(answer.name);
      error.name = answer.name;
      throw Object.assign(error, { $metadata: { httpStatusCode: answer.status } });
    },
  };
  const run = (ask: (given: unknown) => unknown): unknown => ask(client);
  return { run } as unknown as S3Connection;
}

const NOTHING = {
  lock: { status: 404, name: 'ObjectLockConfigurationNotFoundError' },
  lifecycle: { status: 404, name: 'NoSuchLifecycleConfiguration' },
};
const locked = (ObjectLockConfiguration: object): Promise<unknown> =>
  readBucketRules(connection({ ...NOTHING, lock: { ObjectLockConfiguration } }), 'b').then(
    ({ lock }) => lock,
  );
const ruled = (...Rules: readonly object[]): Promise<unknown> =>
  readBucketRules(connection({ ...NOTHING, lifecycle: { Rules } }), 'b').then(({ lifecycle }) => lifecycle);

describe('the rules of a bucket', () => {
  it('are empty if the store knows the request and has no such configuration', async () => {
    expect(await readBucketRules(connection(NOTHING), 'b')).toEqual({
      lock: { enabled: false, defaultDays: undefined },
      lifecycle: [],
    });
  });

  it.each([
    { status: 403, name: 'AccessDenied' },
    { status: 404, name: 'NoSuchBucket' },
    { status: 501, name: 'ObjectLockConfigurationNotFoundError' },
    { status: 501, name: 'NoSuchLifecycleConfiguration' },
  ])('are unknown if the store responds with $status $name', async (answer) => {
    expect(await readBucketRules(connection({ lock: answer, lifecycle: answer }), 'b')).toEqual({
      lock: 'unknown',
      lifecycle: 'unknown',
    });
  });

  it('can lock objects, for days or years', async () => {
    const Enabled = { ObjectLockEnabled: 'Enabled' };
    expect(await locked(Enabled)).toEqual({ enabled: true, defaultDays: undefined });
    expect(await locked({ ...Enabled, Rule: { DefaultRetention: { Days: 7 } } })).toEqual({
      enabled: true,
      defaultDays: 7,
    });
    expect(await locked({ ...Enabled, Rule: { DefaultRetention: { Years: 2 } } })).toEqual({
      enabled: true,
      defaultDays: 730,
    });
    expect(await locked({ ObjectLockEnabled: 'Off' })).toEqual({ enabled: false, defaultDays: undefined });
  });

  it('can remove, archive and abort uploads, if they are enabled', async () => {
    expect(
      await ruled(
        { ID: 'all', Status: 'Enabled', Expiration: { Days: 30 } },
        { Status: 'Disabled', Expiration: { Days: 1 } },
        { ID: 'old', Status: 'Enabled', Prefix: 'old/', Expiration: { Date: new Date(0) } },
        {
          ID: 'cold',
          Status: 'Enabled',
          Filter: { Prefix: 'n/' },
          Transitions: [{ StorageClass: 'GLACIER_IR' }, { StorageClass: 'DEEP_ARCHIVE' }],
        },
        {
          Status: 'Enabled',
          Filter: { Tag: { Key: 'a' } },
          AbortIncompleteMultipartUpload: { DaysAfterInitiation: 3 },
        },
        {
          ID: 'and',
          Status: 'Enabled',
          Filter: { And: { Prefix: 'x/' } },
          Transitions: [{ StorageClass: 'STANDARD_IA' }],
        },
      ),
    ).toEqual([
      rule({ name: 'all', removesAfterDays: 30 }),
      rule({ name: 'old', prefix: 'old/', removesAfterDays: 0 }),
      rule({ name: 'cold', prefix: 'n/', archivesTo: 'DEEP_ARCHIVE' }),
      rule({ name: 'without a name', narrowed: true, abortsAfterDays: 3 }),
      rule({ name: 'and', prefix: 'x/', narrowed: true }),
    ]);
  });
});

function rule(some: object): object {
  const none = { removesAfterDays: undefined, archivesTo: undefined, abortsAfterDays: undefined };
  return { prefix: '', narrowed: false, ...none, ...some };
}
