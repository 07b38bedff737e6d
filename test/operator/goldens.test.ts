import { expect, it } from 'vitest';
import { goldens, readGolden } from './goldens.ts';

it.each(['recorder', 'proxy-group'] as const)(
  'makes the golden StatefulSet of a %s written for the reference, field by field',
  (name) => {
    expect(goldens()[name]).toEqual(readGolden(name));
  },
);
