/** Certificates for tests: one CA, and servers by name. */
import { issueAuthority, issueServer, type IssuedPair } from '../../src/tailnet/issue-certificate.ts';

const DAY_MS = 86_400_000;

export interface TestAuthority {
  readonly caPem: string;
  issue(
    names: readonly string[],
    options?: { readonly validMs?: number; readonly nowMs?: number },
  ): Promise<IssuedPair>;
}

export async function createTestAuthority(nowMs: number = Date.now()): Promise<TestAuthority> {
  const authority = await issueAuthority({ nowMs, validMs: 1000 * DAY_MS });
  return {
    caPem: authority.certificatePem,
    issue: (names, options = {}) =>
      issueServer(authority, {
        names,
        nowMs: options.nowMs ?? nowMs,
        validMs: options.validMs ?? 90 * DAY_MS,
      }),
  };
}
