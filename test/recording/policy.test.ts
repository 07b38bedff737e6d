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
  it('records with two addresses and fails closed when a rule enforces', () => {
    expect(decideRecording([rule({ recorderAddresses: [A1, A2], enforceRecorder: true })])).toEqual({
      mode: 'failClosed',
      recorders: [A1, A2],
      recorderTags: [],
      events: false,
    });
  });

  it('records with two addresses and fails open when no rule enforces', () => {
    expect(decideRecording([rule({ recorderAddresses: [A1, A2] })])).toMatchObject({
      mode: 'failOpen',
      recorders: [A1, A2],
    });
  });

  it('joins addresses in rule order and lets an enforce-only rule enforce for all', () => {
    const rules = [
      rule({ recorderAddresses: [A2] }),
      rule({ recorderAddresses: [A1] }),
      rule({ enforceRecorder: true }),
    ];
    expect(decideRecording(rules)).toMatchObject({ mode: 'failClosed', recorders: [A2, A1] });
  });

  it('is off without rules', () => {
    expect(decideRecording([])).toEqual({ mode: 'off' });
  });

  it('is off when rules speak of other things', () => {
    expect(decideRecording([rule({})])).toEqual({ mode: 'off' });
  });

  it('stays closed when recording is enforced but nobody can record', () => {
    expect(decideRecording([rule({ enforceRecorder: true })])).toMatchObject({
      mode: 'failClosed',
      recorders: [],
    });
  });

  it('keeps tags only of rules without addresses', () => {
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

  it('names the tags that the node of an address must carry one of, unless a rule asks for the address alone', () => {
    const rules = [
      rule({ recorderTags: ['tag:a'], recorderAddresses: [A1, A2] }),
      rule({ recorderTags: ['tag:b'], recorderAddresses: [A1] }),
      rule({ recorderAddresses: [A2] }),
    ];
    expect(decideRecording(rules)).toMatchObject({ tagsOf: { [A1]: ['tag:a', 'tag:b'] } });
    expect(decideRecording([rule({ recorderAddresses: [A1] })])).not.toHaveProperty('tagsOf');
  });

  it('enables events when any rule does, and names an address once', () => {
    const rules = [rule({ recorderAddresses: [A1] }), rule({ recorderAddresses: [A1], enableEvents: true })];
    expect(decideRecording(rules)).toMatchObject({ recorders: [A1], events: true });
  });

  it('is off when only events are wanted and no recorder is named', () => {
    expect(decideRecording([rule({ enableEvents: true })])).toEqual({ mode: 'off' });
  });
});
