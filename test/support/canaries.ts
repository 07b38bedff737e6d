/**
 * Secrets of every known shape, as they appear on the screens of sessions, for tests that check that secrets appear
 * nowhere else.
 */

/** Matches each of these secrets and no other text. */
export const CANARY = /canary/i;

const PASSWORD = 'canaryPassw0rd';
const JWT = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJDQU5BUlkifQ.canarySignature0';
const KEY = ['canaryKEYcanaryKEYcanaryKEYcanary', 'CANARYkeyCANARYkeyCANARYkeyCANARY'];

/** Output of programs. */
const PRINTED: readonly string[] = [
  'AKIACANARYCANARY0000',
  'ASIACANARYCANARY0001',
  'ghp_canary0123456789abcdefghijklmnop',
  'github_pat_canary0123456789abcdef',
  'glpat-canary0123456789abcdef',
  'npm_canary0123456789abcdef',
  'xoxb-1234567890-canary-abcdef',
  'sk-canary0123456789abcdef',
  'AIzacanary0123456789abcdef',
  `Authorization: Bearer ${JWT}`,
  JWT,
  `postgres://app:${PASSWORD}@db/x`,
  `DB_PASSWORD=${PASSWORD}`,
  `"api_key": "${PASSWORD}"`,
  `--token=${PASSWORD}`,
  '-----BEGIN OPENSSH PRIVATE KEY-----',
  ...KEY,
  '-----END OPENSSH PRIVATE KEY-----',
];

/** Commands that are typed after a prompt. Each contains a secret. */
const TYPED: readonly string[] = [
  `sshpass -p ${PASSWORD} ssh host`,
  `mysql -u root -p${PASSWORD} db`,
  `curl -u admin:${PASSWORD} https://host`,
  `export TOKEN=${PASSWORD}`,
  `vault login --password ${PASSWORD}`,
];

/**
 * Returns the lines of a cast, without its header. Printed secrets are on rows with `needle`, except private keys and
 * options. Typed secrets are behind a prompt.
 */
export function canaryEvents(): string {
  const events: (readonly [number, string, string])[] = [];
  let at = 1;
  for (const text of PRINTED) {
    at += 1;
    events.push([at, 'o', `${text.startsWith('-') || KEY.includes(text) ? '' : 'needle '}${text}\r\n`]);
  }
  for (const text of TYPED) {
    at += 1;
    events.push([at, 'o', '$ '], [at + 0.2, 'i', `${text}\r`], [at + 0.3, 'o', `${text}\r\n`]);
  }
  // adds the escape sequence with which a shell reports a command (OSC 133); the command contains a secret
  const named = encodeURIComponent(`mysql -p${PASSWORD}`);
  events.push([at + 1, 'o', `\u001b]133;C;cmdline_url=${named}\u0007needle last\r\n`]);
  return events.map((event) => `${JSON.stringify(event)}\n`).join('');
}
