import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { parseExecOptions } from '../../../src/kube/exec-options.ts';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import { holdSession } from '../../../src/proxy/session/moderated.ts';
import { ALICE, EXEC_TTY } from '../../support/upgrade-rig.ts';

describe('a moderated session that ends while the gateway asks the API server', () => {
  it('does not start the command', async () => {
    const asked = Promise.withResolvers<AbortSignal>();
    const held = holdSession({
      admission: {
        exec: parseExecOptions(parseTarget(EXEC_TTY)),
        identity: ALICE,
        recording: { mode: 'failClosed', recorders: [], recorderTags: [], events: false },
      },
      rules: [
        {
          moderate: ['exec'],
          moderators: { users: ['bob@example.com'], tags: [] },
          clusters: [],
          namespaces: [],
        },
      ],
      asksReason: false,
      protocol: 'websocket',
      dial: {
        connect: () => Promise.reject(new Error('not used')),
        method: 'GET',
        target: EXEC_TTY,
        headers: [
          ...['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='],
          ...['Sec-WebSocket-Version', '13'],
          ...['Sec-WebSocket-Protocol', 'v5.channel.k8s.io'],
        ],
        protocol: 'websocket',
        responseTimeoutMs: 1000,
      },
      isTranslated: false,
      ask(_, over) {
        asked.resolve(over);
        return Promise.withResolvers<never>().promise;
      },
    });
    const moderation = held.moderate({ order: () => {} }, () => {});
    const watcher = { nodeId: 'nBOB', user: 'bob@example.com' };
    moderation.watch({ id: 'o1', action: 'watch', by: 'bob@example.com', reason: '', watcher });
    const over = await asked.promise;
    expect(over.aborted).toBe(false);
    held.answer.socket.destroy();
    await once(held.answer.socket, 'close');
    expect(over.aborted).toBe(true);
    moderation.stop();
  });
});
