import { describe, expect, it } from 'vitest';
import { PODS } from '../../demo/resources.ts';
import { parseFieldSelector, parseLabelSelector } from '../../demo/selectors.ts';

const pod = {
  metadata: { name: 'x', namespace: 'n', labels: { app: 'web', tier: 'front', 'a.b/c': '' } },
  spec: { nodeName: 'node' },
  status: { phase: 'Running' },
};

describe('a label selector', () => {
  it.each([
    ['', true],
    ['app=web', true],
    ['app==web,tier!=back', true],
    ['app = api', false],
    ['app in (api, web),tier notin (back)', true],
    ['app in (api)', false],
    ['app notin (web)', false],
    ['missing notin (web)', true],
    ['missing!=x', true],
    ['app,!missing', true],
    ['!app', false],
    ['a.b/c=', true],
  ])('%j is %s', (text, selected) => {
    expect(parseLabelSelector(text)(pod)).toBe(selected);
  });

  it.each(['app in web', 'a b', '=x', '-bad', 'app in (a'])('refuses %j', (text) => {
    expect(() => parseLabelSelector(text)).toThrow('unable to parse requirement');
  });
});

describe('a field selector', () => {
  it.each([
    ['metadata.name=x', true],
    ['metadata.name=x,status.phase!=Running', false],
    ['spec.nodeName==node', true],
    ['status.podIP=', true],
  ])('%j is %s', (text, selected) => {
    expect(parseFieldSelector(text, PODS)(pod)).toBe(selected);
  });

  it('refuses a field it does not know', () => {
    expect(() => parseFieldSelector('spec.foo=x', PODS)).toThrow('field label not supported: spec.foo');
    expect(() => parseFieldSelector('nonsense', PODS)).toThrow('invalid field selector');
  });
});
