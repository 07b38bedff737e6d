import { describe, expect, it } from 'vitest';
import { decideRecording, type RecordingRule } from '../../src/recording/policy.ts';

const A1 = '[fd7a:115c:a1e0:ab12:4843:cd96:626b:628b]:80';
const A2 = '100.99.99.99:80';

function rule(fields: Partial<RecordingRule>): RecordingRule {
  return {
    recorderTags: [],
    recorderAddresses: [],
    enforceRecorder: false,
    enableEvents: false,
    ...fields,
  };
}

describe('decideRecording', () => {
  it('records with two addresses and fails closed if a rule enforces recording', () => {
    expect(decideRecording([rule({ recorderAddresses: [A1, A2], enforceRecorder: true })])).toEqual({
      mode: 'failClosed',
      recorders: [A1, A2],
      recorderTags: [],
      events: false,
    });
  });

  it('records with two addresses and fails open if no rule enforces recording', () => {
    expect(decideRecording([rule({ recorderAddresses: [A1, A2] })])).toMatchObject({
      mode: 'failOpen',
      recorders: [A1, A2],
    });
  });

  it('joins addresses in the order of the rules, and lets a rule that only enforces apply to all', () => {
    const rules = [
      rule({ recorderAddresses: [A2] }),
      rule({ recorderAddresses: [A1] }),
      rule({ enforceRecorder: true }),
    ];
    expect(decideRecording(rules)).toMatchObject({ mode: 'failClosed', recorders: [A2, A1] });
  });

  it('does not record without rules', () => {
    expect(decideRecording([])).toEqual({ mode: 'off' });
  });

  it('does not record if the rules are about other things', () => {
    expect(decideRecording([rule({})])).toEqual({ mode: 'off' });
  });

  it('stays closed if recording is enforced but no recorder is named', () => {
    expect(decideRecording([rule({ enforceRecorder: true })])).toMatchObject({
      mode: 'failClosed',
      recorders: [],
    });
  });

  it('keeps only the tags of rules without addresses', () => {
    const rules = [
      rule({ recorderTags: ['tag:a'], recorderAddresses: [A1] }),
      rule({ recorderTags: ['tag:b'] }),
    ];
    expect(decideRecording(rules)).toMatchObject({
      mode: 'failOpen',
      recorders: [A1],
      recorderTags: ['tag:b'],
    });
  });

  it('returns the tags of which the node of an address must have one, unless a rule names only the address', () => {
    const rules = [
      rule({ recorderTags: ['tag:a'], recorderAddresses: [A1, A2] }),
      rule({ recorderTags: ['tag:b'], recorderAddresses: [A1] }),
      rule({ recorderAddresses: [A2] }),
    ];
    expect(decideRecording(rules)).toMatchObject({ tagsOf: { [A1]: ['tag:a', 'tag:b'] } });
    expect(decideRecording([rule({ recorderAddresses: [A1] })])).not.toHaveProperty('tagsOf');
  });

  it('enables events if any rule does, and returns each address once', () => {
    const rules = [rule({ recorderAddresses: [A1] }), rule({ recorderAddresses: [A1], enableEvents: true })];
    expect(decideRecording(rules)).toMatchObject({ recorders: [A1], events: true });
  });

  it('does not record if a rule only enables events and names no recorder', () => {
    expect(decideRecording([rule({ enableEvents: true })])).toEqual({ mode: 'off' });
  });
});
