import { expect, it } from 'vitest';
import { isSocketOf } from '../../demo/local-user.ts';

const NOBODY = 65_534;
const ESTABLISHED = '01';
const TIME_WAIT = '06';

/** A row of `/proc/net/tcp` for a connection from 127.0.0.1:40000. */
const row = (state: string, user: number, remotePort = '1F90'): string =>
  `   0: 0100007F:9C40 0100007F:${remotePort} ${state} 00000000:00000000 00:00000000 00000000 ` +
  `${String(user).padStart(5)}        0 12345 1 0000000000000000 20 4 30 10 -1\n`;

it.each([
  ['of the user', row(ESTABLISHED, 1000), true],
  ['of root', row(ESTABLISHED, 0), true],
  ['of another user', row(ESTABLISHED, NOBODY), false],
  ['without a row', '', false],
  ['that is closed, which Linux shows as of root', row(TIME_WAIT, 0), false],
  ['of another user, after a closed one', row(TIME_WAIT, 0, '1F91') + row(ESTABLISHED, NOBODY), false],
  [
    'of another user, with a port that root uses too',
    row(ESTABLISHED, 0, '1F91') + row(ESTABLISHED, NOBODY),
    false,
  ],
])('a socket %s: %s', (_what, tables, isOwn) => {
  expect(isSocketOf(1000, tables, '127.0.0.1', 40_000)).toBe(isOwn);
});
