import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { TailcastError, errorText } from '../errors.ts';
import type { Identity } from '../tailnet/identity.ts';

const FILE = z.strictObject({
  nodeId: z.string().min(1),
  nodeName: z.string().min(1),
  addresses: z.array(z.string()).default([]),
  login: z.string().min(1).optional(),
  displayName: z.string().default(''),
  userId: z.union([z.int().min(0), z.string().regex(/^\d+$/)]).default(1),
  tags: z.array(z.string().startsWith('tag:')).min(1).optional(),
  capabilities: z.record(z.string(), z.array(z.unknown())).default({}),
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
    throw new TailcastError('CONFIG_INVALID', `${path} cannot be read: ${errorText(error)}`, {
      cause: error,
    });
  }
  const parsed = FILE.safeParse(content);
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
