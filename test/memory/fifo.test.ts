import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Fifo } from '../../src/memory/fifo.ts';

it('behaves like an array', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.integer(), fc.constantFrom('shift', 'replace', 'clear'))), (steps) => {
      const fifo = new Fifo<number>();
      let array: number[] = [];
      for (const step of steps) {
        if (typeof step === 'number') {
          fifo.push(step);
          array.push(step);
        } else if (step === 'shift') expect(fifo.shift()).toBe(array.shift());
        else if (step === 'clear') {
          fifo.clear();
          array = [];
        } else if (array.length > 0) {
          fifo.replaceFirst(-1);
          array[0] = -1;
        }
        expect([fifo.length, fifo.first, fifo.last]).toEqual([array.length, array[0], array.at(-1)]);
      }
    }),
  );
});
