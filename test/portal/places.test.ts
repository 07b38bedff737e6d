import { expect, it } from 'vitest';
import { createPlaces } from '../../src/portal/places.ts';

it('leaves slots for another node when many nodes want as many slots as possible', () => {
  const places = createPlaces({ total: 256, perNode: 32 });
  for (let node = 0; node < 8; node++) {
    for (let at = 0; at < 33; at++) {
      try {
        places.take(`node ${node}`);
      } catch {
        // the tailnet node already uses all slots that one node may use
      }
    }
  }
  expect(() => places.take('another node')).not.toThrow();
});
