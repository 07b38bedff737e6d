import { expect, it } from 'vitest';
import { createAccessLog } from '../../src/observe/access-log.ts';
import { createLogger } from '../../src/observe/logger.ts';

/**
 * Text that sets colours with an 8-bit control character, reverses the direction of its characters, and contains a
 * zero-width space.
 */
const HOSTILE = 'a\u009b31m\u202eb\u200b\u{e0041}"ü';

it('logs text of clients so that a terminal does not execute it, and JSON parsers read it unchanged', () => {
  const lines: string[] = [];
  const sink = { write: (line: string) => lines.push(line) > 0, writableLength: 0 };
  createLogger({ level: 'info', destination: sink }).info({ path: HOSTILE }, 'request refused');
  const accessLog = createAccessLog(sink);
  accessLog.write({
    id: '',
    protocol: 'h2',
    peer: '100.64.0.1',
    user: '',
    method: 'GET',
    path: HOSTILE,
    status: 400,
    durationMs: 1,
    requestBytes: 0,
    responseBytes: 0,
  });
  accessLog.close();
  expect(lines).toHaveLength(2);
  for (const line of lines) {
    expect(line).toMatch(/^[ -~ü]*\n$/);
    expect(JSON.parse(line)).toMatchObject({ path: HOSTILE });
  }
});
