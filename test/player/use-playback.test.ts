import { expect, it } from 'vitest';
import { createDrawing } from '../../src/player/use-playback.ts';

it('during a seek, the page shows each new position and draws 4 screens per second', () => {
  const playback = { isSeeking: true, state: { position: 0 } };
  const shown: number[] = [];
  let drawn = 0;
  const drawing = createDrawing(
    playback,
    () => (drawn += 1),
    ({ position }) => shown.push(position),
  );
  for (let frame = 1; frame <= 8; frame += 1) {
    playback.state.position = frame;
    drawing.change();
    drawing.frame(0.0625);
  }
  expect(shown).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  expect(drawn).toBe(2);
  drawing.change();
  drawing.frame(0.0625);
  // the page draws the last screen of the seek before the next frame
  playback.isSeeking = false;
  drawing.change();
  expect(drawn).toBe(3);
  drawing.frame(0.0625);
  drawing.frame(0.0625);
  expect(shown).toHaveLength(10);
  expect(drawn).toBe(3);
});
