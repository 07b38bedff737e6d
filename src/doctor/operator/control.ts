/** Checks that the control server responds, and that the operator's credentials have the required permissions. */
import { errorText } from '../../errors.ts';
import type { TailnetControl, TailnetNodeEntry } from '../../operator/auth-keys.ts';
import { failed, ok, skipped, type Check } from '../checks.ts';

export interface ControlFacts {
  readonly control: TailnetControl;
  /** Tags that a tailnet node gets if its resource specifies no tags. */
  readonly defaultTags: readonly string[];
  readonly proxyGroups: boolean;
  /** Nodes of the tailnet. Requested only once, for all checks. */
  readonly nodes: () => Promise<readonly TailnetNodeEntry[]>;
}

/**
 * Lifetime of the auth key that the check creates, in milliseconds. The key then expires even if the check cannot
 * revoke it.
 */
const KEY_LIFETIME_MS = 60_000;
const REACH = 'check --control and --control-url, the network, and the files with the credentials';

export function controlChecks({ control, defaultTags, proxyGroups, nodes }: ControlFacts): readonly Check[] {
  const keys =
    `give the OAuth client the scope auth_keys and the tags ${defaultTags.join(', ')} (Headscale: add ` +
    'the tags to tagOwners of its policy)';
  return [
    {
      id: 'control',
      title: 'control server',
      remedy: REACH,
      async run() {
        const found = await nodes();
        return ok(`${control.loginServer}, ${found.length} nodes`);
      },
    },
    {
      id: 'auth-keys',
      title: 'auth keys',
      needs: ['control'],
      remedy: keys,
      async run() {
        const made = await control.createKey({
          tags: defaultTags,
          lifetimeMs: KEY_LIFETIME_MS,
          description: 'tailcast doctor',
        });
        const left = await control.revokeKey(made.id).then(
          () => undefined,
          (error: unknown) => errorText(error),
        );
        const what = `a key with ${defaultTags.join(', ')} was created`;
        return left === undefined
          ? ok(`${what} and removed`)
          : failed(`${what}, and cannot be removed: ${left}; it expires within a minute`, keys);
      },
    },
    {
      id: 'tailnet-services',
      title: 'Tailscale Services',
      needs: ['control'],
      remedy: 'give the OAuth client the scope services, or leave proxy-groups out of --controllers',
      async run() {
        if (!proxyGroups) return skipped('not needed: --controllers has no proxy-groups');
        if (control.services === undefined)
          return skipped('the control server does not support them: each replica has its own name');
        const known = await control.services.list();
        return ok(`${known.length} found`);
      },
    },
  ];
}
