import { expect, it } from 'vitest';
import { addUp } from '../../bench/harness/collections.ts';

const LOG = `{"port":1}
[26196:0x46abc000]       67 ms: Scavenge 5.5 (6.6) -> 5.0 (7.1) MB, pooled: 0.0 MB, 2.96 / 0.00 ms (average mu = 1.000, current mu = 1.000) allocation failure; 
[26196:0x46abc000]    30698 ms: Scavenge 32.3 (72.8) -> 30.1 (72.8) MB, pooled: 27.8 MB, 4.04 / 0.00 ms (average mu = 0.971, current mu = 0.972) testing; 
[18935:0x23b42000]     4277 ms: Incremental Mark-Compact 25.4 (43.3) -> 24.0 (43.3) MB, pooled: 0.0 MB, 33.5 / 0.01 ms (+ 5.5 ms in 3 steps since start of marking, biggest step 4.3 ms, walltime since start of marking 67 ms) (average mu = 0.990, current mu = 0.991) finalize incremental marking via stack guard; GC in old space requested
a line of its own
`;

it('adds up what V8 says of its collections', () => {
  expect(addUp(LOG)).toEqual({
    scavenges: 2,
    scavengeMs: 7,
    markCompacts: 1,
    markCompactMs: 39,
    longestMs: 33.5,
  });
});
