import { describe, expect, it } from 'vitest';
import { createTap, recordableSubprotocols, type StreamProtocol } from '../../src/recording/stream-plan.ts';

const NOBODY = { output() {}, input() {}, resize() {}, exit() {}, flush() {} };

describe('the plan of a stream', () => {
  it.each<[StreamProtocol, string, boolean]>([
    ['websocket', 'v5.channel.k8s.io', true],
    ['websocket', 'base64.channel.k8s.io', true],
    ['websocket', '', true],
    ['websocket', 'v6.channel.k8s.io', false],
    ['spdy', 'v4.channel.k8s.io', true],
    ['spdy', 'base64.channel.k8s.io', false],
    ['spdy', 'v4.base64.channel.k8s.io', false],
    ['spdy', '', false],
  ])('over %s has taps for %j: %s', (protocol, name, recordable) => {
    const create = () => createTap(NOBODY, protocol, name);
    if (recordable) expect(create).not.toThrow();
    else expect(create).toThrow(/cannot be recorded/);
    if (name !== '')
      expect(recordableSubprotocols(protocol, [name])).toEqual(recordable ? [name] : undefined);
  });

  it("keeps the client's order, without protocols that cannot be recorded", () => {
    const offered = ['v9.channel.k8s.io, v4.channel.k8s.io', 'base64.channel.k8s.io', 'v3.channel.k8s.io'];
    expect(recordableSubprotocols('spdy', offered)).toEqual(['v4.channel.k8s.io', 'v3.channel.k8s.io']);
    expect(recordableSubprotocols('spdy', [])).toEqual([]);
  });
});
