import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { TailcastError, errorReason } from '../errors.ts';
import type { Identity } from '../tailnet/identity.ts';

/** Fields of the file. `docs/config.md` contains the descriptions. */
export const STATIC_IDENTITY = z.strictObject({
  nodeId: z.string().min(1).describe('stable ID of the node of every caller'),
  nodeName: z.string().min(1).describe('name of this node in the tailnet'),
  addresses: z.array(z.string()).default([]).describe('addresses of this node'),
  login: z.string().min(1).optional().describe('login name, for the node of a person; set this or `tags`'),
  displayName: z.string().default('').describe('display name of the user'),
  userId: z
    .union([z.int().min(0), z.string().regex(/^\d+$/)])
    .default(1)
    .describe('numeric ID of the user; write IDs above 2^53 as strings'),
  tags: z
    .array(z.string().startsWith('tag:'))
    .min(1)
    .optional()
    .describe('tags, for a tagged node; set this or `login`'),
  capabilities: z
    .record(z.string(), z.array(z.unknown()))
    .default({})
    .describe('[grants](identity.md#grants), as a list of rules per capability'),
});

/**
 * Reads the identity of all callers with `identity=static`: a user (`login`) or a tagged node (`tags`), with the
 * capabilities that a tailnet policy would grant.
 *
 * @throws TailcastError `CONFIG_INVALID` with file and key
 */
export async function readStaticIdentity(path: string | undefined): Promise<Identity> {
  if (path === undefined) {
    throw new TailcastError(
      'CONFIG_INVALID',
      'identity=static needs staticIdentity, a JSON file with the identity',
    );
  }
  let content: unknown;
  try {
    content = JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    throw new TailcastError('CONFIG_INVALID', `${path} cannot be read: ${errorReason(error)}`, {
      cause: error,
    });
  }
  const parsed = STATIC_IDENTITY.safeParse(content);
  if (!parsed.success)
    throw new TailcastError('CONFIG_INVALID', `${path}:\n${z.prettifyError(parsed.error)}`);
  const { login, tags, userId, displayName, capabilities, ...node } = parsed.data;
  const common = { ...node, capabilities: new Map(Object.entries(capabilities)) };
  if ((login === undefined) === (tags === undefined)) {
    throw new TailcastError('CONFIG_INVALID', `${path}: either login or tags is needed`);
  }
  return login === undefined
    ? { kind: 'tagged', ...common, tags: tags ?? [] }
    : { kind: 'user', ...common, login, displayName, userId: BigInt(userId) };
}
