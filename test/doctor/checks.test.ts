import { describe, expect, it } from 'vitest';
import { failed, ok, once, runChecks, warning, type Check } from '../../src/doctor/checks.ts';
import { TailcastError } from '../../src/errors.ts';

const never = new AbortController().signal;
const check = (id: string, run: Check['run'], more: Partial<Check> = {}): Check => ({
  id,
  title: `title of ${id}`,
  remedy: `remedy of ${id}`,
  run,
  ...more,
});

describe('runChecks', () => {
  it('runs in order and tells of each as it is known', async () => {
    const reported: string[] = [];
    const findings = await runChecks(
      [check('a', async () => ok('fine')), check('b', async () => warning('so-so', 'mend it'))],
      never,
      ({ id }) => void reported.push(id),
    );
    expect(reported).toEqual(['a', 'b']);
    expect(findings[1]).toEqual({
      id: 'b',
      title: 'title of b',
      status: 'warning',
      summary: 'so-so',
      remedy: 'mend it',
    });
  });

  it('skips what builds on something broken, and what builds on that', async () => {
    const findings = await runChecks(
      [
        check('a', async () => failed('broken', 'mend it')),
        check('b', async () => ok('never asked'), { needs: ['a'] }),
        check('c', async () => ok('never asked'), { needs: ['b'] }),
        check('d', async () => ok('asked')),
      ],
      never,
    );
    expect(findings.map(({ status }) => status)).toEqual(['failed', 'skipped', 'skipped', 'ok']);
  });

  it('goes on after a warning', async () => {
    const findings = await runChecks(
      [check('a', async () => warning('so-so', 'x')), check('b', async () => ok('asked'), { needs: ['a'] })],
      never,
    );
    expect(findings[1]?.status).toBe('ok');
  });

  it('makes a failure with the remedy of the check of whatever is thrown', async () => {
    const findings = await runChecks(
      [
        check('a', async () => {
          throw new TailcastError('TAILNET_UNAVAILABLE', 'the detail');
        }),
      ],
      never,
    );
    expect(findings[0]).toMatchObject({ status: 'failed', summary: 'the detail', remedy: 'remedy of a' });
  });

  it('gives up on a check that does not end', async () => {
    const findings = await runChecks(
      [check('a', () => new Promise(() => {}), { timeoutMs: 20 }), check('b', async () => ok('asked'))],
      never,
    );
    expect(findings[0]).toMatchObject({ status: 'failed', summary: 'no result within 0.02 s' });
    expect(findings[1]?.status).toBe('ok');
  });

  it('ends with the reason of its signal', async () => {
    const abort = new AbortController();
    const run = runChecks(
      [
        check('a', () => {
          abort.abort(new Error('stopped'));
          return new Promise(() => {});
        }),
      ],
      abort.signal,
    );
    await expect(run).rejects.toThrow('stopped');
  });
});

describe('once', () => {
  it('loads once, failures included', async () => {
    let loads = 0;
    const load = once(() => Promise.reject(new Error(`failure ${(loads += 1)}`)));
    await expect(load()).rejects.toThrow('failure 1');
    await expect(load()).rejects.toThrow('failure 1');
  });
});
