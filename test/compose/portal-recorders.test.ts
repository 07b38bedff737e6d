import { expect, it } from 'vitest';
import { createRecorderChoice } from '../../src/compose/portal.ts';
import { decideRecording } from '../../src/recording/policy.ts';
import { person } from '../proxy/rig.ts';

const CALLER = {
  id: 'id-1',
  identity: person(),
  impersonation: undefined,
  recording: decideRecording([
    { recorderAddresses: ['100.64.0.7:80'], recorderTags: [], enforceRecorder: true, enableEvents: false },
    { recorderAddresses: [], recorderTags: ['tag:granted'], enforceRecorder: true, enableEvents: false },
  ]),
};

async function ask(
  portalRecorders: readonly string[],
  portalPort: number | undefined,
): Promise<readonly string[]> {
  const choice = createRecorderChoice(
    { portalRecorders, portalPort },
    {
      resolveRecorderTags: async (tags) =>
        tags.map((tag) => (tag === 'tag:granted' ? '[fd7a::8]:80' : '100.64.0.9:80')),
    },
  );
  return choice(CALLER);
}

it('asks where uploads go, when recorders have one address for everybody', async () => {
  expect(await ask([], undefined)).toEqual(['100.64.0.7:80', '[fd7a::8]:80']);
  expect(await ask(['tag:x', '100.64.0.5:8090'], undefined)).toEqual(['100.64.0.5:8090', '100.64.0.9:80']);
});

it('uses the port for viewers with tags and grants, and the addresses of the settings unchanged', async () => {
  expect(await ask([], 8081)).toEqual(['100.64.0.7:8081', '[fd7a::8]:8081']);
  expect(await ask(['tag:x', '100.64.0.5:8090'], 8081)).toEqual(['100.64.0.5:8090', '100.64.0.9:8081']);
});
