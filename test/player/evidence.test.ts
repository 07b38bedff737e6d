/** Uploaders, and anyone with write access to the store, choose values that the page shows next to the verdict. */
import { expect, it } from 'vitest';
import { readEvidence, type Evidence } from '../../src/player/evidence.ts';

const EVIDENCE = {
  verdict: 'failed',
  checkedAt: '2026-07-29T10:44:42Z',
  findings: [{ severity: 'fault', code: 'sidecar-changed', message: 'the sidecar was changed' }],
};
const ACCESS = { event: { timestamp: 1, action: 'play', source: { node: 'a', nodeTags: ['tag:a'] } } };
const BODY = {
  evidence: EVIDENCE,
  session: { user: 'a', groups: ['b'], argv: ['c'], path: '/d' },
  gaps: [{ at: 1, reason: 'lost' }],
  gapCount: 1,
  parts: 1,
  related: { caller: [], pod: [] },
  accesses: [ACCESS],
  events: [],
};

async function read(changed: object): Promise<Evidence> {
  const answer = { ...BODY, ...changed };
  return readEvidence(async () => Response.json(answer), 'n_1', new AbortController().signal);
}

it('valid evidence is read unchanged', async () => {
  expect(await read({})).toEqual(BODY);
  const incomplete = { accessesIncomplete: true, eventsIncomplete: true };
  expect(await read(incomplete)).toEqual({ ...BODY, ...incomplete });
});

it.each([
  { session: { groups: 'everybody' } },
  { session: { argv: [{ toString: 1 }] } },
  { session: null },
  { gaps: [null] },
  { gaps: [{ at: 1, reason: { toString: 1 } }] },
  { evidence: { ...EVIDENCE, signedBy: { key: 'k', owner: 'trusted', log: { toString: 1 }, entry: 1 } } },
  { accesses: [{ event: { timestamp: 1, source: { nodeTags: 'tag:a' } } }, ACCESS] },
  { accesses: [null, { event: null }, ACCESS] },
  { events: [{ event: { timestamp: 1, kubernetes: { Verb: { toString: 1 } } } }] },
  { related: { caller: [{}], pod: null } },
])('%j does not hide the verdict', async (changed) => {
  const found = await read(changed);
  expect(found.evidence).toEqual(EVIDENCE);
  expect(found.accesses).toEqual([ACCESS]);
  expect(JSON.stringify(found)).not.toMatch(/toString|null|"tag:a"}|everybody/);
});
