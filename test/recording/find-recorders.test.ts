import { describe, expect, it } from 'vitest';
import { findRecorders, withFound } from '../../src/recording/find-recorders.ts';

const [GOOD, OTHER, PLAIN, TAGGED] = ['100.64.0.7:80', '100.64.0.8:80', '100.64.0.9:80', '100.64.0.10:80'];
const never = new AbortController().signal;
const tailnet = {
  resolveRecorderTags: async () => [TAGGED],
  carriesTag: async (address: string, tags: readonly string[]) =>
    address === GOOD && tags.includes('tag:rec'),
};
const tagsOf = { [GOOD]: ['tag:rec'], [OTHER]: ['tag:rec'] };

describe('the recorders that grants name', () => {
  it('are addresses whose nodes have the tag of the grant, in order', async () => {
    const named = { recorders: [OTHER, PLAIN, GOOD], recorderTags: [], tagsOf };
    expect(await findRecorders(named, tailnet, never)).toEqual([PLAIN, GOOD]);
  });

  it('include nodes with a tag, each once', async () => {
    const named = { recorders: [TAGGED, OTHER], recorderTags: ['tag:rec'], tagsOf };
    expect(await findRecorders(named, tailnet, never)).toEqual([TAGGED]);
  });

  it('are refused with a reason if no address belongs to a node with the tag', async () => {
    const named = { recorders: [OTHER], recorderTags: [], tagsOf };
    await expect(findRecorders(named, tailnet, never)).rejects.toMatchObject({
      code: 'RECORDER_UNAVAILABLE',
      detail: `${OTHER} is no node with tag:rec`,
    });
  });

  it('are checked again for their tags, including recorders that were found by tag', async () => {
    const named = withFound({ recorders: [GOOD], recorderTags: ['tag:rec'], tagsOf }, [GOOD, TAGGED]);
    const later = (tagged: string) => ({
      resolveRecorderTags: async () => [],
      carriesTag: async (address: string) => address === tagged,
    });
    expect(await findRecorders(named, later(TAGGED), never)).toEqual([TAGGED]);
    expect(await findRecorders(named, later(GOOD), never)).toEqual([GOOD]);
  });

  it('are not dialled if the tailnet does not respond', async () => {
    const carriesTag = (): Promise<boolean> => Promise.reject(new Error('no answer'));
    const named = { recorders: [GOOD], recorderTags: [], tagsOf };
    await expect(findRecorders(named, { ...tailnet, carriesTag }, never)).rejects.toThrow('no answer');
  });
});
