import { describe, expect, it } from 'vitest';
import { mergePatch, strategicMergePatch } from '../../demo/patch.ts';

describe('a merge patch', () => {
  // RFC 7386, appendix A
  it.each([
    [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
    [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
    [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
    [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
    [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
    [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ])('turns %j with %j into %j', (target, patch, result) => {
    expect(mergePatch(target, patch)).toEqual(result);
  });

  it('does not reach the prototype', () => {
    const patched = mergePatch({}, JSON.parse('{"__proto__":{"polluted":true}}'));
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
    expect(Object.keys(patched as object)).toEqual(['__proto__']);
  });
});

describe('a strategic merge patch', () => {
  const pod = {
    spec: {
      containers: [
        { name: 'a', image: '1', env: [{ name: 'X', value: '1' }], args: ['x'] },
        { name: 'b', image: '1' },
      ],
      finalizers: ['one', 'two'],
    },
  };

  it('merges lists by their keys and replaces the others', () => {
    const patch = {
      spec: {
        $setElementOrder: [],
        containers: [
          { name: 'a', env: [{ name: 'Y', value: '2' }], args: ['y'] },
          { name: 'c', image: '3' },
        ],
      },
    };
    expect(strategicMergePatch(pod, patch)).toMatchObject({
      spec: {
        containers: [
          {
            name: 'a',
            image: '1',
            env: [
              { name: 'X', value: '1' },
              { name: 'Y', value: '2' },
            ],
            args: ['y'],
          },
          { name: 'b', image: '1' },
          { name: 'c', image: '3' },
        ],
      },
    });
  });

  it('obeys its directives', () => {
    const patch = {
      spec: {
        containers: [{ name: 'a', $patch: 'delete' }],
        '$deleteFromPrimitiveList/finalizers': ['one'],
        '$setElementOrder/finalizers': ['two'],
      },
    };
    expect(strategicMergePatch(pod, patch)).toEqual({
      spec: { containers: [{ name: 'b', image: '1' }], finalizers: ['two'] },
    });
    const replaced = strategicMergePatch(pod, { spec: { $patch: 'replace', nodeName: 'n' } });
    expect(replaced).toEqual({ spec: { nodeName: 'n' } });
    const retained = strategicMergePatch({ a: 1, b: 2 }, { $retainKeys: ['b', 'c'], c: 3 });
    expect(retained).toEqual({ b: 2, c: 3 });
  });
});
