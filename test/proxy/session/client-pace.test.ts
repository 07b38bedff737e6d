import { describe, expect, it } from 'vitest';
import { ClientPace } from '../../../src/proxy/session/client-pace.ts';
import { MAX_PROBES, ProbeLedger } from '../../../src/recording/client-heartbeats.ts';

const KIB = 1024;

/** Creates a `ClientPace` with a test clock. The test sends bytes and responds to probes. */
function begin() {
  const clock = { ms: 0 };
  const ledger = new ProbeLedger((ordinal) => Uint8Array.of(ordinal));
  const pace = new ClientPace(
    () => ledger.next(),
    () => clock.ms,
  );
  return {
    clock,
    pace,
    answer(probe: number): void {
      ledger.take(probe);
      pace.reached(probe);
    },
    /** @returns the number of the probe that is sent after these bytes, if any */
    send(bytes: number): number | undefined {
      return pace.sent(bytes)?.[0];
    },
  };
}

describe('output in transfer to a client', () => {
  it('is followed by a ping after the first byte, and after each quarter of the limit', () => {
    const { send } = begin();
    expect(send(1)).toBe(1);
    expect(send(16 * KIB - 1)).toBe(undefined);
    expect(send(1)).toBe(2);
  });

  it('is limited to 64 KiB for two seconds before the client has responded', () => {
    const { pace, send, clock } = begin();
    send(64 * KIB - 1);
    expect(pace.full).toBe(false);
    send(1);
    expect(pace.full).toBe(true);
    clock.ms = 1_999;
    expect(pace.full).toBe(true);
    clock.ms = 2_000;
    expect(pace.full).toBe(false);
  });

  it('counts from the last ping with a response', () => {
    const { pace, send, answer, clock } = begin();
    const probe = send(64 * KIB)!;
    clock.ms = 10;
    answer(probe);
    expect(pace.full).toBe(false);
    send(64 * KIB - 1);
    expect(pace.full).toBe(false);
    send(1);
    expect(pace.full).toBe(true);
    answer(probe);
    expect(pace.full).toBe(true);
  });

  it("is limited to the round trip plus a tenth of a second of the client's speed, where that is more", () => {
    const { pace, send, answer, clock } = begin();
    // the client receives 4 MB per second, and acknowledges after 50 ms
    for (let tick = 0; tick < 30; tick += 1) {
      const probe = send(200_000);
      clock.ms += 50;
      if (probe !== undefined) answer(probe);
    }
    send(500_000);
    expect(pace.full).toBe(false);
    send(200_000);
    expect(pace.full).toBe(true);
  });

  it('is not limited for 30 seconds after a client has stopped responding, or until it responds', () => {
    const { pace, send, answer, clock } = begin();
    answer(send(1)!);
    const probe = send(64 * KIB)!;
    clock.ms = 29_999;
    expect(pace.full).toBe(true);
    clock.ms = 30_000;
    expect(pace.full).toBe(false);
    send(200 * KIB);
    answer(probe);
    expect(pace.full).toBe(true);
  });

  it('is not limited for a client that has disconnected', () => {
    const { pace, send, answer } = begin();
    answer(send(64 * KIB)!);
    send(64 * KIB);
    expect(pace.full).toBe(true);
    pace.reached(Infinity);
    expect(pace.full).toBe(false);
    expect(send(1024 * KIB)).toBe(undefined);
  });
});

describe('pings', () => {
  it('are not sent while too many have no response', () => {
    const ledger = new ProbeLedger((ordinal) => Uint8Array.of(ordinal));
    for (let count = 0; count < MAX_PROBES; count += 1) expect(ledger.next()).toBeDefined();
    expect(ledger.next()).toBe(undefined);
    expect(ledger.take(1)).toBe(true);
    expect(ledger.next()).toEqual({ ordinal: MAX_PROBES + 1, frame: Uint8Array.of(MAX_PROBES + 1) });
  });

  it('have one response each, which also confirms earlier pings', () => {
    const ledger = new ProbeLedger((ordinal) => Uint8Array.of(ordinal));
    for (let count = 0; count < 3; count += 1) ledger.next();
    expect(ledger.take(2)).toBe(true);
    for (const other of [0, 1, 2, 4, 2.5, Number.NaN, Infinity, -1]) expect(ledger.take(other)).toBe(false);
    expect(ledger.answered).toBe(2);
    expect(ledger.take(3)).toBe(true);
  });
});
