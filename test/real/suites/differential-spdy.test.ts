/** Compares tailcast's SPDY parser and encoder with the library of API servers, kubelets and kubectl. */
import { describe, expect, it } from 'vitest';
import { damage, join, segments } from '../../support/damage.ts';
import { createTally, relation } from '../differential/compare.ts';
import { askOracle, base64 } from '../differential/oracle.ts';
import { createRandom, runSeed } from '../../support/random.ts';
import {
  decodeOurs,
  encodeOurs,
  randomDeflater,
  randomFrames,
  type OracleFrame,
} from '../differential/spdy-streams.ts';

const STREAMS = 6_000;
const DAMAGED = 40_000;
const seed = runSeed();

interface Decoded {
  readonly frames: readonly OracleFrame[];
  readonly error?: string;
}

function bytesOf(encoded: { readonly bytes: string }): Uint8Array {
  return new Uint8Array(Buffer.from(encoded.bytes, 'base64'));
}

describe(`SPDY (TEST_SEED=${seed})`, () => {
  it('is read by Go as we wrote it', { timeout: 60_000 }, async () => {
    const random = createRandom(seed);
    const streams = Array.from({ length: STREAMS }, () => randomFrames(random));
    const questions = streams.map((frames) => {
      const deflate = randomDeflater(random, { odd: false });
      return { bytes: base64(join(...frames.map((frame) => encodeOurs(frame, deflate)))) };
    });
    const answers = await askOracle<Decoded>('spdy-decode', questions);
    expect(answers.map(({ frames, error }) => ({ frames, error }))).toEqual(
      streams.map((frames) => ({ frames, error: undefined })),
    );
  });

  it('is read by us as Go wrote it', { timeout: 60_000 }, async () => {
    const random = createRandom(seed + 1);
    const streams = Array.from({ length: STREAMS }, () => randomFrames(random));
    const answers = await askOracle<{ bytes: string }>(
      'spdy-encode',
      streams.map((frames) => ({ frames })),
    );
    for (const [index, frames] of streams.entries()) {
      const read = decodeOurs(segments(random, bytesOf(answers[index]!)));
      expect(read.refused).toBeUndefined();
      expect(read.frames).toEqual(frames);
    }
  });

  it('is never read differently when it is damaged', { timeout: 120_000 }, async () => {
    const random = createRandom(seed + 2);
    const goWritten = await askOracle<{ bytes: string }>(
      'spdy-encode',
      Array.from({ length: DAMAGED / 4 }, () => ({ frames: randomFrames(random) })),
    );
    const inputs = Array.from({ length: DAMAGED }, (_, index) => {
      const written = goWritten[index];
      if (written !== undefined) return damage(random, bytesOf(written));
      const deflate = randomDeflater(random, { odd: true });
      const bytes = join(...randomFrames(random).map((frame) => encodeOurs(frame, deflate)));
      // Errors in compressed headers are visible only if the surrounding bytes are valid.
      return random.oneIn(2) ? bytes : damage(random, bytes);
    });
    const answers = await askOracle<Decoded>(
      'spdy-decode',
      inputs.map((bytes) => ({ bytes: base64(bytes) })),
    );
    const outcomes = createTally();
    const problems: object[] = [];
    for (const [index, bytes] of inputs.entries()) {
      const go = answers[index]!;
      const ours = decodeOurs(segments(random, bytes));
      const outcome = relation(ours.frames, go.frames);
      outcomes.add(outcome);
      // If tailcast's parser returns fewer frames and no error, it waits for bytes that Go's parser does not need.
      const waits = outcome === 'shorter' && ours.refused === undefined;
      if (outcome === 'different' || outcome === 'longer' || waits)
        problems.push({ bytes: base64(bytes), ours, go });
    }
    console.log('damaged SPDY', { inputs: inputs.length, ...outcomes.counts });
    expect(problems.slice(0, 3)).toEqual([]);
    expect(outcomes.counts['equal']).toBeGreaterThan(DAMAGED / 20);
  });
});
