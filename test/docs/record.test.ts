/** Compares docs/record.md with the settings and requests of the recorder. */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { environmentName, flagName, readSettings } from '../../src/config/settings.ts';
import { parseRecorder } from '../../src/operator/recorder/recorder.ts';
import { statefulSet } from '../../src/operator/recorder/stateful-set-specs.ts';
import { OPTIONS } from '../operator/recorder/recorders.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const page = readFileSync(`${root}docs/record.md`, 'utf8');
const blocks = (language: string): readonly string[] =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map(
    (match) => match[1] ?? '',
  );

/** Required policy permission for each request of the recorder. */
const ACTIONS: Readonly<Record<string, readonly string[]>> = {
  AbortMultipartUploadCommand: ['s3:AbortMultipartUpload'],
  CompleteMultipartUploadCommand: ['s3:PutObject'],
  CreateMultipartUploadCommand: ['s3:PutObject', 's3:PutObjectRetention'],
  DeleteObjectCommand: ['s3:DeleteObject'],
  GetBucketLifecycleConfigurationCommand: ['s3:GetLifecycleConfiguration'],
  GetObjectCommand: ['s3:GetObject'],
  GetObjectLockConfigurationCommand: ['s3:GetBucketObjectLockConfiguration'],
  HeadObjectCommand: ['s3:GetObject'],
  ListMultipartUploadsCommand: ['s3:ListBucketMultipartUploads'],
  PutObjectCommand: ['s3:PutObject', 's3:PutObjectRetention'],
  UploadPartCommand: ['s3:PutObject'],
  ListObjectsV2Command: ['s3:ListBucket'],
};

describe('docs/record.md', () => {
  it('has a policy that allows what the recorder does, and nothing more', () => {
    const folder = `${root}src/tsrecorder/store/`;
    const source = readdirSync(folder)
      .map((name) => readFileSync(folder + name, 'utf8'))
      .join('\n');
    const used = new Set([...source.matchAll(/\b[A-Z]\w+Command\b/g)].map(([name]) => name));
    used.delete('Command');
    expect([...used].toSorted()).toEqual(Object.keys(ACTIONS).toSorted());
    const [text = ''] = blocks('json');
    const { Statement: statements } = JSON.parse(text) as {
      Statement: { Effect: string; Action: string[] }[];
    };
    expect(statements.every(({ Effect: effect }) => effect === 'Allow')).toBe(true);
    const allowed = statements.flatMap(({ Action: actions }) => actions);
    expect(allowed.toSorted()).toEqual([...new Set(Object.values(ACTIONS).flat())].toSorted());
  });

  const rows = [...page.matchAll(/^- ([^:]+): (`--.+); credentials/gm)].map(
    ([, name = '', settings = '']) => [name, settings] as const,
  );

  it('knows the big kinds', () => {
    expect(rows.map(([name]) => name)).toEqual([
      'AWS S3',
      'Google Cloud Storage',
      'Cloudflare R2',
      'Backblaze B2',
      'MinIO',
      'Ceph (RGW)',
      'versitygw, Garage, SeaweedFS',
    ]);
  });

  it.each(rows)('has settings for %s that the recorder reads', (_name, cell) => {
    const codes = [...cell.matchAll(/`(--s3[^`]+)`/g)].map((match) => match[1] ?? '');
    const words = codes
      .join(' ')
      .replaceAll('ACCOUNT', 'abc')
      .replaceAll('REGION', 'eu-1')
      .replace('…', 'key')
      .split(' ');
    const flags = new Map<string, unknown>([
      ['store', 's3://recordings'],
      ['spool', '/var/lib/tailcast/spool'],
    ]);
    for (let index = 0; index < words.length; index += 2) {
      const key = Object.keys(RECORDER_SETTINGS).find((name) => flagName(name) === words[index]);
      expect(key, words[index]).toBeDefined();
      flags.set(key ?? '', words[index + 1]);
    }
    expect(flags.size).toBeGreaterThan(2);
    expect(readSettings(RECORDER_SETTINGS, { flags, environment: new Map(), file: undefined }).store).toBe(
      's3://recordings',
    );
  });

  it('has values for the chart and a Recorder that mean the same', () => {
    const [values = '', resource = ''] = blocks('yaml');
    const { recorder } = parse(values) as {
      recorder: Record<string, unknown> & { env: Record<string, unknown> };
    };
    const known = (
      parse(readFileSync(`${root}deploy/chart/tailcast/values.yaml`, 'utf8')) as { recorder: object }
    ).recorder;
    expect(Object.keys(recorder).filter((key) => !Object.hasOwn(known, key))).toEqual([]);
    const variables = Object.keys(RECORDER_SETTINGS).map(environmentName);
    expect(Object.keys(recorder.env).filter((name) => !variables.includes(name))).toEqual([]);
    const object = parse(resource) as { metadata: object };
    const set = statefulSet(
      parseRecorder({ ...object, metadata: { ...object.metadata, uid: 'u' } }, OPTIONS),
      OPTIONS,
    );
    const env = set.spec.template.spec?.containers[0]?.env ?? [];
    expect(env.find(({ name }) => name === 'TAILCAST_STORE')?.value).toBe(recorder['store']);
  });
});
