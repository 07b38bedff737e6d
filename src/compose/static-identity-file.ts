import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { TailcastError, errorReason } from '../errors.ts';
import type { Identity } from '../tailnet/identity.ts';

/** What is in the file; the descriptions are in docs/config.md. */
export const STATIC_IDENTITY = z.strictObject({
  nodeId: z.string().min(1).describe('stable id of the node that everybody comes from'),
  nodeName: z.string().min(1).describe('its name in the tailnet'),
  addresses: z.array(z.string()).default([]).describe('its addresses'),
  login: z.string().min(1).optional().describe('the user, for a person’s node; this or `tags`'),
  displayName: z.string().default('').describe('the name of the user'),
  userId: z
    .union([z.int().min(0), z.string().regex(/^\d+$/)])
    .default(1)
    .describe('the number of the user; as text where it is over 2^53'),
  tags: z
    .array(z.string().startsWith('tag:'))
    .min(1)
    .optional()
    .describe('for a tagged node; this or `login`'),
  capabilities: z
    .record(z.string(), z.array(z.unknown()))
    .default({})
    .describe('what the tailnet policy would grant: a list of rules per capability ([grants](grants.md))'),
});

/**
 * Reads the identity that `identity=static` gives to everybody: a user (`login`) or a tagged node (`tags`), with the
 * capabilities a tailnet policy would grant.
 *
 * @throws TailcastError `CONFIG_INVALID` naming the file and the key.
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
