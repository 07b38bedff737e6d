/** Credentials of an AWS role, from a service account (IRSA) and from EKS Pod Identity. */
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { HeadBucketCommand } from '@aws-sdk/client-s3';
import { afterEach, expect, it } from 'vitest';
import { connectS3, S3_DEFAULTS } from '../../../src/tsrecorder/store/s3-client.ts';

const EXPIRES = '2099-01-01T00:00:00Z';
const saved = { ...process.env };
const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  process.env = { ...saved };
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

/** Starts a server, and writes a file with the token that the server expects. */
async function serve(answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>) {
  const directory = await mkdtemp(join(tmpdir(), 's3-roles-'));
  const tokenFile = join(directory, 'token');
  await writeFile(tokenFile, 'the-token');
  const server = createServer((request, response) => void answer(request, response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  cleanUps.push(
    () => rm(directory, { recursive: true }),
    () => server.close(),
  );
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, tokenFile };
}

/** Sends one request to a bucket. @returns its access key and session token */
async function keysOfRequest(): Promise<readonly (string | undefined)[]> {
  const found: (string | undefined)[] = [];
  const store = await serve(async ({ headers }, response) => {
    const [, key] = /Credential=([^/]+)\//.exec(headers.authorization ?? '') ?? [];
    found.push(key, String(headers['x-amz-security-token']));
    response.end();
  });
  const s3 = connectS3({ ...S3_DEFAULTS, bucket: 'b', endpoint: store.url, pathStyle: true });
  cleanUps.push(() => s3.close());
  await s3.run((client) => client.send(new HeadBucketCommand({ Bucket: 'b' })));
  return found;
}

function setEnvironment(values: Readonly<Record<string, string>>): void {
  const others = Object.entries(saved).filter(([name]) => !name.startsWith('AWS_'));
  process.env = { ...Object.fromEntries(others), ...values };
}

it('uses the role of a service account', async () => {
  const asked: string[] = [];
  const sts = await serve(async (request, response) => {
    asked.push(await text(request));
    response.end(
      `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
        <AssumeRoleWithWebIdentityResult><Credentials>
          <AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
          <SessionToken>ROLESESSION</SessionToken><Expiration>${EXPIRES}</Expiration>
        </Credentials></AssumeRoleWithWebIdentityResult>
      </AssumeRoleWithWebIdentityResponse>`,
    );
  });
  setEnvironment({
    AWS_REGION: 'us-east-1',
    AWS_ROLE_ARN: 'arn:aws:iam::123456789012:role/recorder',
    AWS_WEB_IDENTITY_TOKEN_FILE: sts.tokenFile,
    AWS_ENDPOINT_URL_STS: sts.url,
  });
  expect(await keysOfRequest()).toEqual(['ROLEKEY', 'ROLESESSION']);
  const form = new URLSearchParams(asked[0]);
  expect(form.get('Action')).toBe('AssumeRoleWithWebIdentity');
  expect(form.get('WebIdentityToken')).toBe('the-token');
  expect(form.get('RoleArn')).toBe('arn:aws:iam::123456789012:role/recorder');
});

it('uses EKS Pod Identity', async () => {
  const tokens: (string | undefined)[] = [];
  const agent = await serve(async ({ headers }, response) => {
    tokens.push(headers.authorization);
    response.setHeader('content-type', 'application/json');
    response.end(
      JSON.stringify({
        AccessKeyId: 'PODKEY',
        SecretAccessKey: 's',
        Token: 'PODSESSION',
        Expiration: EXPIRES,
      }),
    );
  });
  setEnvironment({
    AWS_REGION: 'us-east-1',
    AWS_CONTAINER_CREDENTIALS_FULL_URI: `${agent.url}/v1/credentials`,
    AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: agent.tokenFile,
  });
  expect(await keysOfRequest()).toEqual(['PODKEY', 'PODSESSION']);
  expect(tokens).toEqual(['the-token']);
});
