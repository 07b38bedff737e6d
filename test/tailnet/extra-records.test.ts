import { describe, expect, it } from 'vitest';
import { readExtraRecords } from '../../src/tailnet/extra-records.ts';

const signal = new AbortController().signal;

/** Returns an IPN bus that sends these messages and closes. */
function busOf(
  ...said: readonly Readonly<Record<string, unknown>>[]
): Parameters<typeof readExtraRecords>[0] {
  return {
    async *watchBus() {
      yield* said;
    },
  };
}

describe('the extra records of a tailnet', () => {
  it('are the addresses among them, by names as people write them', async () => {
    const records = [
      { Name: 'One.Example.COM.', Value: '100.64.0.1' },
      { Name: 'two.example.com', Type: 'A', Value: '100.64.0.2' },
      { Name: 'three.example.com', Type: 'AAAA', Value: 'fd7a::3' },
      { Name: 'four.example.com', Type: '', Value: '100.64.0.4' },
      { Name: 'five.example.com', Type: 'TXT', Value: 'not an address' },
    ];
    const map = { NetMap: { DNS: { ExtraRecords: records } } };
    expect(await readExtraRecords(busOf({ State: 6 }, map, { NetMap: {} }), signal)).toEqual([
      { name: 'one.example.com', address: '100.64.0.1' },
      { name: 'two.example.com', address: '100.64.0.2' },
      { name: 'three.example.com', address: 'fd7a::3' },
      { name: 'four.example.com', address: '100.64.0.4' },
    ]);
  });

  it('are none where the daemon names none', async () => {
    for (const bus of [busOf(), busOf({ State: 6 }), busOf({ NetMap: {} }), busOf({ NetMap: { DNS: null } })])
      expect(await readExtraRecords(bus, signal)).toEqual([]);
  });
});
